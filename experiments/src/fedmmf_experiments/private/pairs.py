"""Ratings as arrays, weights of a user's ratings, and the noisy counts that weights follow."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf_experiments.private.noise import add_noise


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rated pairs, sorted by user, in quarters of the scale's span around its middle."""

    users: Array  # (n,)
    items: Array  # (n,)
    values: Array  # (n,)
    n_users: int
    n_items: int

    @classmethod
    def of(cls, ratings: Ratings) -> "Pairs":
        """Take the pairs of a set of ratings."""
        order = np.argsort(ratings.user_codes, kind="stable")
        middle, unit = ratings.scale.min + ratings.scale.span / 2, ratings.scale.span / 4
        values = (ratings.values[order].astype(np.float64) - middle) / unit
        users, items = ratings.user_codes[order], ratings.item_codes[order]
        return cls(users, items, values, ratings.n_users, ratings.n_items)

    @cached_property
    def sizes(self) -> Array:
        """Number of ratings of each user. (n_users,)."""
        return np.bincount(self.users, minlength=self.n_users)

    def by_user(self, entries: Array) -> Any:
        """Sparse matrix with one entry per pair. (n_users, n_items)."""
        starts = np.concatenate(([0], np.cumsum(self.sizes)))
        return sparse.csr_array((entries, self.items, starts), (self.n_users, self.n_items))

    def user_sums(self, entries: Array) -> Array:
        """Sum entries of pairs over each user's. (n_users,)."""
        return np.bincount(self.users, entries, self.n_users)


def noisy_counts(pairs: Pairs, std: float, stream: np.random.Generator) -> Array:
    """How often items are rated, where each user counts 1 / sqrt(K_u) at K_u items. (n_items,).

    A user's part has length 1. Counts below the noise are lifted to it.
    """
    shares = 1.0 / np.sqrt(pairs.sizes[pairs.users])
    counts = np.bincount(pairs.items, shares, pairs.n_items)
    return np.maximum(add_noise(counts, std, stream), max(2.0 * std, 1.0))


def adaptive_weights(pairs: Pairs, counts: Array, gamma: float) -> Array:
    """Weights in proportion to count^-gamma, whose squares add up to 1 for each user. (n,).

    Krichene et al. 2023 (Multi-task differential privacy under distribution skew): rare items get
    more of a user's budget.
    """
    raw = counts[pairs.items] ** -gamma
    return np.asarray(raw / np.sqrt(pairs.user_sums(raw**2))[pairs.users])
