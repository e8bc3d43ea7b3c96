"""`vb` for every party at once, in fused kernels.

The first pass goes over users: it adds up the moments of the items that a user has rated, and turns
them into the posterior of p_u. The second goes over items and adds up what their raters would send.
Memory traffic decides the time: each pass reads one packed matrix per rating.
"""

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CrowdInput, CrowdUpdate, require_finite
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.orders import Raters, orders_of
from fedmmf.solvers import vb
from fedmmf.solvers.contract import Public

_jit = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")


@_jit
def _add_moments(
    others: Array, ratings: Array, positions: Array, rows: Array, k: int, out: Array
) -> None:
    """Add (r mean, moment) of each other side to `out`; `rows` are (mean, moment)."""
    for j in range(len(others)):
        row = rows[others[j]]
        rating = ratings[positions[j]]
        for f in range(k):
            out[f] += rating * row[f]
        for f in range(k, len(row)):
            out[f] += row[f]


@_jit
def _cholesky(matrix: Array) -> None:
    """Replace the lower triangle of a positive definite matrix by its Cholesky factor."""
    k = len(matrix)
    for i in range(k):
        for j in range(i + 1):
            total = matrix[i, j]
            for f in range(j):
                total -= matrix[i, f] * matrix[j, f]
            matrix[i, j] = np.sqrt(total) if i == j else total / matrix[j, j]


@_jit
def _invert_factor(factor: Array, inverse: Array) -> None:
    """Inverse of a lower triangular matrix, transposed: all inner loops then run along rows."""
    k = len(factor)
    for j in range(k):
        inverse[j, j] = 1.0 / factor[j, j]
        for i in range(j + 1, k):
            total = 0.0
            for f in range(j, i):
                total -= factor[i, f] * inverse[j, f]
            inverse[j, i] = total / factor[i, i]


@_jit
def _fill_precision(sums: Array, precision: Array, tau: float, matrix: Array) -> None:
    """Lower triangle of diag(precision) + sum of moments / tau."""
    at = len(precision)
    for i in range(len(precision)):
        for j in range(i + 1):
            matrix[i, j] = sums[at] / tau
            at += 1
        matrix[i, i] += precision[i]


@_jit
def _fill_row(inverse: Array, right: Array, row: Array) -> None:
    """(mean, moment) from the transposed inverse of the precision's Cholesky factor."""
    k = len(right)
    half, mean = np.zeros(k), np.zeros(k)
    for j in range(k):
        for i in range(j, k):
            half[i] += inverse[j, i] * right[j]
    for j in range(k):
        for i in range(j, k):
            mean[j] += inverse[j, i] * half[i]
    at = k
    for i in range(k):
        row[i] = mean[i]
        for j in range(i + 1):
            total = mean[i] * mean[j]
            for f in range(i, k):
                total += inverse[i, f] * inverse[j, f]
            row[at] = total
            at += 1


@_jit
def _expected_squares(masked: Array, sums: Array, row: Array, k: int) -> float:
    """`vb.expected_squares` of one party."""
    total = 0.0
    for j in range(len(masked)):
        total += masked[j] * masked[j]
    at = k
    for i in range(k):
        total -= 2.0 * row[i] * sums[i]
        for j in range(i + 1):
            total += (1.0 if i == j else 2.0) * row[at] * sums[at]
            at += 1
    return total


@_jit
def _posterior(
    sums: Array, precision: Array, prior: Array, tau: float, work: Array, row: Array
) -> None:
    """`vb.posterior_rows` of one row; `work` is (2, k, k)."""
    matrix, inverse = work[0], work[1]
    _fill_precision(sums, precision, tau, matrix)
    _cholesky(matrix)
    _invert_factor(matrix, inverse)
    _fill_row(inverse, precision * prior + sums[: len(precision)] / tau, row)


