"""Discrete Gaussian noise in whole numbers: many draws at once, exact, from the system's bytes.

Canonne, Kamath and Steinke 2020 (The discrete Gaussian for differential privacy, algorithms 2 and
3), for standard deviations s that are whole numbers, with numpy arrays in place of loops. There is
no floating point, so nothing is rounded, and nothing of Mironov 2012 applies. Where s is a multiple
of `slices.SLICES`, `slices` takes a tenth of the time.

- |Y| = U + s V, with U uniform below s and kept with probability exp(-U / s), and V the number of
  coins of probability exp(-1) until one fails: P(|Y| = y) is proportional to exp(-y / s). With a
  random sign, and without a second zero, Y is a discrete Laplace variable (algorithm 2).
- Y is kept with probability exp(-(|Y| - s)^2 / (2 s^2)) (algorithm 3 with t = s; any t will do).
  The product with exp(-|Y| / s) is exp(-Y^2 / (2 s^2)) times a constant. Where V = 0 the exponent
  is (s - U)^2 / (2 s^2); else (V - 1)^2 / 2 + (V - 1) U / s + U^2 / (2 s^2): coins of bounded n, d.
"""

import math

import numpy as np

from fedmmf.aggregation.dp.coins import below, coins, exp_coins, flip_repeatedly
from fedmmf.aggregation.dp.slices import SLICES, sliced
from fedmmf.arrays import Array

MAX_SIGMA = 1 << 28  # so that 2 s^2 is far below 2^64
_BATCH = 1 << 14  # proposals at once: what they need stays in the processor's cache
_SLACK = 1000  # noise is rounded up by one part in so many at most


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
        some = _some(missing, sigma)[:missing]
        found[n_found : n_found + len(some)] = some
        n_found += len(some)
    return found


def rounded_up(sigma: float) -> float:
    """Smallest standard deviation from `sigma` on that is drawn fast, or itself."""
    for step in (SLICES, 1):
        if step * _SLACK <= sigma <= MAX_SIGMA - step:
            return float(step * math.ceil(sigma / step))
    return sigma


def _some(n: int, sigma: int) -> Array:
    """About n draws, or a batch if that is less. (m,) int64."""
    if sigma % SLICES == 0:
        return sliced(min(n + n // 32 + 16, _BATCH), sigma)
    return accepted(min(2 * n + 64, 2 * _BATCH), sigma)


def accepted(n: int, sigma: int) -> Array:
    """Those of n proposals that are kept, in order; about half of them. (m,) int64."""
    rest = below(n, sigma)  # U
    rest = rest[exp_coins(rest, sigma)]
    times = geometric(len(rest))  # V
    is_kept = gaussian_coins(rest, times, sigma)
    rest, times = rest[is_kept].astype(np.int64), times[is_kept]
    sizes, is_negative = rest + sigma * times, coins(np.ones(len(rest), np.uint64), 2)
    is_second_zero = is_negative & (sizes == 0)
    return np.asarray(np.where(is_negative, -sizes, sizes)[~is_second_zero])


def gaussian_coins(rest: Array, times: Array, sigma: int) -> Array:
    """Flip coins of probability exp(-(|Y| - s)^2 / (2 s^2)) for |Y| = U + s V. (n,) bool."""
    distance = np.where(times == 0, np.uint64(sigma) - rest, rest)
    is_kept = exp_coins(distance * distance, 2 * sigma * sigma)
    beyond = np.maximum(times - 1, 0)  # V - 1
    half = np.ones(len(rest), np.uint64)
    flip_repeatedly(is_kept, beyond * beyond, lambda who: exp_coins(half[who], 2))
    flip_repeatedly(is_kept, beyond, lambda who: exp_coins(rest[who], sigma))
    return is_kept


def geometric(n: int) -> Array:
    """Number of coins of probability exp(-1) until one fails. (n,) int64."""
    times, who = np.zeros(n, np.int64), np.arange(n)
    while len(who):
        who = who[exp_coins(np.ones(len(who), np.uint64), 1)]
        times[who] += 1
    return times
