"""Inverses of users' matrices, inside kernels.

Numba's cache does not notice changes here: change `vb_pass.py` too.
"""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import MAX_TOTAL
from fedmmf.storage.kernel_cache import cached_jit

_BLOCK, _FEW = 16, 32  # columns that one step of an inverse eliminates; few enough for one step

_jit = cached_jit(nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


@_jit
def _invert_small(matrix: Array) -> bool:
    """Invert a positive matrix in place by Gauss and Jordan; return False at a pivot that is not.

    Numpy's inverse takes longer, and raises, so that numba never frees what the kernel holds.
    """
    n = len(matrix)
    row = np.empty(n)
    for i in range(n):
        if not 0.0 < matrix[i, i] <= MAX_TOTAL:
            return False
        pivot = 1.0 / matrix[i, i]
        for j in range(n):
            row[j] = matrix[i, j] * pivot
        for m in range(n):
            factor = matrix[m, i]
            if m != i:
                for j in range(n):
                    matrix[m, j] -= factor * row[j]
                matrix[m, i] = -factor * pivot
        matrix[i] = row
        matrix[i, i] = pivot
    return True


@_jit
def invert_positive(matrix: Array) -> bool:
    """Invert a positive matrix in place, block by block, since BLAS adds many columns faster."""
    n = len(matrix)
    if n <= _FEW:
        return _invert_small(matrix)
    product = np.empty((n, n))
    for begin in range(0, n, _BLOCK):
        end = min(begin + _BLOCK, n)
        pivot = matrix[begin:end, begin:end].copy()
        if not _invert_small(pivot):
            return False
        columns = matrix[:, begin:end].copy()
        rows = np.dot(pivot, matrix[begin:end])
        np.dot(columns, rows, product)
        matrix -= product
        matrix[:, begin:end] = -np.dot(columns, pivot)
        matrix[begin:end] = rows
        matrix[begin:end, begin:end] = pivot
    return True


@_jit
def _pivot(matrix: Array, inverse: Array, i: int) -> bool:
    """Swap the largest entry of a column up and scale it to 1; return whether there is one."""
    n, best = len(matrix), i
    for j in range(i + 1, n):
        if abs(matrix[j, i]) > abs(matrix[best, i]):
            best = j
    pivot = matrix[best, i]
    if not 0.0 < abs(pivot) <= MAX_TOTAL:
        return False
    for f in range(n):
        row, other = matrix[best, f] / pivot, inverse[best, f] / pivot
        matrix[best, f], inverse[best, f] = matrix[i, f], inverse[i, f]
        matrix[i, f], inverse[i, f] = row, other
    return True


@_jit
def eliminate(matrix: Array, inverse: Array) -> None:
    """Invert by Gauss and Jordan's elimination with pivots; NaN where there is no inverse."""
    inverse[:] = np.eye(len(matrix))
    for i in range(len(matrix)):
        if not _pivot(matrix, inverse, i):
            inverse[:] = np.nan
            return
        for j in range(len(matrix)):
            factor = matrix[j, i]
            if j != i:
                matrix[j] -= factor * matrix[i]
                inverse[j] -= factor * inverse[i]