@_jit
def _posterior_pass(
    begin: int, end: int, sums: Array, precision: Array, prior: Array, tau: float, rows: Array
) -> None:
    """`vb.posterior_rows` of rows begin..end."""
    work = np.zeros((2, len(precision), len(precision)))
    for i in range(begin, end):
        _posterior(sums[i], precision, prior[i], tau, work, rows[i])


def posterior_rows(sums: Array, precision: Array, prior_mean: Array, tau: float) -> Array:
    """`vb.posterior_rows` on all threads."""
    rows = np.empty(sums.shape)
    sums = np.ascontiguousarray(sums, np.float32)
    parts = threads.ranges(np.arange(len(sums) + 1), threads.n_threads())
    arrays = (sums, precision, prior_mean, tau, rows)
    threads.run(lambda begin, end: _posterior_pass(begin, end, *arrays), parts)
    return rows


@_jit
def _user_pass(
    begin: int,
    end: int,
    indptr: Array,
    items: Array,
    masked: Array,
    item_rows: Array,
    precision: Array,
    prior: Array,
    tau: float,
    user_rows: Array,
    residuals: Array,
) -> None:
    """`vb.VbParty.update` for users begin..end: rows, and each one's expected squared error."""
    k = len(precision)
    work = np.zeros((2, k, k))
    for u in range(begin, end):
        a, b = indptr[u], indptr[u + 1]
        sums = np.zeros(item_rows.shape[1], np.float32)
        _add_moments(items[a:b], masked, np.arange(a, b), item_rows, k, sums)
        _posterior(sums, precision, prior, tau, work, user_rows[u])
        residuals[u] = _expected_squares(masked[a:b], sums, user_rows[u], k)


@_jit
def _item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    masked: Array,
    user_rows: Array,
    k: int,
    out: Array,
) -> None:
    """Sum what the raters of items begin..end send."""
    for i in range(begin, end):
        a, b = indptr[i], indptr[i + 1]
        out[i] = np.float32(0)
        _add_moments(users[a:b], masked, order[a:b], user_rows, k, out[i])


@_jit
def _fixed(value: Any, bound: float, scale: float) -> Any:
    """Nearest number of fixed point."""
    return np.rint(min(max(value, -bound), bound) * scale) / scale


@_jit
def _rounding_pass(
    begin: int, end: int, rows: Array, k: int, bound: float, scale: float, out: Array
) -> None:
    """Rows of users begin..end with their moments in fixed point; float32 holds those exactly."""
    for u in range(begin, end):
        for f in range(k):
            out[u, f] = rows[u, f]
        for f in range(k, rows.shape[1]):
            out[u, f] = _fixed(rows[u, f], bound, scale)


@_jit
def _fixed_item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    masked: Array,
    rounded_rows: Array,
    k: int,
    bound: float,
    scale: float,
    steps: Array,
) -> None:
    """`_item_pass` as a secure sum gives it: fixed-point rows, added exactly.

    All sums are whole multiples of 1/scale with at most 53 bits, so that a float64 adds them
    without rounding.
    """
    total = np.zeros(steps.shape[1])
    for i in range(begin, end):
        total[:] = 0.0
        for j in range(indptr[i], indptr[i + 1]):
            row, rating = rounded_rows[users[j]], masked[order[j]]
            for f in range(k):
                total[f] += _fixed(rating * row[f], bound, scale)
            for f in range(k, len(row)):
                total[f] += row[f]
        for f in range(len(total)):
            steps[i, f] = np.int64(total[f] * scale)


