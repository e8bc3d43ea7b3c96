"""Predictions that need no federation."""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings


def mean_predictions(train: Ratings, users: Array, items: Array) -> dict[str, Array]:
    """Predictions for pairs of codes by three means of the training ratings.

    Args:
        train: whose means are taken.
        users: codes of `train`; n_users for somebody unknown. (n,)
        items: codes of `train`; n_items for an unknown item. (n,)
    """
    mean = float(train.values.mean(dtype=np.float64))
    return {
        "global mean": np.full(len(users), mean),
        "user mean": _means(train.user_codes, train.values, train.n_users, mean)[users],
        "item mean": _means(train.item_codes, train.values, train.n_items, mean)[items],
    }


def _means(codes: Array, values: Array, n: int, otherwise: float) -> Array:
    """Mean rating by code; the last entry is for what training did not know. (n + 1,)."""
    counts = np.bincount(codes, minlength=n + 1)
    sums = np.bincount(codes, values, n + 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), otherwise)
