"""Public item features and the views that masks, solvers and the server take of them.

The masks `fm` and `nn` see interactions of features in addition.

A user's own ratings are too few to learn a factorization machine or a network from: at strengths
that predict well, all that bends shrinks to nothing (errata 47). So the first layer is public and
the same for everybody, and what is private are the weights of its columns: products of features
along fixed directions, which are a factorization machine whose embeddings are given, or hidden
units with given weights (Rahimi and Recht 2008, Weighted sums of random kitchen sinks). Weights of
columns that are scaled by s are penalised by the mask's strength times 1 / s^2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

import numpy as np

from fedmmf.arrays import Array

N_COLUMNS = 64
MAX_JOINT = 128  # columns of a mask that is estimated with the factors, and an intercept
PRODUCT_SCALE = 0.25  # so that a product's weight costs 16 times what a feature's weight costs
HIDDEN_SCALE = 0.6  # likewise nearly 3 times
HIDDEN_GAIN = 4.0  # of what goes into a hidden unit: with less, units are lines
_SPREAD = np.sqrt(3.0)  # directions are even on both sides of 0, with a variance of 1


@dataclass(frozen=True, eq=False)
class FeatureViews:
    """Public item features, with the views that masks, solvers and the server take of them.

    All parties of a process share one object, because each view is computed once.

    Attributes:
        content: features of every item. (n_items, d)
        mask: name of the mask family.
        sees_features: whether masks of that family depend on features.
        statistics: further columns that masks alone see. (n_items, 2 or 0)
    """

    content: Array
    mask: str
    sees_features: bool
    statistics: Array = field(default_factory=lambda: np.zeros((0, 0)))

    @cached_property
    def expanded(self) -> Array:
        """Content and, if the family has any, interactions. (n_items, d')."""
        return expand(self.mask, self.content)

    @cached_property
    def seen(self) -> Array:
        """All that masks see: expanded content and statistics. (n_items, d'')."""
        if self.statistics.shape[1] == 0:
            return self.expanded
        return np.hstack((self.expanded, self.statistics))

    @cached_property
    def design(self) -> Array:
        """Columns in which masks are linear. (n_items, n_columns)."""
        return design_of(self.expanded, sees_features=self.sees_features)

    @property
    def n_columns(self) -> int:
        """Number of columns in which masks are linear."""
        return 1 + int(self.expanded.shape[1]) * self.sees_features


def design_of(features: Array, *, sees_features: bool) -> Array:
    """Columns in which masks are linear: 1 and, if they see features, those. (n_items, m)."""
    ones = np.ones((len(features), 1))
    return np.hstack((ones, features)) if sees_features else ones


def expand(mask: str, content: Array) -> Array:
    """Columns that masks of a family see: features and, if any, interactions. (n_items, d').

    Args:
        mask: name of the family.
        content: public item features. (n_items, d)
    """
    if mask not in _KINDS or content.shape[1] == 0:
        return content
    return np.hstack((content, _KINDS[mask](np.asarray(content, np.float64))))


def _products(x: Array) -> Array:
    """Products ((v.x)^2 - v^2.x^2) / 2: sums over pairs v_i v_j x_i x_j (Rendle 2010). (n, 64)."""
    v = _SPREAD * _even("fm", N_COLUMNS, x.shape[1])
    pairs = 0.5 * (np.square(x @ v.T) - np.square(x) @ np.square(v).T)
    return np.asarray(PRODUCT_SCALE * pairs)


def _hidden_units(x: Array) -> Array:
    """Hidden units tanh(w.x + c). (n, 64)."""
    w, c = _SPREAD * _even("nn", N_COLUMNS, x.shape[1]), _even("nn offset", N_COLUMNS, 1)
    return np.asarray(HIDDEN_SCALE * np.tanh(HIDDEN_GAIN * (x @ w.T + c.T)))


_KINDS: dict[str, Callable[[Array], Array]] = {"fm": _products, "nn": _hidden_units}


def _even(name: str, n_rows: int, n_columns: int) -> Array:
    """Pseudorandom numbers in [-1, 1), the same for everybody. (n_rows, n_columns)."""
    drawn = [
        int.from_bytes(sha256(f"{name} {row} {column}".encode()).digest()[:6], "big")
        for row in range(n_rows)
        for column in range(n_columns)
    ]
    return np.array(drawn, np.float64).reshape(n_rows, n_columns) / 2.0**47 - 1.0
