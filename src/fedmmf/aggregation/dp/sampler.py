"""Discrete Gaussian noise in whole numbers: many draws at once, exact, from the system's bytes.

Canonne, Kamath and Steinke 2020 (The discrete Gaussian for differential privacy, algorithms 1 to
3), for standard deviations s that are whole numbers, with numpy arrays in place of loops. There is
no floating point and no table, so nothing is rounded, and nothing of Mironov 2012 applies:

- A coin of probability n / d compares a uniform whole number below d with n (`_coins`).
- A coin of probability exp(-x), for x = n / d in [0, 1), is their algorithm 1 (`_exp_coins`): flip
  coins of probability x / 1, x / 2, x / 3 ... until one fails. The k-th is the first to fail with
  probability x^(k-1) / (k-1)! - x^k / k!, and the sum over odd k is exp(-x). A coin of probability
  x / k is two independent ones, 1 / k and x, so that no product is too long for 64 bits.
- A coin of probability exp(-x - y) is two independent coins.
- |Y| = U + s V, with U uniform below s and kept with probability exp(-U / s), and V the number of
  coins of probability exp(-1) until one fails: P(|Y| = y) is proportional to exp(-y / s). With a
  random sign, and without a second zero, Y is a discrete Laplace variable (algorithm 2).
- Y is kept with probability exp(-(|Y| - s)^2 / (2 s^2)) (algorithm 3 with t = s; any t will do).
  The product with exp(-|Y| / s) is exp(-Y^2 / (2 s^2)) times a constant. Where V = 0 the exponent
  is (s - U)^2 / (2 s^2); else (V - 1)^2 / 2 + (V - 1) U / s + U^2 / (2 s^2): coins of bounded n, d.
"""

import os
from collections.abc import Callable

import numpy as np

from fedmmf.arrays import Array

MAX_SIGMA = 1 << 28  # so that 2 s^2 is far below 2^64
_BATCH = 1 << 14  # draws at once: what they need stays in the processor's cache
_WORD = 1 << 64


def whole_gaussian(n: int, sigma: int) -> Array:
    """Draw independent integers, each x with probability proportional to exp(-x^2 / 2 sigma^2).

    Args:
        n: how many.
        sigma: a whole number from 1 to `MAX_SIGMA`.

    Returns:
        (n,) int64
    """
    if not 1 <= sigma <= MAX_SIGMA:
        raise ValueError(f"sigma is a whole number from 1 to {MAX_SIGMA}; got {sigma}")
    found, n_found = np.empty(n, np.int64), 0
    while n_found < n:
        missing = n - n_found
        some = _kept(min(2 * missing + 64, 2 * _BATCH), sigma)[:missing]
        found[n_found : n_found + len(some)] = some
        n_found += len(some)
    return found


def _kept(n: int, sigma: int) -> Array:
    """Those of n proposals that are kept, in order; about half of them. (m,) int64."""
    rest = _below(n, sigma)  # U
    rest = rest[_exp_coins(rest, sigma)]
    times = _counted(len(rest))  # V
    is_kept = _gaussian_coins(rest, times, sigma)
    rest, times = rest[is_kept].astype(np.int64), times[is_kept]
    sizes, is_negative = rest + sigma * times, _coins(np.ones(len(rest), np.uint64), 2)
    is_second_zero = is_negative & (sizes == 0)
    return np.asarray(np.where(is_negative, -sizes, sizes)[~is_second_zero])


def _gaussian_coins(rest: Array, times: Array, sigma: int) -> Array:
    """Flip coins of probability exp(-(|Y| - s)^2 / (2 s^2)) for |Y| = U + s V. (n,) bool."""
    distance = np.where(times == 0, np.uint64(sigma) - rest, rest)
    is_kept = _exp_coins(distance * distance, 2 * sigma * sigma)
    beyond = np.maximum(times - 1, 0)  # V - 1
    half = np.ones(len(rest), np.uint64)
    _flip_repeatedly(is_kept, beyond * beyond, lambda who: _exp_coins(half[who], 2))
    _flip_repeatedly(is_kept, beyond, lambda who: _exp_coins(rest[who], sigma))
    return is_kept


def _flip_repeatedly(is_kept: Array, times: Array, flip: Callable[[Array], Array]) -> None:
    """Unset `is_kept` where one of that many coins fails; `flip` is told whose to flip."""
    turn = 0
    while len(who := np.flatnonzero(is_kept & (times > turn))):
        is_kept[who] = flip(who)
        turn += 1


def _counted(n: int) -> Array:
    """Number of coins of probability exp(-1) until one fails. (n,) int64."""
    times, who = np.zeros(n, np.int64), np.arange(n)
    while len(who):
        who = who[_exp_coins(np.ones(len(who), np.uint64), 1)]
        times[who] += 1
    return times


def _exp_coins(numerators: Array, denominator: int) -> Array:
    """Flip coins of probability exp(-n / d), for n < d or n = d = 1. (n,) bool."""
    fails_at_odd, who, k = np.ones(len(numerators), bool), np.arange(len(numerators)), 1
    while len(who):
        falls = _coins(np.ones(len(who), np.uint64), k)
        falls[falls] = _coins(numerators[who[falls]], denominator)
        fails_at_odd[who[~falls]] = k % 2 == 1
        who, k = who[falls], k + 1
    return fails_at_odd


def _coins(numerators: Array, denominator: int) -> Array:
    """Flip coins of probability n / d: whether a uniform whole number below d is below n."""
    if denominator == 1:
        return np.asarray(numerators == 1)
    return np.asarray(_scaled(len(numerators), denominator) < _unit(denominator) * numerators)


def _below(n: int, bound: int) -> Array:
    """Draw uniform whole numbers below `bound`. (n,) uint64."""
    return np.zeros(n, np.uint64) if bound == 1 else _scaled(n, bound) // _unit(bound)


def _unit(bound: int) -> np.uint64:
    """Number of words of 64 bits that stand for one number below `bound`, which is 2 or more."""
    return np.uint64(_WORD // bound)


def _scaled(n: int, bound: int) -> Array:
    """Draw uniform words below the largest multiple of `bound` in 2^64; others are drawn anew."""
    words, largest = _words(n), np.uint64(_WORD // bound * bound - 1)
    while len(who := np.flatnonzero(words > largest)):
        words[who] = _words(len(who))
    return words


def _words(n: int) -> Array:
    """Random words of 64 bits, from the operating system. (n,) uint64."""
    return np.frombuffer(bytearray(os.urandom(8 * n)), np.uint64)
