"""Kernels of `vb`: one fused pass over users, and its parts.

All in one file, because numba's cache notices changes of a kernel's own file alone.
"""

import math
from typing import Any

import numba
import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL
from fedmmf.solvers.vb.ordinal import FAR, MIN_SHARE

# numpy's inverse raises at a pivot of zero, and numba then never frees what the kernel holds. There
# is one only where the matrix is within about n 2^-53 of a singular one.
_REGULAR = 2.0**-44
# Sums of q q^T over n ratings are in float32, off by up to n 2^-24 of their trace: a server could
# choose numbers that make one user's matrix singular, and nobody's sums would be left.
_SINGLE = 2.0**-23

# Not all of fastmath: kernels test whether numbers are finite.
_jit = numba.njit(
    cache=True, nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy"
)


@_jit
def _fill_second(gram: Array, shrunk: Array, basis: Array, second: Array) -> None:
    """Sum of E[q q^T]: sum E[q] E[q]^T + V diag(sum of shrinkages) V^T."""
    turned = np.empty(basis.shape)
    for i in range(basis.shape[0]):
        for f in range(basis.shape[1]):
            turned[i, f] = basis[i, f] * shrunk[f]
    np.dot(turned, basis.T, second)
    for i in range(len(second)):
        for j in range(len(second)):
            second[i, j] += gram[i, j]


@_jit
def _is_regular(matrix: Array, a: Array, n_ratings: int) -> bool:
    """Whether numpy's inverse cannot fail: positive definite by `a`, despite rounded sums."""
    n, doubt, is_finite = len(matrix), 0.0, True
    for i in range(n):
        doubt += n * _REGULAR * matrix[i, i] + n_ratings * _SINGLE * (matrix[i, i] - a[i])
        for j in range(n):
            is_finite &= abs(matrix[i, j]) <= MAX_TOTAL
    return is_finite and doubt < a.min()


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
def _eliminate(matrix: Array, inverse: Array) -> None:
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


@_jit
def _solve(
    second: Array, first: Array, a: Array, prior: Array, tau: float, mean: Array, n_ratings: int
) -> Array:
    """Fill the mean of the posterior; return its covariance, NaN where there is none."""
    matrix, right = second / tau, a * prior + first / tau
    for f in range(len(a)):
        matrix[f, f] += a[f]
    if _is_regular(matrix, a, n_ratings):
        covariance = np.linalg.inv(matrix)
    else:
        covariance = np.empty(matrix.shape).T  # columns first, as numpy's inverse has them
        _eliminate(matrix, covariance)
    np.dot(covariance, right, mean)
    return covariance


@_jit
def _gather(mine: Array, table: Array, q: Array, seen: Array, shrunk: Array) -> None:
    """Copy E[q] of a user's items, and add up E[q] and the shrinkages."""
    n_own = q.shape[1]
    seen[:] = np.float32(0)
    shrunk[:] = np.float32(0)
    for j in range(len(mine)):
        i = mine[j]
        for f in range(n_own):
            q[j, f] = table[i, f]
            seen[f] += table[i, f]
        for f in range(len(shrunk)):
            shrunk[f] += table[i, n_own + f]


