"""The noise of differential privacy is a discrete Gaussian, and nobody can foresee it.

Each test raises a false alarm with probability below 1e-9.
"""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedmmf.aggregation.dp.guarantee import discrete_gaussian
from fedmmf.errors import SettingsError

pytest.importorskip("opendp", reason="opendp is of the extra `dp`")

ALARM = 1e-10
N = 60_000


def weights(sigma, reach):
    """Probabilities of -reach .. reach, the obvious way, with what is beyond them left out."""
    exact = Fraction(sigma) ** 2
    parts = [math.exp(-Fraction(x * x) / (2 * exact)) for x in range(-reach, reach + 1)]
    return np.array(parts) / math.fsum(parts)


def cells(values, sigma, n_cells):
    """Counts of about equally likely ranges of integers, and what is expected of them."""
    reach = math.ceil(12 * sigma)
    probability = weights(sigma, reach)
    cell = np.minimum((np.cumsum(probability) * n_cells).astype(int), n_cells - 1)
    assert np.abs(values).max() <= reach
    expected = np.bincount(cell, probability, n_cells) * len(values)
    counted = np.bincount(cell[values + reach], minlength=n_cells)
    return counted[expected > 0], expected[expected > 0]


def chi_square(values, sigma, n_cells=50):
    counted, expected = cells(values, sigma, n_cells)
    assert expected.min() > 20
    statistic = float(((counted - expected) ** 2 / expected).sum())
    return stats.chi2.sf(statistic, len(expected) - 1)


@pytest.mark.parametrize("sigma", [0.7, 1.5, 3.0, 40.25, 1000.3])
def test_integers_are_as_likely_as_they_should_be(sigma):
    values = discrete_gaussian(N, sigma)
    assert values.shape == (N,)
    assert values.dtype == np.int64
    assert chi_square(values, sigma, min(50, math.ceil(2 * sigma) + 1)) > ALARM


@pytest.mark.parametrize("sigma", [1.5, 40.25])
def test_the_test_sees_noise_that_is_a_little_off(sigma):
    """Rounded Gaussians whose variance is a tenth too large, or which are shifted by a tenth."""
    draws = np.random.default_rng(0).standard_normal(N)
    wide = np.rint(draws * sigma * math.sqrt(1.1)).astype(np.int64)
    shifted = np.rint(draws * sigma + 0.1 * sigma).astype(np.int64)
    n_cells = min(50, math.ceil(2 * sigma) + 1)
    for values in (wide, shifted):
        assert chi_square(values, sigma, n_cells) < ALARM


@pytest.mark.parametrize("sigma", [3.0, 1e4, 1e6, 1e9])
def test_moments_are_those_of_a_gaussian(sigma):
    """From sigma 1 on, the variance is sigma^2 up to 1e-6."""
    values = discrete_gaussian(N, sigma) / sigma
    bound = stats.norm.isf(ALARM / 2) / math.sqrt(N)  # 6.5 deviations of a mean
    assert abs(values.mean()) < bound
    assert abs((values**2).mean() - 1) < math.sqrt(2) * bound
    assert abs((values**3).mean()) < math.sqrt(15) * bound
    assert abs((values**4).mean() - 3) < math.sqrt(96) * bound * 1.5  # its own tails are heavy
    assert abs((values[1:] * values[:-1]).mean()) < bound * 1.1


def test_tails_are_neither_cut_nor_heavy():
    sigma = 1e6
    sizes = np.abs(discrete_gaussian(N, sigma)) / sigma
    for k in (2.0, 3.0, 3.5):
        beyond = int((sizes > k).sum())
        likely = 2 * stats.norm.sf(k)
        low, high = stats.binom.interval(1 - ALARM, N, likely)
        assert low <= beyond <= high
    assert sizes.max() < 9


def test_two_draws_never_agree():
    assert not np.array_equal(discrete_gaussian(64, 1e6), discrete_gaussian(64, 1e6))


def test_without_the_library_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.mod", None)
    with pytest.raises(SettingsError, match=r"opendp, which is not installed; .*fedmmf\[dp\]"):
        discrete_gaussian(1, 1.0)
