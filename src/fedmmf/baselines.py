"""What a model has to beat: predictions that need no federation, on the same test ratings."""

from typing import Any

import numpy as np

from fedmmf import evaluation
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.learned import Learned


def baselines(learned: Learned, train: Ratings, test: Ratings) -> list[dict[str, Any]]:
    """RMSE and MAE of three means and of the masks alone."""
    users = learned.user_codes(test.user_ids)[test.user_codes]  # (n_test,)
    items = learned.item_codes(test.item_ids)[test.item_codes]
    mean = float(train.values.mean(dtype=np.float64))
    predictions = {
        "global mean": np.full(len(test), mean),
        "user mean": _means(train.user_codes, train.values, learned.n_users, mean)[users],
        "item mean": _means(train.item_codes, train.values, learned.n_items, mean)[items],
    }
    if learned.mask != "none":
        predictions["mask alone"] = learned.predict_masks(users, items)
    return [
        {
            "name": name,
            "rmse": evaluation.rmse(test.values, predicted),
            "mae": evaluation.mae(test.values, predicted),
        }
        for name, predicted in predictions.items()
    ]


def _means(codes: Array, values: Array, n: int, otherwise: float) -> Array:
    """Mean rating by code; the last entry is for what training did not know. (n + 1,)."""
    counts = np.bincount(codes, minlength=n + 1)
    sums = np.bincount(codes, values, n + 1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), otherwise)