@_jit
def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@_jit
def _density(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


@_jit
def _fill_latent(
    levels: Array, mask: Array, q: Array, p: Array, cuts: Array, tau: float, out: Array, sums: Array
) -> float:
    """`ordinal.latent` less the mask, and `ordinal.level_totals`; return the summed variance.

    Without levels, `out` stays as it is.
    """
    spread, total, n_cuts = math.sqrt(tau), 0.0, len(cuts)
    sums[:] = 0.0
    for j in range(len(levels)):
        expected = np.float64(mask[j])
        for f in range(len(p)):
            expected += q[j, f] * p[f]
        low, high, at_low, at_high, below, above = -FAR, FAR, 0.0, 0.0, 0.0, 1.0
        for cut in range(n_cuts):
            x = (cuts[cut] - expected) / spread
            share, slope = _cdf(x), _density(x)
            sums[cut] += levels[j] <= cut
            sums[n_cuts + cut] += share
            sums[2 * n_cuts + cut] += slope / spread
            if cut + 1 == levels[j]:
                low, at_low, below = min(max(x, -FAR), FAR), slope, share
            if cut == levels[j]:
                high, at_high, above = min(max(x, -FAR), FAR), slope, share
        share = max(above - below, MIN_SHARE)
        shift = (at_low - at_high) / share
        variance = 1.0 + (low * at_low - high * at_high) / share - shift * shift
        total += tau * min(max(variance, 0.0), 1.0)
        out[j] = np.float32(expected + spread * shift - mask[j])
    return total


@_jit
def _fill_known(seen: Array, share: float, profile: Array, known: Array) -> None:
    """Fill what `VbParty._known` returns, from the sum of E[q] over the rated items."""
    n_seen = len(known) - len(profile)
    for f in range(n_seen):
        known[f] = seen[f] * share
    for f in range(len(profile)):
        known[n_seen + f] = profile[f]


@_jit
def _fill_prior(known: Array, weights: Array, middle: Array, prior: Array) -> None:
    """Fill the prior mean of p_u."""
    np.dot(known, weights, prior)
    for f in range(len(prior)):
        prior[f] += middle[f]


@_jit
def _fill_line(line: Array, value: float, own: Array) -> None:
    """Fill what `party._unrated_line` returns: `value` in entry 0, less the user's line."""
    for f in range(len(line)):
        line[f] = -np.float64(own[f])
    line[0] += value


@_jit
def _add_unrated(
    second: Array,
    first: Array,
    q: Array,
    mine: Array,
    design: Array,
    line: Array,
    weight: float,
    all_moment: Array,
    all_line: Array,
    gram: Array,
    here: Array,
) -> float:
    """`party._with_unrated`: change the sums that decide p_u; return what the squares gain."""
    k, squares = len(first), float(weight * np.dot(line, np.dot(gram, line)))
    first += weight * np.dot(all_line, line)
    for i in range(k):
        for j in range(k):
            second[i, j] = (1 - weight) * second[i, j] + weight * all_moment[i, j]
    for j in range(len(mine)):
        total = 0.0
        for f in range(len(line)):
            total += design[mine[j], f] * line[f]
        here[j] = weight * total
        squares -= weight * total * total
        for f in range(k):
            first[f] -= weight * total * q[j, f]
    return squares


@_jit
def _error(
    squares: float, mean: Array, covariance: Array, first: Array, second: Array, moment: Array
) -> float:
    """Return the sum of E[(r - q.p)^2]; fill E[p p^T]."""
    error = squares
    for i in range(len(mean)):
        error -= 2 * mean[i] * first[i]
        for j in range(len(mean)):
            moment[i, j] = covariance[i, j] + mean[i] * mean[j]
            error += moment[i, j] * second[i, j]
    return error


@_jit
def _fill_rows(ratings: Array, here: Array, mean: Array, tells_p: bool, e: Array) -> bool:
    """Turn E[p p^T] E[q_i] in `e` into a user's rows; return whether all are small enough."""
    is_small = True
    for j in range(len(ratings)):
        r = np.float32(ratings[j] - here[j])
        for f in range(e.shape[1]):
            gradient = r * np.float32(mean[f]) - e[j, f]
            e[j, f] = np.float32(mean[f]) if tells_p else gradient
            is_small &= abs(e[j, f]) <= MAX_NUMBER
    return is_small


@_jit
def _round(values: Array, limit: Any, scale: Any) -> None:
    """Bound and round to whole steps, if any; scaling by a power of two is exact."""
    if scale == 0:
        return
    for f in range(len(values)):
        values[f] = np.rint(min(max(values[f] * scale, -limit), limit))


@_jit
def _add_rows(rows: Array, items: Array, left_out: Array, table: Array) -> None:
    """Add a user's rows to the sums; a float64 adds whole numbers exactly, up to 53 bits."""
    for j in range(len(items)):
        i = items[j]
        if left_out[i]:
            continue
        for f in range(rows.shape[1]):
            table[i, f] += rows[j, f]


@_jit
def _fill_deviation(out: Array, mean: Array, moment: Array, prior: Array) -> None:
    """Fill E[(p - prior)^2], entry by entry."""
    for i in range(len(mean)):
        out[i] = moment[i, i] - 2 * mean[i] * prior[i] + prior[i] * prior[i]


@_jit
def _fill_totals(
    out: Array, numbers: Array, mean: Array, moment: Array, prior: Array, n: int
) -> int:
    """Fill weight, error, n_users, n_ratings, user_sum, deviation, moment; return their end."""
    k = len(mean)
    out[0], out[1], out[2], out[3] = numbers[0], numbers[1], 1.0, n
    out[4 : 4 + k] = mean
    at = 4 + k
    _fill_deviation(out[at : at + k], mean, moment, prior)
    at += k
    for i in range(k):
        for j in range(i + 1):
            out[at] = n * moment[i, j]
            at += 1
    return at


@_jit
def _fill_users(out: Array, at: int, known: Array, mean: Array, profile: Array) -> int:
    """Fill the sums for the weights of users' prior, and for profiles."""
    e, k = len(known), len(mean)
    for i in range(e):
        for j in range(i + 1):
            out[at] = known[i] * known[j]
            at += 1
    for i in range(e):
        out[at] = 0.0
        for f in range(1, k):
            out[at + f] = known[i] * mean[f]
        at += k
    if len(profile) > 0:
        out[at] = 1.0 if profile.any() else 0.0
        out[at + 1 : at + 1 + len(profile)] = profile
        at += 1 + len(profile)
    return at


@_jit
def _fill_all(out: Array, at: int, mean: Array, moment: Array, line: Array) -> int:
    """Fill E[p p^T] and E[p] times the line of unrated items, where these count."""
    if len(line) == 0:
        return at
    for i in range(len(mean)):
        for j in range(i + 1):
            out[at] = moment[i, j]
            at += 1
    for i in range(len(mean)):
        for f in range(len(line)):
            out[at] = mean[i] * line[f]
            at += 1
    return at


@_jit
def _add_totals(values: Array, matrix: Array, bound: float, scale: float, sums: Array) -> None:
    """Add a user's totals, in steps or as they are; `matrix` is a part that is shrunk together."""
    if scale > 0 and matrix.max() > bound:  # bounded entry by entry it need not stay a covariance
        matrix *= bound / matrix.max()
    for f in range(len(values)):
        if scale > 0:
            sums[f] += np.rint(min(max(values[f], -bound), bound) * scale)
        else:
            sums[f] += values[f]


@_jit
def _are_small(values: Array, most: float) -> bool:
    """Whether all numbers are finite, and at most `most`."""
    is_small = True
    for f in range(len(values)):
        is_small &= abs(values[f]) <= most
    return is_small


@_jit
def user_pass(
    begin: int,
    end: int,
    indptr: Array,
    items: Array,
    masked: Array,
    table: Array,  # E[q], known columns and shrinkages, side by side (n_items, k + j + k) float32
    design: Array,  # where unrated items count (n_items, m) float32
    basis: Array,  # (k + j, k)
    a: Array,  # (k + j,)
    middle: Array,  # (k + j,)
    user_weights: Array,  # (e, k + j)
    all_moment: Array,
    all_line: Array,
    gram: Array,
    tau: float,
    weight: float,
    value: float,
    profiles: Array,  # (n_users, d)
    shown_profiles: Array,  # the same, the mean one where there is none
    lines: Array,  # (n_users, m)
    p: Array,
    is_member: Array,
    left_out: Array,
    limit: Any,
    scale: Any,
    total_bound: float,
    total_scale: float,
    with_rows: bool,
    is_membership_round: bool,
    levels: Array,  # of ordered ratings; empty where they are taken as numbers
    mask: Array,
    cuts: Array,
    sums: Array,
    total_sums: Array,
) -> int:
    """`VbParty.update` for users begin..end; return how many overflowed, who add nothing.

    Without rows p alone moves, and is not a number where it would overflow.
    """
    n_own, k = basis.shape
    m, longest = design.shape[1], 0
    for u in range(begin, end):
        longest = max(longest, indptr[u + 1] - indptr[u])
    q_all, e_all = np.empty((longest, n_own), np.float32), np.empty((longest, k), np.float32)
    here_all, ratings_all = np.zeros(longest), np.empty(longest, np.float32)
    seen, shrunk = np.empty(n_own, np.float32), np.empty(k, np.float32)
    second, moment = np.empty((n_own, n_own)), np.empty((n_own, n_own))
    mean, first, prior, known = (
        np.empty(n_own),
        np.empty(n_own),
        np.empty(n_own),
        np.empty(len(user_weights)),
    )
    line, numbers, totals = np.zeros(m), np.empty(2), np.zeros(len(total_sums))
    ordered, nowhere, n_overflowed = np.zeros(3 * len(cuts)), np.full(n_own, np.nan), 0
    for u in range(begin, end):
        n = indptr[u + 1] - indptr[u]
        if n == 0 and with_rows:
            continue
        own = slice(indptr[u], indptr[u + 1])
        mine, ratings = items[own], ratings_all[:n]
        ratings[:] = masked[own]
        q, e, here = q_all[:n], e_all[:n], here_all[:n]
        _gather(mine, table, q, seen, shrunk)
        variance = _fill_latent(levels[own], mask[own], q, p[u], cuts, tau, ratings, ordered)
        first[:] = np.dot(q.T, ratings)
        squares = np.float64(np.dot(ratings, ratings)) + variance
        share = 1.0 / max(n, 1)  # `VbParty._share`
        _fill_known(seen, share if m > 0 else np.sqrt(share), shown_profiles[u], known)
        _fill_prior(known, user_weights, middle, prior)
        _fill_second(np.dot(q.T, q), shrunk, basis, second)
        numbers[0] = n
        if m > 0:
            _fill_line(line, value, lines[u])
            public = (all_moment, all_line, gram)
            squares += _add_unrated(second, first, q, mine, design, line, weight, *public, here)
            numbers[0] = (1 - weight) * n + weight * len(table)
        covariance = _solve(second, first, a, prior, tau, mean, n)
        is_sound = _are_small(mean, MAX_NUMBER)
        if not with_rows:
            p[u] = mean if is_sound else nowhere
            continue
        numbers[1] = _error(squares, mean, covariance, first, second, moment)
        np.dot(q, ((1 - weight) * moment[:, :k]).astype(np.float32), e)
        is_sound &= _fill_rows(ratings, here, mean, is_membership_round, e)
        at = _fill_totals(totals, numbers, mean[:k], moment, prior, n)
        at = _fill_users(totals, at, known, mean[:k], profiles[u])
        at = _fill_all(totals, at, mean[:k], moment, line)
        totals[at : at + n_own - k] = mean[k:]
        at += n_own - k
        _fill_deviation(totals[at : at + n_own - k], mean[k:], moment[k:, k:], prior[k:])
        totals[len(totals) - len(ordered) :] = ordered
        is_sound &= _are_small(totals, MAX_TOTAL)
        n_overflowed += not is_sound
        if is_sound:
            p[u] = mean
        if is_sound and is_member[u]:
            _round(e.ravel(), limit, scale)
            _add_rows(e, mine, left_out, sums)
            matrix = totals[4 + 2 * k :][: k * (k + 1) // 2]
            _add_totals(totals, matrix, total_bound, total_scale, total_sums)
    return n_overflowed
