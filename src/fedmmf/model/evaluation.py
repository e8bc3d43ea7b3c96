"""Errors over test ratings, baselines that need no federation, and metrics of lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings

CutOff = tuple[str, int]  # a metric, and how many items of a list count


def rmse(truth: Array, predicted: Array) -> float:
    """Root mean square error over pairs, not over users (section 4.1)."""
    return float(np.sqrt(np.mean(np.square(truth - predicted, dtype=np.float64))))


def mae(truth: Array, predicted: Array) -> float:
    """Mean absolute error over pairs."""
    return float(np.mean(np.abs(truth - predicted), dtype=np.float64))


def scored(truth: Array, predicted: Array) -> dict[str, float]:
    """Return RMSE and MAE by name."""
    return {"rmse": rmse(truth, predicted), "mae": mae(truth, predicted)}


@dataclass(frozen=True, eq=False)
class RatingMeans:
    """Means of training ratings; the last entry is for an unknown user or item."""

    overall: float
    by_user: Array  # (n_users + 1,)
    by_item: Array  # (n_items + 1,)

    @classmethod
    def of(cls, train: Ratings) -> "RatingMeans":
        """Compute the means of these ratings."""
        overall = float(train.values.mean(dtype=np.float64))
        by_user = _means(train.user_codes, train.values, train.n_users, overall)
        return cls(overall, by_user, _means(train.item_codes, train.values, train.n_items, overall))

    def predictions(self, users: Array, items: Array) -> dict[str, Array]:
        """Predictions for pairs of codes, by name. (n,) each."""
        return {
            "global mean": np.full(len(users), self.overall),
            "user mean": self.by_user[users],
            "item mean": self.by_item[items],
        }


def _means(codes: Array, values: Array, n: int, otherwise: float) -> Array:
    counts = np.bincount(codes, minlength=n + 1)
    sums = np.bincount(codes, values, n + 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), otherwise)


def ndcg(hits: Array, n_relevant: int, n: int) -> float:
    """Normalised discounted cumulative gain (Jarvelin and Kekalainen 2002), gains of 0 and 1.

    A hit at rank r counts 1 / log2(r + 1). The best possible list has its relevant items first, as
    many of them as n allows.
    """
    discounts = 1.0 / np.log2(np.arange(2, n + 2))
    found = float(discounts[: len(hits)][hits[:n]].sum())
    return found / float(discounts[:n_relevant].sum())


def recall(hits: Array, n_relevant: int, n: int) -> float:
    """Share of the relevant items that are among the first n."""
    return float(np.count_nonzero(hits[:n])) / n_relevant


def precision(hits: Array, n_relevant: int, n: int) -> float:
    """Share of n places that have a relevant item; what a short list leaves empty has none."""
    return float(np.count_nonzero(hits[:n])) / n


def hit_rate(hits: Array, n_relevant: int, n: int) -> float:
    """1 if anything among the first n is relevant, else 0."""
    return float(hits[:n].any())


def average_precision(hits: Array, n_relevant: int, n: int) -> float:
    """Precision at the rank of each hit among the first n, summed, over all that is relevant.

    The mean over users is MAP (Voorhees and Harman 2005). Some divide by n where more than n items
    are relevant; trec_eval and ranx do not.
    """
    ranks = 1 + np.flatnonzero(hits[:n])
    return float(np.sum(np.arange(1, len(ranks) + 1) / ranks)) / n_relevant


def reciprocal_rank(hits: Array, n_relevant: int, n: int) -> float:
    """1 over the rank of the first hit, 0 without one; the mean is MRR (Voorhees 1999)."""
    ranks = 1 + np.flatnonzero(hits[:n])
    return 1.0 / float(ranks[0]) if len(ranks) else 0.0


def surprise(raters: Array, n_users: int) -> Array:
    """-log2 of the share of users who have rated each item (Vargas and Castells 2011). (n_items,).

    An item that nobody has rated counts as if one user had: it is no less known than that.
    """
    return np.asarray(np.log2(n_users) - np.log2(np.maximum(raters, 1)))


PER_LIST: dict[str, Callable[[Array, int, int], float]] = {
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "hit_rate": hit_rate,
    "map": average_precision,
    "mrr": reciprocal_rank,
}


METRICS = (*PER_LIST, "coverage", "novelty")


USUAL: tuple[CutOff, ...] = tuple((name, 20 if name == "recall" else 10) for name in METRICS)


def cut_offs(top: int) -> list[CutOff]:
    """Return the usual metrics with their lengths, and every metric at length `top`."""
    return list(dict.fromkeys([*USUAL, *((name, top) for name in METRICS)]))


class ListTally:
    """Running means of metrics over users' lists; the lists are not stored.

    Args:
        wanted: which metrics, at which lengths.
        surprise: of each item, in bits. (n_items,)
    """

    def __init__(self, wanted: Sequence[CutOff], surprise: Array) -> None:
        self._surprise, self._n_lists = surprise, 0
        self._sums = {cut_off: 0.0 for cut_off in wanted if cut_off[0] != "coverage"}
        self._shown = {n: np.zeros(len(surprise), bool) for name, n in wanted if name == "coverage"}

    def add(self, items: Array, hits: Array, n_relevant: int) -> None:
        """Count one user's list: its item codes, its hits, and the number of relevant items."""
        self._n_lists += 1
        has_hits = bool(hits.any())  # most lists have none, and every other metric is then 0
        for name, n in self._sums:
            if name == "novelty":  # mean over the items of a list, then over lists; nothing: 0
                self._sums[name, n] += float(self._surprise[items[:n]].sum()) / max(
                    len(items[:n]), 1
                )
            elif has_hits:
                self._sums[name, n] += PER_LIST[name](hits, n_relevant, n)
        for n, shown in self._shown.items():
            shown[items[:n]] = True

    def means(self) -> dict[CutOff, float]:
        """Every metric that was wanted; nan where there was no list.

        Coverage is the share of the catalogue that is in anybody's list.
        """
        if self._n_lists == 0:
            return dict.fromkeys([*self._sums, *(("coverage", n) for n in self._shown)], np.nan)
        means = {cut_off: total / self._n_lists for cut_off, total in self._sums.items()}
        return means | {("coverage", n): float(shown.mean()) for n, shown in self._shown.items()}
