"""Recommended lists: their users, candidate items, length, and form as a table."""

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.data.ids import as_ids, whole_number
from fedmmf.data.rated_items import top_n
from fedmmf.errors import FedMMFWarning, SettingsError
from fedmmf.model.learned import Learned
from fedmmf.progress import Report, quiet
from fedmmf.reports.list_scores import FOR_LISTS, PREDICTED, RankingScores
from fedmmf.settings import Settings

log = logging.getLogger("fedmmf.model")
Id = int | str
Ids = Iterable[Id] | Id


class BestItems(NamedTuple):
    """One user's list, the best first."""

    items: Array  # (n or fewer,) codes
    scores: Array  # (n or fewer,) before clipping


@dataclass(frozen=True, eq=False)
class ListRequest:
    """The options of a list: its length, candidates and exclusions."""

    n: int  # items in a list at most
    items: Array  # codes of those that may be in it, increasing. (n_candidates,)
    n_items: int  # in the catalogue
    seen: bool = False  # whether what a user has rated may be in the user's list

    @classmethod
    def checked(
        cls, learned: Learned, n: int, candidates: Ids | None, exclude: Ids, seen: bool
    ) -> Self:
        """Make a request from ids; an excluded item may be one that the model never saw."""
        n = whole_number("n", n)
        may_be = np.full(learned.n_items + 1, candidates is None)
        if candidates is not None:
            ids = as_ids(candidates, "candidates")
            if len(ids) == 0:
                raise SettingsError(
                    "candidates must name at least one item; got none. Leave it out to rank the "
                    "whole catalogue"
                )
            may_be[learned.known_item_codes(ids)] = True
        may_be[learned.item_codes(as_ids(exclude, "excluded items"))] = False
        return cls(n, np.flatnonzero(may_be[:-1]), learned.n_items, seen)

    @cached_property
    def _places(self) -> Array:
        """Where each item of the catalogue is among the candidates; -1: nowhere. (n_items,)."""
        places = np.full(self.n_items, -1)
        places[self.items] = np.arange(len(self.items))
        return places

    def best_of(self, scores: Array, rated: Array) -> BestItems:
        """The best of the candidates by their scores (n_candidates,), which are overwritten."""
        if not self.seen:
            places = self._places[rated]
            scores[places[places >= 0]] = -np.inf
        best = top_n(scores, self.n)
        return BestItems(self.items[best], scores[best])


def each_list(
    learned: Learned,
    score: Callable[[int], Array],
    users: Array,
    wanted: ListRequest,
    progress: Report = quiet,
) -> Iterator[BestItems]:
    """The lists of users (codes), one after the other; no more than one user's scores are kept.

    Args:
        learned: whose users they are.
        score: gives a user's scores of the candidates. (n_candidates,)
        users: their codes.
        wanted: what lists are made of.
        progress: called with the number of finished lists.
    """
    for done, user in enumerate(users, 1):
        yield wanted.best_of(score(user), learned.rated_by(user))
        progress("lists", done, len(users))


def lists_for(
    learned: Learned, ids: Ids, wanted: ListRequest, progress: Report = quiet
) -> pl.DataFrame:
    """The lists of some users, one below the other: user_id, rank, and what is known of items."""
    asked = as_ids(ids, "users")
    if len(asked) == 0:
        raise SettingsError("users must name at least one user; got none")
    users = learned.known_user_codes(asked)
    lists = list(each_list(learned, learned.scorer(wanted.items), users, wanted, progress))
    lengths = [len(best.items) for best in lists]
    whose = {
        "user_id": np.repeat(learned.user_ids[users], lengths),
        "rank": np.concatenate([np.arange(1, length + 1) for length in lengths]),
    }
    together = BestItems(*map(np.concatenate, zip(*lists, strict=True)))
    return pl.DataFrame(whose).hstack(frame_of(learned, together))


def frame_of(learned: Learned, best: BestItems) -> pl.DataFrame:
    """Items with what is known about them, and predicted ratings or scores."""
    columns: dict[str, Array] = {"item_id": learned.item_ids[best.items]}
    if learned.item_titles is not None:
        columns["title"] = learned.item_titles[best.items]
    return pl.DataFrame(columns | {"prediction": learned.shown(best.scores)})


def what_ranks(settings: Settings, scores: RankingScores | None = None) -> str:
    """Return a warning where lists are ranked by predicted ratings; empty: none is due.

    Args:
        settings: of the model.
        scores: how good its lists are, where somebody has measured it.
    """
    if settings.objective == "ranking":
        return ""
    figures = None if scores is None else scores.figures()
    measured = figures or "how good they are was not measured; evaluate the model on a test part"
    return f"{PREDICTED}: {measured}. {FOR_LISTS}"


def warn(text: str) -> None:
    """Warn from within a method that users call, by `FedMMFWarning`.

    Where filters turn warnings into errors, as in strict tests, it is logged instead: poor lists
    are no reason to stop.
    """
    try:
        warnings.warn(text, FedMMFWarning, stacklevel=3)
    except FedMMFWarning:
        log.warning("%s", text)
