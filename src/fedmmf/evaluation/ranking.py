"""Ranking metrics of one user's list."""

import numpy as np

from fedmmf.arrays import Array


def ndcg(relevant: Array, n: int) -> float:
    """Normalised discounted cumulative gain of one ranked list (Jarvelin and Kekalainen 2002).

    Args:
        relevant: gain of each item in the order recommended. (n_items,)
        n: length of the list that counts.
    """
    discounts = 1.0 / np.log2(np.arange(2, n + 2))
    ideal = np.sort(relevant)[::-1][:n]
    best = float(ideal @ discounts[: len(ideal)])
    top = relevant[:n]
    return float(top @ discounts[: len(top)]) / best if best > 0 else 0.0


def recall(relevant: Array, n: int) -> float:
    """Share of the relevant items that are among the first n."""
    total = float(np.count_nonzero(relevant))
    return float(np.count_nonzero(relevant[:n])) / total if total else 0.0
