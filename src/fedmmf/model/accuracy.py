"""Evaluate a model on test ratings: its errors, and its lists beside a popularity baseline."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.ids import whole_number
from fedmmf.data.rated_items import top_n
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError
from fedmmf.model.evaluation import CutOff, ListTally, cut_offs, mae, rmse, surprise
from fedmmf.model.learned import Learned
from fedmmf.model.lists import BestItems, ListRequest, each_list
from fedmmf.progress import Report
from fedmmf.reports.list_scores import ListScores, RankingScores

DEFAULT_TOP = 10  # items of the lists of a model that ranks
RELEVANT_SHARE = 0.75  # of the way up the scale: 4 and 5 of 5 stars
Relevant = Mapping[int, Array]  # codes of the relevant items, by user


class Accuracy(TypedDict):
    """Errors where ratings are predicted, and list metrics where they were asked for."""

    rmse: NotRequired[float]
    mae: NotRequired[float]
    ranking: NotRequired[RankingScores]


def evaluated(
    learned: Learned,
    test: Ratings,
    top: int | None,
    relevant_from: float | None,
    progress: Report,
) -> Accuracy:
    """Compute errors and, for `top` items, list metrics; arguments as in `FedMMF.evaluate`."""
    if top is None and learned.objective == "ranking":
        top = DEFAULT_TOP
    if top is None and relevant_from is not None:
        raise SettingsError("relevant_from is about lists; give top, their length, as well")
    if top is not None:
        top = whole_number("top", top)
    users = learned.user_codes(test.user_ids)[test.user_codes]  # (n_test,)
    items = learned.item_codes(test.item_ids)[test.item_codes]
    found = Accuracy()
    if learned.objective == "rating":
        progress("test ratings", 0, len(test))
        predicted = learned.predict(users, items)
        progress("test ratings", len(test), len(test))
        found = Accuracy(rmse=rmse(test.values, predicted), mae=mae(test.values, predicted))
    if top is not None:
        least = relevant_rating(learned.scale, relevant_from)
        is_good = test.values >= least
        relevant = _relevant(learned, users[is_good], items[is_good])
        scores = _ranking(learned, relevant, top, progress)
        found["ranking"] = RankingScores(**scores, relevant_from=least, n_users=len(relevant))
    return found


def relevant_rating(scale: RatingScale, relevant_from: float | None) -> float:
    """The rating from which on an item is relevant: as asked for, or RELEVANT_SHARE of the span."""
    if relevant_from is None:
        return scale.min + RELEVANT_SHARE * scale.span
    if not scale.min <= relevant_from <= scale.max:
        raise SettingsError(
            f"relevant_from must be a rating on the scale {scale}; got {relevant_from:g}"
        )
    return float(relevant_from)


def _relevant(learned: Learned, users: Array, items: Array) -> Relevant:
    """Relevant items of each user, if the model knows them and training has no such rating."""
    is_known = (users < learned.n_users) & (items < learned.n_items)
    users, items = users[is_known].astype(np.int64), items[is_known]
    is_new = ~_have_rated(learned, users, items)
    users, items = users[is_new], items[is_new]
    order = np.argsort(users, kind="stable")
    whose, begins = np.unique(users[order], return_index=True)
    lists = np.split(items[order], begins[1:])
    return {int(user): own for user, own in zip(whose, lists, strict=False)}  # nobody: one empty


def _have_rated(learned: Learned, users: Array, items: Array) -> Array:
    """Whether users have rated items in training, for pairs of codes. (n,) bool."""
    whose = np.repeat(np.arange(learned.n_users), np.diff(learned.indptr))
    rated = whose * learned.n_items + learned.rated_items  # increasing, as the ratings are
    wanted = users * learned.n_items + items
    places = np.minimum(np.searchsorted(rated, wanted), len(rated) - 1)
    return np.asarray(rated[places] == wanted)


def _ranking(learned: Learned, relevant: Relevant, top: int, progress: Report) -> dict[str, Any]:
    """Compute the metrics of the model's lists and of the popularity baseline's."""
    wanted = cut_offs(top)
    n, users = max(length for _, length in wanted), np.array(list(relevant), np.int64)
    everything = ListRequest(n, np.arange(learned.n_items), learned.n_items)
    ours = each_list(learned, learned.scorer(everything.items), users, everything, progress)
    popular = _popular_lists(learned, users, n, progress)
    beside = ListScores(**_judged(learned, popular, relevant, wanted))
    return {**_judged(learned, ours, relevant, wanted), "popularity": beside}


def _popular_lists(learned: Learned, users: Array, n: int, progress: Report) -> Iterable[BestItems]:
    """Yield the n most rated items that each user has not rated; ties by item.

    Nobody's list reaches further down than n and what that user has rated, so that the rest of the
    catalogue need not be looked at.
    """
    counts = learned.raters.astype(np.float64)
    longest = int(np.diff(learned.indptr).max(initial=0))
    head = np.sort(top_n(counts, n + longest))
    wanted = ListRequest(n, head, learned.n_items)
    return each_list(
        learned,
        lambda user: counts[head],
        users,
        wanted,
        lambda _, done, total: progress("popular lists", done, total),
    )


def _judged(
    learned: Learned, lists: Iterable[BestItems], relevant: Relevant, wanted: Sequence[CutOff]
) -> dict[str, float]:
    """Compute every metric of the users' lists, by its name in results."""
    tally = ListTally(wanted, surprise(learned.raters, learned.n_users))
    for best, own in zip(lists, relevant.values(), strict=True):
        is_hit = (best.items[:, np.newaxis] == own).any(axis=1)  # both are short: isin is slower
        tally.add(best.items, is_hit, len(own))
    return {f"{name}_at_{length}": value for (name, length), value in tally.means().items()}
