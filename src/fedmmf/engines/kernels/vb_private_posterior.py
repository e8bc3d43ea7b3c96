"""The posterior of p_u and mask weights of one user of `vb` under noise, compiled."""

from typing import Any, NamedTuple

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import MAX_TOTAL
from fedmmf.storage.kernel_cache import cached_jit

# Not all of fastmath: kernels test whether numbers are finite.
_jit = cached_jit(nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


class Public(NamedTuple):
    """A broadcast, as a pass reads it; `a` factors are in use, masks have `j` columns."""

    mean: Array  # (n_items, 1 + a)
    covariance: Array  # packed (n_items, (a + 1) (a + 2) / 2)
    weight: Array  # (n_items,)
    design: Array  # (n_items, j)
    prior: Array  # (a + j,)
    precision: Array  # (a + j,)
    tau: float
    unit: float
    clip: float
    middle: float
    unrated_weight: float
    unrated_value: float
    usual_weight: float
    all_precision: Array  # what all items would say, were they unrated (a + j, a + j)
    all_first: Array  # (a + j,)
    row_unit: float  # of errors, per length of a row
    gain: float  # length of each block of totals
    bounds: Array  # of these blocks (4,)
    stage: int
    rank: int
    ranks: bool


@_jit
def _factored(matrix: Array, half: Array) -> bool:
    """Fill L of L L^T = matrix (Cholesky); return whether the matrix is positive definite."""
    for i in range(len(matrix)):
        for f in range(i + 1):
            total = matrix[i, f]
            for g in range(f):
                total -= half[i, g] * half[f, g]
            if f < i:
                half[i, f] = total / half[f, f]
        if not 0.0 < total <= MAX_TOTAL:  # of the diagonal
            return False
        half[i, i] = np.sqrt(total)
    return True


@_jit
def _inverse(matrix: Array) -> bool:
    """Replace a positive definite matrix by its inverse; return whether it is one."""
    n = len(matrix)
    half = np.zeros((n, n))  # L, then L^-1
    if not _factored(matrix, half):
        return False
    for i in range(n):
        half[i, i] = 1.0 / half[i, i]
        for f in range(i):
            total = 0.0
            for g in range(f, i):
                total -= half[i, g] * half[g, f]
            half[i, f] = total * half[i, i]
    matrix[:] = np.dot(half.T, half)
    return True


@_jit
def _add_spread(i: int, weight: float, public: Public, right: Array, spread: Array) -> None:
    """Add what the uncertainty of an item's factors takes off, and adds to the precision."""
    for f in range(len(spread)):
        place = (f + 1) * (f + 2) // 2  # of row f + 1 in the packed matrix
        right[f] -= weight * public.covariance[i, place]
        for g in range(f + 1):
            told = weight * public.covariance[i, place + 1 + g]
            spread[f, g] += told
            spread[g, f] += told * (g < f)


@_jit
def posterior(mine: Array, ratings: Array, public: Public, covariance: Array, mean: Array) -> Any:
    """Fill covariance and mean of p_u and mask weights; return the errors, none if it fails."""
    n, a, j = len(mine), public.mean.shape[1] - 1, public.design.shape[1]
    columns, scaled = np.empty((n, a + j)), np.empty((n, a + j))
    rest, right = np.empty(n), public.precision * public.prior + public.all_first
    spread, part = np.zeros((a, a)), 1.0 - public.unrated_weight
    unrated = public.unrated_weight * public.unrated_value
    for row in range(n):
        i = mine[row]
        weight = 1.0 / (public.tau + public.covariance[i, 0])
        rest[row] = ratings[row] - unrated - part * public.mean[i, 0]
        columns[row, :a] = public.mean[i, 1:]
        columns[row, a:] = public.design[i]
        for f in range(a + j):
            scaled[row, f] = weight * columns[row, f]
            right[f] += scaled[row, f] * rest[row]
        _add_spread(i, part * weight, public, right, spread)
    covariance[:] = public.all_precision + part * np.dot(scaled.T, columns)
    covariance[:a, :a] += spread
    for f in range(a + j):
        covariance[f, f] += public.precision[f]
    if not _inverse(covariance):
        return rest[:0]
    mean[:] = np.dot(covariance, right)
    return rest - part * np.dot(columns, mean)
