"""Predictions that need no federation."""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings


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
