"""Ordered ratings: a rating is where a latent number falls between cut points (ordered probit).

z_ui ~ N(f_u(i) + q_i . p_u, tau), and the rating is level l if cut_l < z <= cut_l+1. A party puts
E[z | rating] in the place of the rating, and everything else stays (Albert and Chib 1993, Bayesian
analysis of binary and polychotomous response data; the expectation in the place of their sampling).
Cut points are public. They are moved so that the expected share of each level is the share that
people gave.
"""

import math

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale

BEGINS_AFTER = 8  # rounds: cut points fitted to random factors lead nowhere
FAR = 8.0  # standard deviations; what lies beyond has no weight
MIN_SHARE = 1e-12  # of a level, below which it is not divided by
NARROWEST = 0.01  # of the mean gap: what is left of a level that nobody gives
_GRID = np.linspace(-FAR, FAR, 8001)
_CDF = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in _GRID])


def cdf(x: Array) -> Array:
    """Distribution function of the standard normal, to seven digits; numpy has none."""
    return np.asarray(np.interp(x, _GRID, _CDF))


def density(x: Array) -> Array:
    """Probability density of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / math.sqrt(2.0 * math.pi))


def starting_cuts(lowest: float, span: float, n_levels: int) -> Array:
    """Cut points half-way between neighbouring levels. (n_levels - 1,)."""
    step = span / max(n_levels - 1, 1)
    return np.asarray(lowest + step * (np.arange(max(n_levels - 1, 0)) + 0.5))


def latent(levels: Array, expected: Array, cuts: Array, tau: float) -> tuple[Array, Array]:
    """E[z] and Var[z] of normals around `expected`, truncated to their levels. (n,) each."""
    spread = math.sqrt(tau)
    edges = np.concatenate(([-np.inf], cuts, [np.inf]))
    low = np.clip((edges[levels] - expected) / spread, -FAR, FAR)
    high = np.clip((edges[levels + 1] - expected) / spread, -FAR, FAR)
    share = np.maximum(cdf(high) - cdf(low), MIN_SHARE)
    at_low, at_high = density(low), density(high)
    shift = (at_low - at_high) / share
    variance = 1.0 + (low * at_low - high * at_high) / share - shift * shift
    return expected + spread * shift, tau * np.clip(variance, 0.0, 1.0)


def level_totals(levels: Array, expected: Array, cuts: Array, tau: float) -> Array:
    """Ratings below each cut point, their expected number, and its derivative at the cut point.

    (3, n_levels - 1)
    """
    spread = math.sqrt(tau)
    at = (cuts - expected[:, np.newaxis]) / spread  # (n, n_levels - 1)
    below = levels[:, np.newaxis] <= np.arange(len(cuts))
    return np.stack((below.sum(axis=0), cdf(at).sum(axis=0), density(at).sum(axis=0) / spread))


def moved_cuts(cuts: Array, totals: Array) -> Array:
    """Move cut points by a Newton step towards the observed shares of levels. (n_levels - 1,).

    Args:
        cuts: those of the broadcast.
        totals: what `level_totals` gave, summed over everybody. (3, n_levels - 1)
    """
    given, expected, slope = totals
    gaps = np.diff(cuts)
    mean = float(gaps.mean()) if len(gaps) else 2.0
    room, end = 0.245 * np.maximum(gaps - NARROWEST * mean, 0.0), [0.245 * mean]  # up to the next
    step = np.where(slope > 0, (given - expected) / np.maximum(slope, MIN_SHARE), 0.0)
    down, up = np.concatenate((end, room)), np.concatenate((room, end))
    return np.asarray(cuts + np.clip(step, -down, up))


def expected_rating(scores: Array, cuts: Array, tau: float, scale: RatingScale) -> Array:
    """Mean of the levels, weighted by their probabilities; always on the scale. (n,)."""
    at = (cuts - np.asarray(scores, np.float64)[:, np.newaxis]) / math.sqrt(tau)
    step = scale.span / len(cuts)
    return np.asarray(scale.min + step * (1.0 - cdf(at)).sum(axis=1), np.float32)
