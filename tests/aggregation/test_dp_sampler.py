"""The noise of differential privacy is a discrete Gaussian, and nobody can foresee it.

Each test raises a false alarm with probability below 1e-9.
"""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedmmf.aggregation.dp import sampler
from fedmmf.aggregation.dp.guarantee import Guarantee, discrete_gaussian, fractional_gaussian
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


@pytest.mark.parametrize("sigma", [0.7, 1.0, 1.5, 2.0, 3.0, 40.0, 40.25, 1000.0, 1000.3])
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


@pytest.mark.parametrize("sigma", [3.0, 40.25, 1e4, 1e6, 2.0**28, 1e9])
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


@pytest.mark.parametrize("sigma", [1e6, 1e6 + 0.5])
def test_two_draws_never_agree(sigma):
    assert not np.array_equal(discrete_gaussian(64, sigma), discrete_gaussian(64, sigma))


@pytest.mark.parametrize("sigma", [2, 40, 1000, 250_000, 1 << 28])
def test_our_sampler_draws_as_opendp_does(sigma):
    """Two samples, in ranges that are about equally likely, and by their lowest digits."""
    ours, theirs = discrete_gaussian(N, sigma), fractional_gaussian(N // 4, sigma)
    borders = np.unique(np.quantile(np.concatenate((ours, theirs)), np.linspace(0, 1, 41)[1:-1]))
    for kind in (lambda x: np.searchsorted(borders, x), lambda x: x % 7, lambda x: x % 2):
        counts = [np.bincount(kind(values), minlength=41) for values in (ours, theirs)]
        table = np.array(counts)[:, np.sum(counts, axis=0) > 0]
        assert stats.chi2_contingency(table).pvalue > ALARM


def falls(coins, probability):
    """Whether as many of these coins fall as should."""
    low, high = stats.binom.interval(1 - ALARM, len(coins), probability)
    return low <= coins.sum() <= high


@pytest.mark.parametrize("denominator", [2, 3, 7, 1000, 2 * 250_000**2, 1 << 57])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_coins_fall_as_often_as_they_should(denominator, share):
    """Those of a share, and of exp(-share)."""
    numerator = int(share * denominator)
    numerators = np.full(N, numerator, np.uint64)
    assert falls(sampler._coins(numerators, denominator), numerator / denominator)
    assert falls(sampler._exp_coins(numerators, denominator), math.exp(-numerator / denominator))


def test_coins_that_fall_until_one_fails_are_counted():
    counted = sampler._counted(N)
    for k in range(5):
        assert falls(counted == k, math.exp(-k) * -math.expm1(-1))


@pytest.mark.parametrize("rest", [0, 300, 999])
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_proposal_is_kept_as_often_as_it_should_be(rest, times):
    size = rest + 1000 * times
    kept = sampler._gaussian_coins(np.full(N, rest, np.uint64), np.full(N, times), 1000)
    assert falls(kept, math.exp(-((size - 1000) ** 2) / (2 * 1000**2)))


def test_proposals_far_out_need_no_number_that_is_too_long():
    """(|Y| - s)^2 would have 76 bits; every coin is of numbers that fit. Such a Y is refused."""
    rest = np.full(1000, (1 << 28) - 1, np.uint64)
    assert not sampler._gaussian_coins(rest, np.full(1000, 1000), 1 << 28).any()


@pytest.mark.parametrize("sigma", [0, -1, (1 << 28) + 1])
def test_our_sampler_refuses_what_it_cannot_draw(sigma):
    with pytest.raises(ValueError, match="sigma is a whole number from 1"):
        sampler.whole_gaussian(3, sigma)


@pytest.mark.parametrize("n_parties", [1, 60, 943, 100_000])
def test_noise_is_rounded_up_to_whole_steps(n_parties):
    """By a thousandth at most, and never down: nothing less than what is paid for."""
    noise = "local" if n_parties == 1 else "distributed"
    guarantee = Guarantee(1.0, 12.3, noise, 12)
    scale = guarantee.scale_among(n_parties)
    exact = guarantee.noise_std(n_parties) * scale
    sigma = guarantee.grid(scale, n_parties, 100).sigma
    assert exact <= sigma <= exact * 1.001
    assert (sigma == int(sigma)) == (exact >= 1000)


def test_without_the_library_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.mod", None)
    with pytest.raises(SettingsError, match=r"opendp, which is not installed; .*fedmmf\[dp\]"):
        discrete_gaussian(1, 1.5)
