"""Kernels of `vb` for a card, in Triton: the pass over users, and sums over an item's raters.

A program takes some users, one after the other, of about as many ratings as every other program
takes. It gathers E[q_i] of a user's items in blocks, adds E[q] E[q]^T up in registers, inverts the
precision of p_u there, goes through the items once more, and writes each gradient to where the
item's other gradients are. A second kernel adds these up, in pieces of the most rated items.

Factors are pairs of float16, high and low parts, whose products tensor cores add up in float32:
that keeps 22 bits. The columns of a tile are E[q_i], what is known of the item, the masked rating
and 1, so that one product gives all sums over a user's ratings. The precision is inverted by the
sweep operator (Goodnight 1979, A tutorial on the SWEEP operator).
"""

from typing import Any

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

MAX_NUMBER = tl.constexpr(2.0**100)  # as `solvers.contract` has it
MAX_FACTOR = tl.constexpr(2.0**50)  # of products of two in float32, as `vb_fused` has it


@triton.jit
def _split(x):
    """Split a float32 into high and low float16 parts."""
    high = x.to(tl.float16)
    return high, (x - high.to(tl.float32)).to(tl.float16)


@triton.jit
def _rounded(x, limit, scale, NEAR: tl.constexpr):
    """Round to whole steps within bounds; halves to even, as IEEE 754 rounds; 0 for NaN."""
    x = x * scale
    x = tl.where(x == x, x, 0.0)  # a scale beyond float32 makes NaN of 0
    x = tl.minimum(tl.maximum(x, -limit), limit)
    near = (x + 12582912.0) - 12582912.0  # 1.5 * 2^23: the sum has no bits for a fraction
    if NEAR:
        return near
    below = tl.floor(x)
    is_odd = below - 2.0 * tl.floor(0.5 * below) > 0.5
    is_up = (x - below > 0.5) | ((x - below == 0.5) & is_odd)
    return tl.where(tl.abs(x) < 4194304.0, near, below + is_up.to(tl.float32))


