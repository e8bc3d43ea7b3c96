"""Errors over all pairs of test ratings."""

import numpy as np

from fedmmf.arrays import Array


def rmse(truth: Array, predicted: Array) -> float:
    """Root mean square error over pairs, not over users (section 4.1)."""
    return float(np.sqrt(np.mean(np.square(truth - predicted, dtype=np.float64))))


def mae(truth: Array, predicted: Array) -> float:
    """Mean absolute error over pairs."""
    return float(np.mean(np.abs(truth - predicted), dtype=np.float64))


def scored(truth: Array, predicted: Array) -> dict[str, float]:
    """Return RMSE and MAE by name."""
    return {"rmse": rmse(truth, predicted), "mae": mae(truth, predicted)}
