"""Recommended lists from predictions."""

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError
from fedmmf.model.learned import Learned


def ranked(scores: Array, rated: Array) -> Array:
    """Items that are not rated, best first; ties (many, at the scale's top) by their code."""
    is_open = np.ones(len(scores), bool)
    is_open[rated] = False
    candidates = np.flatnonzero(is_open)
    return candidates[np.argsort(-scores[candidates], kind="stable")]


def best_items(learned: Learned, scores: Array, rated: Array, n: int) -> pl.DataFrame:
    """The n best items that are not rated, with what is known about them."""
    if n < 1:
        raise SettingsError(f"n must be at least 1; got {n}")
    top = ranked(scores, rated)[:n]
    columns: dict[str, Array] = {"item_id": learned.item_ids[top]}
    if learned.item_titles is not None:
        columns["title"] = learned.item_titles[top]
    return pl.DataFrame(columns | {"prediction": scores[top]})
