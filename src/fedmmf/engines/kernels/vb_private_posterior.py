"""The posterior of p_u and mask weights of one user of `vb` under noise, compiled."""

from typing import Any, NamedTuple

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.kernels.inverse import invert_positive
from fedmmf.storage.kernel_cache import cached_jit

# Not all of fastmath: kernels test whether numbers are finite.
_jit = cached_jit(nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


class Public(NamedTuple):
    """A broadcast, as a pass reads it; `a` factors are in use, masks have `j` columns."""

    mean: Array  # (n_items, 1 + a)
    root: Array  # of the weight of a rating of the item (n_items,)
    columns: Array  # factors and design, each times the root (n_items, a + j) float32
    told: Array  # weighted covariance, packed, less that of the bias (n_items, ...)
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
def _add_spread(told: Array, part: float, right: Array, covariance: Array, a: int) -> None:
    """Add what the uncertainty of items' factors takes off, and adds to the precision.

    Args:
        told: weighted covariances of bias and factors, summed over the rated items, packed.
        part: of a rating that is not an unrated item's too.
        right: first moments of p_u and mask weights.
        covariance: their precision, not inverted yet.
        a: factors in use.
    """
    for f in range(a):
        place = (f + 1) * (f + 2) // 2 - 1  # of row f + 1 in the packed matrix, without entry 0
        right[f] -= part * told[place]
        for g in range(f + 1):
            covariance[f, g] += part * told[place + 1 + g]
            if g < f:
                covariance[g, f] += part * told[place + 1 + g]


@_jit
def posterior(mine: Array, ratings: Array, public: Public, covariance: Array, mean: Array) -> Any:
    """Fill covariance and mean of p_u and mask weights; return the errors, none if it fails.

    Products over ratings are in float32, as those of `vb` without noise are.
    """
    n, part = len(mine), 1.0 - public.unrated_weight
    unrated = public.unrated_weight * public.unrated_value
    columns = np.empty((n, public.columns.shape[1]), np.float32)
    rest, told = np.empty(n, np.float32), np.zeros(public.told.shape[1])
    for row in range(n):
        i = mine[row]
        error = ratings[row] - unrated - part * public.mean[i, 0]
        rest[row] = np.float32(public.root[i] * error)
        for f in range(columns.shape[1]):
            columns[row, f] = public.columns[i, f]
        for f in range(len(told)):
            told[f] += public.told[i, f]
    covariance[:] = np.dot(columns.T, columns)
    right = public.precision * public.prior + public.all_first + np.dot(columns.T, rest)
    for f in range(len(right)):
        for g in range(len(right)):
            covariance[f, g] = public.all_precision[f, g] + part * covariance[f, g]
        covariance[f, f] += public.precision[f]
    _add_spread(told, part, right, covariance, public.mean.shape[1] - 1)
    if not invert_positive(covariance):
        return np.empty(0)
    mean[:] = np.dot(covariance, right)
    expected = np.dot(columns, mean.astype(np.float32))
    errors = np.empty(n)
    for row in range(n):
        errors[row] = (rest[row] - part * expected[row]) / public.root[mine[row]]
    return errors
