"""Kernels of `vb`: one fused pass over users, and its parts.

All but the inverse in one file: numba's cache notices changes of a kernel's own file alone.
"""

import math

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.kernels.inverse import eliminate, invert_positive
from fedmmf.engines.kernels.vb_arguments import (
    PassPublic,
    PassRatings,
    PassRoom,
    PassSending,
    PassSums,
    PassUsers,
    UserTotals,
)
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL
from fedmmf.solvers.vb.ordinal import FAR, MIN_SHARE
from fedmmf.storage.kernel_cache import cached_jit

# Not all of fastmath: kernels test whether numbers are finite.
_jit = cached_jit(nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


@_jit
def _fill_second(gram: Array, second: Array) -> None:
    """Copy the sum of E[q q^T] to float64."""
    for i in range(len(second)):
        for j in range(len(second)):
            second[i, j] = gram[i, j]


@_jit
def _precision(room: PassRoom, broadcast: PassPublic) -> Array:
    """Return the precision of the posterior of p_u."""
    matrix = room.second / broadcast.tau
    for f in range(len(matrix)):
        matrix[f, f] += broadcast.user_precision[f]
    return matrix


@_jit
def _solve(room: PassRoom, broadcast: PassPublic) -> Array:
    """Fill the mean of the posterior; return its covariance, NaN where there is none."""
    right = broadcast.user_precision * room.prior + room.first / broadcast.tau
    covariance = _precision(room, broadcast)
    if not invert_positive(covariance):  # rounded sums of hostile numbers need not be positive
        eliminate(_precision(room, broadcast), covariance)
    np.dot(covariance, right, room.mean)
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
def _append_spread(q: Array, shrunk: Array, basis: Array) -> None:
    """Write V^T, each row times the root of its shrinkage: q^T q then is the sum of E[q q^T]."""
    for f in range(len(shrunk)):
        root = np.sqrt(shrunk[f])
        for i in range(len(basis)):
            q[f, i] = basis[i, f] * root


@_jit
def _cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@_jit
def _density(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


@_jit
def _fill_latent(
    levels: Array, mask: Array, p: Array, broadcast: PassPublic, room: PassRoom, n: int
) -> float:
    """`ordinal.latent` less the mask, and `ordinal.level_totals`; return the summed variance.

    Without levels, the ratings stay as they are.
    """
    q, out, sums, cuts, tau = (
        room.q[:n],
        room.ratings[:n],
        room.ordered,
        broadcast.cuts,
        broadcast.tau,
    )
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
def _add_unrated(mine: Array, broadcast: PassPublic, room: PassRoom) -> float:
    """`party._with_unrated`: change the sums that decide p_u; return what the squares gain."""
    first, second, line, weight = room.first, room.second, room.line, broadcast.weight
    q, here, design = room.q, room.here, broadcast.design
    k, squares = len(first), float(weight * np.dot(line, np.dot(broadcast.gram, line)))
    first += weight * np.dot(broadcast.all_line, line)
    for i in range(k):
        for j in range(k):
            second[i, j] = (1 - weight) * second[i, j] + weight * broadcast.all_moment[i, j]
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
def _error(squares: float, covariance: Array, room: PassRoom) -> float:
    """Return the sum of E[(r - q.p)^2]; fill E[p p^T]."""
    mean, first, second, moment = room.mean, room.first, room.second, room.moment
    error = squares
    for i in range(len(mean)):
        error -= 2 * mean[i] * first[i]
        for j in range(len(mean)):
            moment[i, j] = covariance[i, j] + mean[i] * mean[j]
            error += moment[i, j] * second[i, j]
    return error


@_jit
def _fill_rows(room: PassRoom, n: int, tells_p: bool) -> bool:
    """Turn E[p p^T] E[q_i] in `e` into a user's rows; return whether all are small enough."""
    ratings, here, mean, e = room.ratings[:n], room.here[:n], room.mean, room.e[:n]
    is_small = True
    for j in range(len(ratings)):
        r = np.float32(ratings[j] - here[j])
        for f in range(e.shape[1]):
            gradient = r * np.float32(mean[f]) - e[j, f]
            e[j, f] = np.float32(mean[f]) if tells_p else gradient
            is_small &= abs(e[j, f]) <= MAX_NUMBER
    return is_small


@_jit
def _add_rows(rows: Array, items: Array, sending: PassSending, table: Array) -> None:
    """Bound, round and add a user's rows; a float64 adds whole numbers exactly, up to 53 bits.

    Without steps they are not rounded. Scaling by a power of two is exact.
    """
    limit, scale = sending.row_limit, sending.row_scale
    for j in range(len(items)):
        i = items[j]
        if sending.left_out[i]:
            continue
        if scale == 0:
            for f in range(rows.shape[1]):
                table[i, f] += rows[j, f]
        else:
            for f in range(rows.shape[1]):
                table[i, f] += np.rint(min(max(rows[j, f] * scale, -limit), limit))


@_jit
def _fill_deviation(out: Array, mean: Array, moment: Array, prior: Array) -> None:
    """Fill E[(p - prior)^2], entry by entry."""
    for i in range(len(out)):
        out[i] = moment[i, i] - 2 * mean[i] * prior[i] + prior[i] * prior[i]


@_jit
def _fill_packed(out: Array, matrix: Array, k: int, factor: float) -> None:
    """Fill the lower triangle of k rows of a matrix, times a factor."""
    at = 0
    for i in range(k):
        for j in range(i + 1):
            out[at] = factor * matrix[i, j]
            at += 1


@_jit
def _fill_gram(out: Array, values: Array) -> None:
    """Fill the lower triangle of the products of a vector with itself."""
    at = 0
    for i in range(len(values)):
        for j in range(i + 1):
            out[at] = values[i] * values[j]
            at += 1


@_jit
def _fill_outer(out: Array, left: Array, right: Array) -> None:
    """Fill the products of two vectors, row by row."""
    for i in range(len(left)):
        for j in range(len(right)):
            out[i * len(right) + j] = left[i] * right[j]


@_jit
def _fill_totals(parts: UserTotals, room: PassRoom, profile: Array) -> None:
    """Fill all totals of a user but weight, error and the number of ratings."""
    k, mean, moment, prior = len(parts.user_sum), room.mean, room.moment, room.prior
    parts.n_users[0] = 1.0
    parts.user_sum[:] = mean[:k]
    _fill_deviation(parts.deviation, mean, moment, prior)
    _fill_packed(parts.moment, moment, k, parts.n_ratings[0])
    if len(room.known) > 0:
        _fill_gram(parts.user_gram, room.known)
        _fill_outer(parts.user_moments, room.known, mean[:k])
        parts.user_moments[::k] = 0.0  # the coordinate that is always 1
    if len(profile) > 0:
        parts.n_profiled[0] = 1.0 if profile.any() else 0.0
        parts.profile_sum[:] = profile
    if len(room.line) > 0:
        _fill_packed(parts.all_moment, moment, k, 1.0)
        _fill_outer(parts.all_line, mean[:k], room.line)
    parts.joint_sum[:] = mean[k:]
    _fill_deviation(parts.joint_deviation, mean[k:], moment[k:, k:], prior[k:])
    parts.levels[:] = room.ordered


@_jit
def _add_totals(sums: PassSums, bound: float, scale: float) -> None:
    """Add a user's totals, in steps or as they are."""
    moment, values = sums.parts.moment, sums.own
    if scale > 0 and moment.max() > bound:  # bounded entry by entry it need not stay a covariance
        moment *= bound / moment.max()
    for f in range(len(values)):
        if scale > 0:
            sums.totals[f] += np.rint(min(max(values[f], -bound), bound) * scale)
        else:
            sums.totals[f] += values[f]


@_jit
def _are_small(values: Array, most: float) -> bool:
    """Whether all numbers are finite, and at most `most`."""
    is_small = True
    for f in range(len(values)):
        is_small &= abs(values[f]) <= most
    return is_small


@_jit
def _made_room(longest: int, broadcast: PassPublic) -> PassRoom:
    """Make room for users of at most so many ratings."""
    n_own, k = broadcast.basis.shape
    return PassRoom(
        q=np.empty((longest + k, n_own), np.float32),
        e=np.empty((longest, k), np.float32),
        here=np.zeros(longest),
        ratings=np.empty(longest, np.float32),
        seen=np.empty(n_own, np.float32),
        shrunk=np.empty(k, np.float32),
        second=np.empty((n_own, n_own)),
        moment=np.empty((n_own, n_own)),
        mean=np.empty(n_own),
        first=np.empty(n_own),
        prior=np.empty(n_own),
        known=np.empty(len(broadcast.user_weights)),
        line=np.zeros(broadcast.design.shape[1]),
        ordered=np.zeros(3 * len(broadcast.cuts)),
    )


@_jit
def _gather_sums(
    u: int, ratings: PassRatings, broadcast: PassPublic, users: PassUsers, room: PassRoom
) -> float:
    """Fill the sums over a user's ratings that decide p_u; return the sum of squares."""
    own = slice(ratings.indptr[u], ratings.indptr[u + 1])
    n, mine, ranks = own.stop - own.start, ratings.items[own], len(room.line) > 0
    q, values = room.q[:n], room.ratings[:n]
    values[:] = ratings.masked[own]
    _gather(mine, broadcast.table, q, room.seen, room.shrunk)
    variance = _fill_latent(ratings.levels[own], ratings.mask[own], users.p[u], broadcast, room, n)
    room.first[:] = np.dot(q.T, values)
    squares: float = np.float64(np.dot(values, values)) + variance
    share = 1.0 / max(n, 1)  # `VbParty._share`
    _fill_known(room.seen, share if ranks else np.sqrt(share), users.shown_profiles[u], room.known)
    _fill_prior(room.known, broadcast.user_weights, broadcast.user_middle, room.prior)
    both = room.q[: n + len(room.shrunk)]
    _append_spread(both[n:], room.shrunk, broadcast.basis)
    _fill_second(np.dot(both.T, both), room.second)
    if ranks:
        _fill_line(room.line, broadcast.value, users.lines[u])
        squares += _add_unrated(mine, broadcast, room)
    return squares


@_jit
def user_pass(
    begin: int,
    end: int,
    ratings: PassRatings,
    broadcast: PassPublic,
    users: PassUsers,
    sending: PassSending,
    sums: PassSums,
) -> int:
    """`VbParty.update` for users begin..end; return how many overflowed, who add nothing.

    Without rows p alone moves, and is not a number where it would overflow.
    """
    longest, n_overflowed, k = 0, 0, broadcast.basis.shape[1]
    for u in range(begin, end):
        longest = max(longest, ratings.indptr[u + 1] - ratings.indptr[u])
    room, parts = _made_room(longest, broadcast), sums.parts
    nowhere = np.full(len(room.mean), np.nan)
    for u in range(begin, end):
        n = ratings.indptr[u + 1] - ratings.indptr[u]
        if n == 0 and sending.with_rows:
            continue
        squares = _gather_sums(u, ratings, broadcast, users, room)
        covariance = _solve(room, broadcast)
        is_sound = _are_small(room.mean, MAX_NUMBER)
        if not sending.with_rows:
            users.p[u] = room.mean if is_sound else nowhere
            continue
        mine, q, e = (
            ratings.items[ratings.indptr[u] : ratings.indptr[u + 1]],
            room.q[:n],
            room.e[:n],
        )
        parts.weight[0], parts.n_ratings[0] = n, n
        if len(room.line) > 0:
            parts.weight[0] = (1 - broadcast.weight) * n + broadcast.weight * len(broadcast.table)
        parts.error[0] = _error(squares, covariance, room)
        np.dot(q, ((1 - broadcast.weight) * room.moment[:, :k]).astype(np.float32), e)
        is_sound &= _fill_rows(room, n, sending.is_membership_round)
        _fill_totals(parts, room, users.profiles[u])
        is_sound &= _are_small(sums.own, MAX_TOTAL)
        n_overflowed += not is_sound
        if is_sound:
            users.p[u] = room.mean
        if is_sound and users.is_member[u]:
            _add_rows(e, mine, sending, sums.rows)
            _add_totals(sums, sending.total_bound, sending.total_scale)
    return n_overflowed