@triton.jit
def _reciprocal(x, FAST: tl.constexpr):
    """1 / x; to float32's last bits by the card's own instruction."""
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def _tile(
    items, ratings, table, numbers, at, inside,
    n: tl.constexpr, K: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Load a block of ratings: items, and both parts of their rows. (BN,), (BN, K), (BN, K)."""
    item = tl.load(items + at, mask=inside, other=0)
    rating = tl.load(ratings + at, mask=inside, other=0.0) * tl.load(numbers + 4)
    rating_high, rating_low = _split(rating)
    column = tl.arange(0, K)[None, :]
    row = item.to(tl.int64) if WIDE else item
    place = table + row[:, None] * (2 * K) + column
    high = tl.load(place, mask=inside[:, None], other=0.0)
    low = tl.load(place + K, mask=inside[:, None], other=0.0)
    high = tl.where(column == n, rating_high[:, None], high)
    low = tl.where(column == n, rating_low[:, None], low)
    return item, high, low


@triton.jit
def _add_gram(
    gram, shrunk, items, ratings, table, n_raters, spectrum, numbers, begin, count,
    n: tl.constexpr, k: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
    WIDE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Add `count` ratings to `gram`, whose mean with its transpose is the Gram matrix. (K, K)."""
    column = tl.arange(0, K)
    rate = tl.maximum(tl.load(spectrum + column, mask=column < k, other=1.0), 1e-20)
    for block in range(0, count, BN):
        offset = block + tl.arange(0, BN)
        inside = offset < count
        item, high, low = _tile(items, ratings, table, numbers, begin + offset, inside, n, K, WIDE)
        turned = tl.trans(high)
        gram = tl.dot(turned, high, gram)
        gram = tl.dot(turned, low + low, gram)
        raters = tl.load(n_raters + item, mask=inside, other=3e38)
        shrunk += tl.sum(_reciprocal(1.0 + raters[:, None] * rate[None, :], FAST), 0)
    return gram, shrunk


@triton.jit
def _swept(matrix, n: tl.constexpr, K: tl.constexpr):
    """Negative inverse of the first n rows and columns, row after row. (K, K)."""
    row, column = tl.arange(0, K)[:, None], tl.arange(0, K)[None, :]
    for j in range(n):
        here = tl.sum(tl.where(row == j, matrix, 0.0), 0)
        there = tl.sum(tl.where(column == j, matrix, 0.0), 1)
        pivot = 1.0 / tl.sum(tl.where(tl.arange(0, K) == j, here, 0.0), 0)
        moved = matrix - (there * pivot)[:, None] * here[None, :]
        moved = tl.where(column == j, there[:, None] * pivot, moved)
        matrix = tl.where(row == j, tl.where(column == j, -pivot, here[None, :] * pivot), moved)
    return matrix


@triton.jit
def _inverse(matrix, n: tl.constexpr, K: tl.constexpr):
    """Invert 16 rows at a time, so that tensor cores do the work outside these. (K, K).

    Rows behind the first n are those of the identity.
    """
    if K <= 32:  # one warp does that faster
        return -_swept(matrix, n, K)
    row, column = tl.arange(0, K)[:, None], tl.arange(0, K)[None, :]
    for j in range((n + 15) // 16):
        chosen = (column == 16 * j + tl.arange(0, 16)[:, None]).to(tl.float32)  # (16, K)
        panel = tl.dot(chosen, matrix, input_precision="tf32x3")
        block = tl.dot(panel, tl.trans(chosen), input_precision="tf32x3")
        block = _swept(block, 16, 16)
        solved = -tl.dot(block, panel, input_precision="tf32x3")  # (16, K)
        matrix -= tl.dot(tl.trans(panel), solved, input_precision="tf32x3")
        lifted = tl.dot(tl.trans(chosen), solved, input_precision="tf32x3")
        inner = tl.dot(block, chosen, input_precision="tf32x3")
        inner = tl.dot(tl.trans(chosen), inner, input_precision="tf32x3")
        is_row, is_column = row // 16 == j, column // 16 == j
        matrix = tl.where(is_row, lifted, tl.where(is_column, tl.trans(lifted), matrix))
        matrix = tl.where(is_row & is_column, inner, matrix)
    return -matrix


@triton.jit
def _posterior(
    gram, shrunk, user, count, numbers, vectors, basis, weights, everybody, base, extra, offset,
    base_stride, p, known, overflowed,
    n: tl.constexpr, k: tl.constexpr, e: tl.constexpr, K: tl.constexpr,
    SEEN: tl.constexpr, RANKS: tl.constexpr, EXTRA: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """E[p p^T], mean, E[(p - prior)^2], the error, and whether the user overflows.

    p and what is known of users are written, and who overflows, of whom some are known before; p
    of these stays in a round.
    """
    f = tl.arange(0, K)
    row, column = f[:, None], f[None, :]
    is_own = f < n
    inside = (row < n) & (column < n)
    tau, weight, unit = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
    is_odd = (f == 0) & (tl.load(overflowed + user) != 0)
    own, wide = tl.load(vectors + f), tl.load(vectors + K + f)
    gram = 0.5 * (gram + tl.trans(gram))
    first = tl.where(is_own, tl.sum(tl.where(row == n, gram, 0.0), 0), 0.0)
    squares = tl.sum(tl.sum(tl.where((row == n) & (column == n), gram, 0.0), 0), 0)
    turn = tl.load(basis + row * K + column)
    second = tl.where(inside, gram, 0.0)
    second = tl.dot(turn * shrunk[None, :], tl.trans(turn), second, input_precision="tf32x3")
    if RANKS:
        second = (1.0 - weight) * second + weight * tl.load(everybody + row * K + column)
        first += tl.load(offset + user * K + f)
    if EXTRA:
        squares += tl.load(extra + user)
    prior = tl.load(base + user * base_stride + f)
    if SEEN:
        share = 1.0 / tl.maximum(count.to(tl.float32), 1.0)
        share = share if RANKS else tl.sqrt(share)
        seen = share * tl.sum(tl.where(column == n + 1, gram, 0.0), 1)
        is_odd = is_odd | ((f < k) & ~(tl.abs(seen * unit) <= MAX_FACTOR))
        prior += tl.sum(seen[:, None] * tl.load(weights + row * K + column), 0)
        tl.store(known + user * e + f, seen * unit, mask=f < k)
    right = own * prior + first / tau
    pinned = tl.sum(tl.where(row == 0, second, 0.0), 0)  # of whose precision little is left
    spread = _inverse(second / tau + tl.where(row == column, own[None, :], 0.0), n, K)
    spread = tl.where(inside, spread, 0.0)
    mean = tl.sum(spread * right[:, None], 0)
    variance = tl.sum(tl.where(row == column, spread, 0.0), 0)
    applied = tl.where(f == 0, tl.sum(pinned * mean, 0), tau * (right - own * mean))
    room = tau * tl.where(is_own, 1.0 - own * variance, 0.0)
    error = squares + tl.sum(mean * (applied - 2.0 * first) + room, 0)
    away = tl.where(is_own, mean - prior, 0.0)
    deviation = variance + away * away
    is_small = (variance + mean * mean < 6e4) & (tl.abs(mean * wide) <= MAX_NUMBER)  # of float16
    is_small = is_small & (tl.abs(deviation * wide * wide) <= MAX_NUMBER)
    errors = tl.where(f == 0, error * unit * unit, 0.0)
    is_small = is_small & (tl.abs(errors) <= MAX_NUMBER)  # false for NaN
    is_odd = is_odd | (is_own & ~is_small)
    n_odd = tl.sum(is_odd.to(tl.int32), 0)
    overflows = n_odd > 0
    if overflows:
        tl.store(overflowed + user, 1)
    if ROWS:
        tl.store(p + user * n + f, mean * wide, mask=f + K * n_odd < n)
    else:
        tl.store(p + user * n + f, tl.where(overflows, float("nan"), mean * wide), mask=is_own)
    return spread + mean[:, None] * mean[None, :], mean, deviation, error, overflows


@triton.jit
def _add(place, values, limit, scale, FIXED: tl.constexpr):
    """Add to a program's own sums, in whole steps where sums are fixed."""
    if FIXED:
        tl.store(place, tl.load(place) + _rounded(values, limit, scale, False).to(tl.int64))
    else:
        tl.store(place, tl.load(place) + values)


@triton.jit
def _add_totals(
    sums, moment, mean, deviation, error, count, vectors, numbers, total_limit, total_scale,
    K: tl.constexpr, FIXED: tl.constexpr, RANKS: tl.constexpr,
):  # fmt: skip
    """Add n E[p p^T], p, E[(p - prior)^2], the error and, where asked for, E[p p^T]."""
    f = tl.arange(0, K)
    square = f[:, None] * K + f[None, :]
    wide = tl.load(vectors + K + f)
    unit = tl.load(numbers + 2)
    n_rated = count.to(tl.float32)
    if FIXED:  # a covariance is shrunk as a whole: bounded by entries it need not stay one
        largest = tl.max(tl.max(tl.abs(moment), 0), 0) * total_scale
        n_rated = tl.minimum(n_rated, total_limit / tl.maximum(largest, 1e-30))
    _add(sums + square, n_rated * moment, total_limit, total_scale, FIXED)
    rest = sums + K * K
    _add(rest + f, mean * wide, total_limit, total_scale, FIXED)
    _add(rest + K + f, deviation * wide * wide, total_limit, total_scale, FIXED)
    errors = tl.where(f == 0, error * unit * unit, 0.0)
    _add(rest + 2 * K + f, errors, total_limit, total_scale, FIXED)
    if RANKS:
        _add(rest + 3 * K + square, moment, total_limit, total_scale, FIXED)


@triton.jit
def _write_rows(
    moment, mean, items, ratings, places, table, rows, begin, count, numbers, limit,
    n: tl.constexpr, K: tl.constexpr, S: tl.constexpr, BN: tl.constexpr,
    FIXED: tl.constexpr, LOOK: tl.constexpr, WIDE: tl.constexpr, NEAR: tl.constexpr,
):  # fmt: skip
    """Write each rating's row to its place in the order of items."""
    row, column = tl.arange(0, K)[:, None], tl.arange(0, K)[None, :]
    weight, scale = tl.load(numbers + 1), tl.load(numbers + 3)
    factor = tl.where(row == n, -mean[None, :], (1.0 - weight) * moment)
    factor = tl.where(row > n, 0.0, factor)  # the column of ones
    high_factor, low_factor = _split(factor)
    for block in range(0, count, BN):
        offset = block + tl.arange(0, BN)
        inside = offset < count
        to = tl.load(places + begin + offset, mask=inside, other=0).to(tl.int64)
        if LOOK:
            told = mean[None, :] + tl.zeros((BN, K), tl.float32)
        else:
            _, high, low = _tile(items, ratings, table, numbers, begin + offset, inside, n, K, WIDE)
            told = tl.dot(high, high_factor)
            told = tl.dot(high, low_factor, told)
            told = -tl.dot(low, high_factor, told)
        told = tl.where(told == told, told, 0.0)  # rows of users who overflow may be NaN
        at = rows + to[:, None] * S + column
        if FIXED:
            tl.store(
                at,
                _rounded(told, limit, scale, NEAR).to(tl.int32),
                mask=inside[:, None] & (column < S),
            )
        else:
            tl.store(at, told, mask=inside[:, None] & (column < S))


@triton.jit
def users_kernel(
    chunks, indptr, is_counted, items, ratings, places, table, n_raters, spectrum,
    numbers, vectors, basis, weights, everybody, base, extra, offset, base_stride,
    p, known, overflowed, sums, rows, limit, total_limit, total_scale,
    n: tl.constexpr, k: tl.constexpr, e: tl.constexpr, K: tl.constexpr, S: tl.constexpr,
    BN: tl.constexpr, SIZE: tl.constexpr,
    SEEN: tl.constexpr, RANKS: tl.constexpr, EXTRA: tl.constexpr,
    FIXED: tl.constexpr, LOOK: tl.constexpr, ROWS: tl.constexpr, HEAVY: tl.constexpr,
    WIDE: tl.constexpr, FAST: tl.constexpr, NEAR: tl.constexpr,
):  # fmt: skip
    """Run the users of a chunk with at most HEAVY ratings; other kernels run the others."""
    program = tl.program_id(0)
    for user in range(tl.load(chunks + program), tl.load(chunks + program + 1)):
        begin = tl.load(indptr + user)
        count = (tl.load(indptr + user + 1) - begin).to(tl.int32)
        if (count <= HEAVY) & ((count > 0) | (not ROWS)):
            gram, shrunk = tl.zeros((K, K), tl.float32), tl.zeros((K,), tl.float32)
            gram, shrunk = _add_gram(
                gram, shrunk, items, ratings, table, n_raters, spectrum, numbers, begin, count,
                n, k, K, BN, WIDE, FAST,
            )  # fmt: skip
            moment, mean, deviation, error, overflows = _posterior(
                gram, shrunk, user, count, numbers, vectors, basis, weights, everybody, base, extra,
                offset, base_stride, p, known, overflowed, n, k, e, K, SEEN, RANKS, EXTRA, ROWS,
            )  # fmt: skip
            if ROWS:
                if (tl.load(is_counted + user) == 0) | overflows:
                    moment, mean = tl.zeros((K, K), tl.float32), tl.zeros((K,), tl.float32)
                else:
                    _add_totals(
                        sums + program * SIZE, moment, mean, deviation, error, count, vectors,
                        numbers, total_limit, total_scale, K, FIXED, RANKS,
                    )  # fmt: skip
                _write_rows(
                    moment, mean, items, ratings, places, table, rows, begin, count, numbers,
                    limit, n, K, S, BN, FIXED, LOOK, WIDE, NEAR,
                )  # fmt: skip


@triton.jit
def heavy_gram_kernel(
    begins, counts, items, ratings, table, n_raters, spectrum, numbers, grams, shrunks,
    n: tl.constexpr, k: tl.constexpr, K: tl.constexpr, BN: tl.constexpr,
    WIDE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Sum over a piece of a user's ratings."""
    piece = tl.program_id(0)
    f = tl.arange(0, K)
    gram, shrunk = _add_gram(
        tl.zeros((K, K), tl.float32), tl.zeros((K,), tl.float32), items, ratings, table, n_raters,
        spectrum, numbers, tl.load(begins + piece), tl.load(counts + piece),
        n, k, K, BN, WIDE, FAST,
    )  # fmt: skip
    tl.store(grams + piece * K * K + f[:, None] * K + f[None, :], gram)
    tl.store(shrunks + piece * K + f, shrunk)


@triton.jit
def heavy_users_kernel(
    users, pieces, indptr, is_counted, grams, shrunks,
    numbers, vectors, basis, weights, everybody, base, extra, offset, base_stride,
    p, known, overflowed, sums, moments, total_limit, total_scale,
    n: tl.constexpr, k: tl.constexpr, e: tl.constexpr, K: tl.constexpr, SIZE: tl.constexpr,
    SEEN: tl.constexpr, RANKS: tl.constexpr, EXTRA: tl.constexpr, FIXED: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """Compute a user's posterior from the sums over pieces; write E[p p^T] and the mean."""
    place = tl.program_id(0)
    f = tl.arange(0, K)
    square = f[:, None] * K + f[None, :]
    user = tl.load(users + place)
    count = (tl.load(indptr + user + 1) - tl.load(indptr + user)).to(tl.int32)
    gram, shrunk = tl.zeros((K, K), tl.float32), tl.zeros((K,), tl.float32)
    for piece in range(tl.load(pieces + place), tl.load(pieces + place + 1)):
        gram += tl.load(grams + piece * K * K + square)
        shrunk += tl.load(shrunks + piece * K + f)
    moment, mean, deviation, error, overflows = _posterior(
        gram, shrunk, user, count, numbers, vectors, basis, weights, everybody, base, extra,
        offset, base_stride, p, known, overflowed, n, k, e, K, SEEN, RANKS, EXTRA, ROWS,
    )  # fmt: skip
    if (tl.load(is_counted + user) == 0) | overflows:
        moment, mean = tl.zeros((K, K), tl.float32), tl.zeros((K,), tl.float32)
    else:
        _add_totals(
            sums + place * SIZE, moment, mean, deviation, error, count, vectors, numbers,
            total_limit, total_scale, K, FIXED, RANKS,
        )  # fmt: skip
    mine = moments + place * (K + 1) * K
    tl.store(mine + square, moment)
    tl.store(mine + K * K + f, mean)


@triton.jit
def heavy_rows_kernel(
    owners, begins, counts, items, ratings, places, table, moments, rows, numbers, limit,
    n: tl.constexpr, K: tl.constexpr, S: tl.constexpr, BN: tl.constexpr,
    FIXED: tl.constexpr, LOOK: tl.constexpr, WIDE: tl.constexpr, NEAR: tl.constexpr,
):  # fmt: skip
    """Write the rows of a piece of a user's ratings."""
    piece = tl.program_id(0)
    f = tl.arange(0, K)
    mine = moments + tl.load(owners + piece) * (K + 1) * K
    moment, mean = tl.load(mine + f[:, None] * K + f[None, :]), tl.load(mine + K * K + f)
    _write_rows(
        moment, mean, items, ratings, places, table, rows, tl.load(begins + piece),
        tl.load(counts + piece), numbers, limit, n, K, S, BN, FIXED, LOOK, WIDE, NEAR,
    )  # fmt: skip


@triton.jit
def pieces_kernel(
    begins, ends, rows, out, S: tl.constexpr, WIDTH: tl.constexpr, BN: tl.constexpr,
    FIXED: tl.constexpr,
):  # fmt: skip
    """Add up the rows of each piece."""
    piece = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(begins + piece), tl.load(ends + piece)
    f = tl.arange(0, WIDTH)
    total = tl.zeros((BN, WIDTH), tl.int64 if FIXED else tl.float32)
    for block in range(begin, end, BN):
        at = block + tl.arange(0, BN).to(tl.int64)
        mine = (at < end)[:, None] & (f < S)[None, :]
        found = tl.load(rows + at[:, None] * S + f[None, :], mask=mine, other=0)
        total += found.to(total.dtype)
    tl.store(out + piece * S + f, tl.sum(total, 0), mask=f < S)


@triton.jit
def outer_kernel(
    left, right, is_counted, sums, n_users, n_left, n_right, left_stride, right_stride,
    total_limit, total_scale, PER: tl.constexpr, WIDTH: tl.constexpr, FIXED: tl.constexpr,
):  # fmt: skip
    """Sum products of two vectors over PER users; each program takes a square of the result."""
    program = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    j = tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH, WIDTH), tl.int64 if FIXED else tl.float32)
    for step in range(PER):
        place = program * PER + step
        user = tl.minimum(place, n_users - 1)  # past the last user: that one again, uncounted
        counted = (place < n_users).to(tl.float32) * tl.load(is_counted + user).to(tl.float32)
        a = tl.load(left + user * left_stride + i, mask=i < n_left, other=0.0)
        b = tl.load(right + user * right_stride + j, mask=j < n_right, other=0.0)
        product = tl.where(counted > 0, a[:, None] * b[None, :], 0.0)  # not 0 times NaN
        if FIXED:
            total += _rounded(product, total_limit, total_scale, False).to(tl.int64)
        else:
            total += product
    inside = (i < n_left)[:, None] & (j < n_right)[None, :]
    square = program * n_left * n_right + i[:, None] * n_right + j[None, :]
    tl.store(sums + square, total, mask=inside)


def launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], **chosen: Any) -> None:
    """Launch so many programs, if any."""
    if all(grid):
        kernel[grid](*arguments, **chosen)
