"""A user who joins after training: a party of its own, with the model's item factors."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.data.frames import Table, named, to_polars
from fedmmf.data.ids import as_ids, is_many
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import DataError
from fedmmf.masks import MaskPlan
from fedmmf.masks.feature_maps import expand
from fedmmf.model.learned import Learned
from fedmmf.model.lists import Id, Ids, ListRequest, frame_of
from fedmmf.party import Party, PartyData, Policy
from fedmmf.settings import Settings
from fedmmf.wire import Catalogue

log = logging.getLogger("fedmmf.model")


class Newcomer:
    """A user who joined after training."""

    def __init__(self, learned: Learned, party: Party, rated: Array) -> None:
        self._learned, self.party, self._rated = learned, party, rated

    def predict(self, items: Any) -> Array:
        """Predicted ratings of items, by id; unknown items are refused. (n,).

        Each is what the newcomer would give who rates that item. That somebody rates it says
        something too, which `scores` does not count.
        """
        return self._learned.shown(self._mean_of(self.party.rating_scores, self._known(items)))

    def scores(self, items: Any) -> Array:
        """Return what lists are ranked by; it may be off the scale. (n,)."""
        return self._mean_of(self.party.scores, self._known(items))

    def recommend(
        self, n: int = 10, *, candidates: Ids | None = None, exclude: Ids = (), seen: bool = False
    ) -> pl.DataFrame:
        """The n items with the highest scores; the arguments are those of `FedMMF.recommend`.

        Its `prediction` is made from the score, so that lists are in its order. It may differ from
        `predict`, which is about items that the newcomer rates: lists ranked by that are worse.
        """
        wanted = ListRequest.checked(self._learned, n, candidates, exclude, seen)
        scores = self._mean_of(self.party.scores, wanted.items)
        return frame_of(self._learned, wanted.best_of(scores, self._rated))

    def _known(self, items: Any) -> Array:
        """Codes of items that the model must know. (n,)."""
        codes = self._learned.item_codes(as_ids(items, "items"))
        if (codes == self._learned.n_items).any():
            raise DataError("a newcomer's predictions are for items of the model; some are unknown")
        return codes

    def _mean_of(self, scores_of: Callable[[Array], Array], codes: Array) -> Array:
        """Mean of the members' scores, each with the p_u that its item factors call for. (n,)."""
        scores = []
        for member in self._learned.members:
            about = (self._learned.solver, self._learned.variant)
            self.party.join_late(*about, member.broadcast, self._learned.population)
            scores.append(scores_of(codes))
        return np.asarray(np.mean(scores, axis=0))


def own_ratings(learned: Learned, given: Any) -> Mapping[Id, float]:
    """Convert a newcomer's ratings from any supported type to ratings by item."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, pl.Series) and isinstance(given.dtype, pl.Struct):
        given = given.struct.unnest()
    if hasattr(given, "columns"):
        return _of_frame(named(Table(to_polars(given), "frame")).frame, learned)
    if learned.is_implicit and is_many(given):
        return dict.fromkeys(as_ids(given, "items").tolist(), learned.scale.max)
    if hasattr(given, "index") and hasattr(given, "isna"):
        return _of_pandas_series(given)
    raise DataError(
        "a newcomer's ratings are a dictionary, rating by item, a frame with the columns item_id "
        "and rating, or a pandas Series with the items as its index; got "
        f"{type(given).__name__}{_without_items(given)}"
    )


def _without_items(given: Any) -> str:
    is_series = isinstance(given, pl.Series)
    return " of polars, which has no index: take a frame with both columns" if is_series else ""


def _of_pandas_series(series: Any) -> dict[Id, float]:
    """Rating by item, where the index says which items; one that nobody has set does not."""
    if type(series.index).__name__ == "RangeIndex":
        raise DataError(
            "a Series of ratings needs the items as its index; got one that only counts, "
            f"{series.index!r}. Use set_axis or a dictionary"
        )
    return _once(as_ids(series.index, "items").tolist(), series.tolist())


def _once(items: list[Id], values: list[float]) -> dict[Id, float]:
    """Rating by item; an item that is there twice is refused."""
    found = dict(zip(items, values, strict=True))
    if len(found) < len(items):
        twice = next(item for place, item in enumerate(items) if item in items[:place])
        raise DataError(f"a newcomer rates an item once; {twice!r} is there twice. Keep one")
    return found


def _of_frame(frame: pl.DataFrame, learned: Learned) -> dict[Id, float]:
    wanted = ["item_id"] if learned.is_implicit else ["item_id", "rating"]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        arrived = ", ".join(frame.columns)
        raise DataError(
            f"a newcomer's frame needs {' and '.join(wanted)}; missing: {', '.join(missing)}; "
            f"arrived: {arrived}"
        )
    if "user_id" in frame.columns and frame["user_id"].n_unique() > 1:
        raise DataError(
            "a newcomer's frame holds the ratings of one person; its user_id has "
            f"{frame['user_id'].n_unique():,} values. Keep the rows of one"
        )
    items = as_ids(frame["item_id"].to_list(), "items").tolist()
    if learned.is_implicit:
        return dict.fromkeys(items, learned.scale.max)
    return _once(items, frame["rating"].to_list())


def welcome(learned: Learned, settings: Settings, ratings: Mapping[Id, float]) -> Newcomer:
    """Fit a newcomer's mask on own ratings; the model is not trained again."""
    codes, values = _known(learned, ratings)
    order = np.argsort(codes)
    codes, values = codes[order], values[order]
    learned.check_on_scale(values)
    features = learned.features[:-1]
    content = features[:, : learned.n_content]
    statistics = features[:, expand(learned.mask, content).shape[1] :]
    mask = MaskPlan.of(settings)
    data = PartyData(
        catalogue=Catalogue(learned.n_items, learned.scale, b""),
        features=mask.views(content, statistics),
        lists=RatedItems.of_one(codes),
        ratings=values,
    )
    return Newcomer(learned, Party(data, mask, Policy(), expectation=None), codes)


def _numbers(ratings: Mapping[Id, float]) -> Array:
    """The ratings as numbers; what is none is named with its item. (n,)."""
    for item, value in ratings.items():
        is_number = isinstance(value, int | float | np.integer | np.floating)
        if not is_number or isinstance(value, bool):
            raise DataError(
                f"a rating must be a number; got {value!r} for the item {item!r}. Leave it out "
                "if it is unknown"
            )
    return np.array(list(ratings.values()), np.float32)


def _known(learned: Learned, ratings: Mapping[Id, float]) -> tuple[Array, Array]:
    """Codes and values of what the model knows; the rest is counted in one line. (n,) each."""
    ids, values = list(ratings), _numbers(ratings)
    codes = learned.item_codes(as_ids(ids, "items")) if ids else np.zeros(0, np.int64)
    is_known = codes < learned.n_items
    if not is_known.any():
        arrived = ", ".join(str(item)[:40] for item in ids[:5]) or "no rating"
        raise DataError(
            f"a newcomer needs ratings of known items (such as {learned.item_ids[0].item()!r}); "
            f"none is known of: {arrived}. Use the ids that the model was trained with"
        )
    if not is_known.all():
        n_unknown, first = int((~is_known).sum()), ids[int(np.argmin(is_known))]
        words = "%d of %d rated items are unknown to the model and left out, such as %.40r"
        log.warning(words, n_unknown, len(ids), first)
    return codes[is_known], values[is_known]