class VbCrowd:
    """The party's half of every user."""

    def __init__(self, given: CrowdInput) -> None:
        self._orders, k = orders_of(given), given.rank
        self._masked = threads.frozen(given.masked_ratings, np.float32)
        self._cohorts = [
            (cohort, self._orders.raters.of_cohort(cohort)) for cohort in given.cohorts
        ]
        self._rows = np.zeros((self._orders.n_users, vb.VB.width(k)), np.float32)
        self._residuals = np.zeros(self._orders.n_users)
        self._active = given.lists.lengths > 0  # (n_users,) those who take part
        self._rank = k
        self.user_factors = vb.prior_mean(k).astype(np.float32)

    @property
    def user_factors(self) -> Array:
        """Posterior means of p_u of everybody. (n_users, k)."""
        return self._rows[:, : self._rank]

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._rows[:, : self._rank] = value

    def update(self, public: Public, t: int) -> CrowdUpdate:
        """Both passes of round t."""
        self._posteriors(public)
        rows = [self._sum(cohort, raters, public) for cohort, raters in self._cohorts]
        return CrowdUpdate(rows, self._totals(public.rank))

    def settle(self, public: Public, users: Array) -> None:
        """Let some users find p_u for finished item factors: the same posterior."""
        before = self._rows.copy()
        self._posteriors(public)
        is_other = np.ones(len(before), bool)
        is_other[users] = False
        self._rows[is_other] = before[is_other]

    def _posteriors(self, public: Public) -> None:
        """The first pass."""
        hyper, orders, k = vb.Hyper.of(public), self._orders, public.rank
        rows = threads.frozen(public.item_rows, np.float32)
        arrays = (orders.by_user, orders.items, self._masked, rows)
        prior = (hyper.precision, vb.prior_mean(k), hyper.tau)
        outputs = (self._rows, self._residuals)
        try:
            threads.run(lambda a, b: _user_pass(a, b, *arrays, *prior, *outputs), orders.user_parts)
        except ZeroDivisionError:
            raise np.linalg.LinAlgError("a user's precision matrix is singular") from None

    def _sum(self, cohort: Cohort, raters: Raters, public: Public) -> Array:
        """The second pass, over one cohort. (n_items, width)."""
        arrays = (raters.by_item, raters.order, raters.users, self._masked)
        rows, k = self._shrunk_rows(cohort.clip, public.rank), public.rank
        if not cohort.is_fixed:
            sums = np.empty_like(public.item_rows)
            threads.run(lambda a, b: _item_pass(a, b, *arrays, rows, k, sums), raters.parts)
            return sums
        require_finite(rows)
        steps = np.empty(public.item_rows.shape, np.int64)
        fixed, rounded = (k, cohort.bound, cohort.scale), np.empty_like(rows)
        everybody = self._orders.user_parts
        threads.run(lambda a, b: _rounding_pass(a, b, rows, *fixed, rounded), everybody)
        rest: tuple[Any, ...] = (*arrays, rounded, *fixed, steps)
        threads.run(lambda a, b: _fixed_item_pass(a, b, *rest), raters.parts)
        return steps

    def _shrunk_rows(self, clip: float, k: int) -> Array:
        """Rows of every user, whose updates together are at most `clip` long. (n_users, width)."""
        if np.isinf(clip):
            return self._rows
        squares = np.concatenate(([0.0], np.cumsum(np.square(self._masked, dtype=np.float64))))
        begin, end = self._orders.by_user[:-1], self._orders.by_user[1:]
        energy = np.square(self._rows, dtype=np.float64)
        mean, moment = energy[:, :k].sum(axis=1), energy[:, k:].sum(axis=1)
        lengths = np.sqrt((squares[end] - squares[begin]) * mean + (end - begin) * moment)
        weights = np.minimum(1.0, clip / np.maximum(lengths, 1e-300))
        return np.asarray(self._rows * weights[:, np.newaxis], np.float32)

    def _totals(self, k: int) -> Array:
        """Ratings, expected squared error, 1, and the diagonal of E[p p^T], of every user."""
        squares = self._rows[:, vb.diagonal(k)]
        n_ratings = np.diff(self._orders.by_user)
        totals = np.column_stack((n_ratings, self._residuals, self._active, squares))
        totals[~self._active] = 0.0
        return totals

    def state(self) -> dict[str, Array]:
        """The rows; the next round needs nothing else."""
        return {"value": self._rows.copy()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self._rows = state["value"].copy()
