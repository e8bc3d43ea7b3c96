"""Discrete Gaussian noise by slices: the fast way for standard deviations of many whole steps.

Let s = m w for whole numbers m = `SLICES` and w, and |x| = w y + r with 0 <= r < w: y is the slice
of x, and r its place there. Then exp(-x^2 / (2 s^2)) = exp(-y^2 / (2 m^2)) exp(-r (2 w y + r) /
(2 s^2)). So y is drawn with probability proportional to exp(-y^2 / (2 m^2)), which does not depend
on s; r is uniform; and both are kept with probability exp(-n / d), n = r (2 w y + r) and d = 2 s^2,
by coins in whole numbers (`coins`), nearly always.

y is drawn by inversion, exactly, though its distribution function T has no finite digits: let U be
uniform in [0, 1), and y the number of T(i) below U. The first 64 bits of U decide, unless they are
those of some T(i): that happens once in 2^55 draws. Then U gets more bits, and T more digits, until
they differ (`decided`; Devroye 1986, Non-uniform random variate generation, chapter 2 and 15). T
is from correctly rounded decimals, with a bound on what is left out.
"""

import os
from collections.abc import Sequence
from decimal import Decimal, localcontext
from functools import cache

import numpy as np

from fedmmf.aggregation.dp.coins import below, exp_coins, flip_repeatedly, words
from fedmmf.arrays import Array

SLICES = 32  # per standard deviation
_NEAR = SLICES * SLICES  # slices for which n < d
_DIGITS = 60  # of the table: the first 64 bits of every T(i) are certain
_BITS = 64


def sliced(n: int, sigma: int) -> Array:
    """Draw n proposals; return those that are kept, about 39 of 40. (m,) int64.

    Args:
        n: how many.
        sigma: a whole multiple of `SLICES`.
    """
    width = sigma // SLICES
    slices, places = draw_slices(n), below(n, 2 * width)
    is_negative, places = (places & np.uint64(1)).astype(bool), places >> np.uint64(1)
    is_kept = kept(slices, places, sigma)
    sizes = (slices * width + places.astype(np.int64))[is_kept]
    is_negative = is_negative[is_kept]
    is_second_zero = is_negative & (sizes == 0)
    return np.asarray(np.where(is_negative, -sizes, sizes)[~is_second_zero])


def kept(slices: Array, places: Array, sigma: int) -> Array:
    """Flip coins of probability exp(-r (2 w y + r) / (2 s^2)). (n,) bool."""
    twice, denominator = np.uint64(2 * (sigma // SLICES)), 2 * sigma * sigma
    is_near = slices < _NEAR
    if is_near.all():
        return exp_coins(places * (twice * slices.astype(np.uint64) + places), denominator)
    # as good as never: y independent coins instead of one with n above d
    is_kept = exp_coins(places * places, denominator)
    flip_repeatedly(is_kept, slices, lambda who: exp_coins(twice * places[who], denominator))
    return is_kept


def draw_slices(n: int) -> Array:
    """Draw y >= 0, each with probability proportional to exp(-y^2 / (2 m^2)). (n,) int64."""
    first = words(n)
    return slices_of(first)


def slices_of(first: Array) -> Array:
    """Return y for the first 64 bits of each U; more bits are drawn where they are needed."""
    table = first_bits()
    found = np.searchsorted(table, first)
    is_open = table[np.minimum(found, len(table) - 1)] == first
    for place in np.flatnonzero(is_open):
        found[place] = decided(int(first[place]))
    return found


@cache
def first_bits() -> Array:
    """First 64 bits of T(0), T(1) ...; the last are all ones."""
    with localcontext(prec=_DIGITS + 10):
        scaled = [int(one * 2**_BITS) for one in distribution(_DIGITS)]
    return np.array([min(one, 2**_BITS - 1) for one in scaled], np.uint64)


@cache
def distribution(digits: int) -> Sequence[Decimal]:
    """T(0), T(1) ... until what is left is below 10^-digits; each off by 10^(3-digits) at most."""
    with localcontext(prec=digits + 10):
        shares: list[Decimal] = []
        while not shares or shares[-1] > Decimal(10) ** -(digits + 5):
            y = len(shares)
            shares.append((-Decimal(y * y) / (2 * SLICES * SLICES)).exp())
        whole, sums, so_far = sum(shares), [], Decimal(0)
        for share in shares:
            so_far += share
            sums.append(so_far / whole)
        return sums


def decided(first: int) -> int:
    """Draw more bits of U until no T(i) is as near to it as either may be off."""
    value, bits = first, _BITS
    while True:
        value, bits = value << _BITS | int.from_bytes(os.urandom(_BITS // 8), "big"), bits + _BITS
        digits = 20 + bits // 3  # more than bits log10(2)
        with localcontext(prec=digits + 10):
            slack, sums = Decimal(10) ** (3 - digits), distribution(digits)
            low, high = Decimal(value) / 2**bits, Decimal(value + 1) / 2**bits
            least = sum(one + slack <= low for one in sums)
            most = sum(one - slack < high for one in sums)
        if least == most < len(sums):
            return int(least)
