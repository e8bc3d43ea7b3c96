"""Lists of items as results hold them, and how good they are."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field, FiniteFloat, model_validator

from fedmmf.reports.typed import Count, Typed


class ListScores(Typed):
    """How good lists of items are: `docs/lists.md` has the definitions.

    Those that are always there can be compared between runs. Others of the same metrics, at the
    length that somebody asked for, are there by their names, such as `ndcg_at_5`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat | None] = Field(init=False)

    ndcg_at_10: FiniteFloat | None
    recall_at_20: FiniteFloat | None
    precision_at_10: FiniteFloat | None = None
    hit_rate_at_10: FiniteFloat | None
    map_at_10: FiniteFloat | None = None
    mrr_at_10: FiniteFloat | None = None
    coverage_at_10: FiniteFloat | None = None  # share of the catalogue that is in anybody's list
    novelty_at_10: FiniteFloat | None = None  # bits

    @model_validator(mode="before")
    @classmethod
    def _pass_over_what_is_no_metric(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {
            name: value
            for name, value in values.items()
            if name in cls.model_fields or _AT_LENGTH.fullmatch(name)
        }

    def metrics(self) -> dict[str, float | None]:
        """Every figure by its name, in the order of the metrics and of the lengths."""
        named = {name: value for name, value in self if _AT_LENGTH.fullmatch(name)}
        return dict(sorted(named.items(), key=lambda pair: _place_of(pair[0])))


PREDICTED = "These lists are of predicted ratings"
FOR_LISTS = (
    "What is rated highest is not what is chosen most. For lists, train with the objective "
    "'ranking'."
)
_METRICS = {
    "ndcg": "nDCG",
    "recall": "recall",
    "precision": "precision",
    "hit_rate": "hit rate",
    "map": "MAP",
    "mrr": "MRR",
    "coverage": "coverage",
    "novelty": "novelty, bits",
}
_AT_LENGTH = re.compile(rf"({'|'.join(_METRICS)})_at_([1-9][0-9]*)")


def _place_of(name: str) -> tuple[int, int]:
    metric, _, length = name.rpartition("_at_")
    return list(_METRICS).index(metric), int(length)


def metric_title(name: str) -> str:
    """What people call a figure of `ListScores`: nDCG@10 for ndcg_at_10."""
    metric, _, length = name.rpartition("_at_")
    called, *unit = _METRICS[metric].split(", ")
    return ", ".join([f"{called}@{length}", *unit])


class RankingScores(ListScores):
    """A run's lists, means over users, beside one list for everybody: the most popular items.

    Attributes:
        n_users: who have something relevant to find in the test ratings; others do not count.
        relevant_from: the rating from which on an item is relevant.
        popularity: the same of the items with the most ratings in training, in the same way.
    """

    n_users: Count | None = None
    relevant_from: FiniteFloat | None = None
    popularity: ListScores | None = None

    def headline(self) -> str:
        """Compare the lists with the most popular items, as a part of a sentence."""
        ours, popular = self.ndcg_at_10, self._popular
        if ours is None:
            return ""
        if popular is not None and ours < popular:
            worse = "these lists are worse than the most popular items"
            return f"{worse}: nDCG@10 {ours:.4f} against {popular:.4f}"
        beside = "" if popular is None else f", that of the most popular items {popular:.4f}"
        return f"the nDCG@10 of lists is {ours:.4f}{beside}"

    def figures(self) -> str:
        """Return nDCG@10 of the lists beside that of the most popular items; empty: unknown."""
        if self.ndcg_at_10 is None or self._popular is None:
            return ""
        return f"nDCG@10 {self.ndcg_at_10:.4f}, the most popular items {self._popular:.4f}"

    @property
    def _popular(self) -> float | None:
        """The nDCG@10 of the most popular items."""
        return None if self.popularity is None else self.popularity.ndcg_at_10


class RecommendedItem(Typed):
    """One item for one user."""

    item_id: int | str
    prediction: FiniteFloat
    title: str | None = None


class RecommendedList(Typed):
    """Items for one user, the best first."""

    user: int | str
    model: str = ""
    recommendations: tuple[RecommendedItem, ...]
