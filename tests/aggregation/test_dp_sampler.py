"""The noise of differential privacy is a discrete Gaussian, and nobody can foresee it.

Each test raises a false alarm with probability below 1e-9.
"""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedmmf.aggregation.dp import coins, sampler, slices
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


@pytest.mark.parametrize(
    "sigma", [0.7, 1.0, 1.5, 2.0, 3.0, 32.0, 40.0, 40.25, 96.0, 1000.0, 1000.3, 3200.0]
)
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


@pytest.mark.parametrize("sigma", [3.0, 40.25, 10_001.0, 250_016.0, 1e6, 2.0**28, 1e9])
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


@pytest.mark.parametrize("sigma", [2, 32, 40, 64, 1000, 250_000, 250_016, 1 << 28])
def test_our_sampler_draws_as_opendp_does(sigma):
    """Two samples, in ranges that are about equally likely, and by their lowest digits."""
    ours, theirs = discrete_gaussian(N, sigma), fractional_gaussian(N // 4, sigma)
    borders = np.unique(np.quantile(np.concatenate((ours, theirs)), np.linspace(0, 1, 41)[1:-1]))
    for kind in (lambda x: np.searchsorted(borders, x), lambda x: x % 7, lambda x: x % 2):
        counts = [np.bincount(kind(values), minlength=41) for values in (ours, theirs)]
        table = np.array(counts)[:, np.sum(counts, axis=0) > 0]
        assert stats.chi2_contingency(table).pvalue > ALARM


def falls(flipped, probability):
    """Whether as many of these coins fall as should."""
    low, high = stats.binom.interval(1 - ALARM, len(flipped), probability)
    return low <= flipped.sum() <= high


@pytest.mark.parametrize("denominator", [2, 3, 7, 1000, 2 * 250_000**2, 1 << 57])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_coins_fall_as_often_as_they_should(denominator, share):
    """Those of a share, and of exp(-share)."""
    numerator = int(share * denominator)
    numerators = np.full(N, numerator, np.uint64)
    assert falls(coins.coins(numerators, denominator), numerator / denominator)
    assert falls(coins.exp_coins(numerators, denominator), math.exp(-numerator / denominator))


def test_coins_that_fall_until_one_fails_are_counted():
    counted = sampler.geometric(N)
    for k in range(5):
        assert falls(counted == k, math.exp(-k) * -math.expm1(-1))


@pytest.mark.parametrize("rest", [0, 300, 999])
@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_a_proposal_is_kept_as_often_as_it_should_be(rest, times):
    size = rest + 1000 * times
    kept = sampler.gaussian_coins(np.full(N, rest, np.uint64), np.full(N, times), 1000)
    assert falls(kept, math.exp(-((size - 1000) ** 2) / (2 * 1000**2)))


def test_proposals_far_out_need_no_number_that_is_too_long():
    """(|Y| - s)^2 would have 76 bits; every coin is of numbers that fit. Such a Y is refused."""
    rest = np.full(1000, (1 << 28) - 1, np.uint64)
    assert not sampler.gaussian_coins(rest, np.full(1000, 1000), 1 << 28).any()


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
    assert (sigma % slices.SLICES == 0) == (exact >= 32_000)


# Slices


def test_slices_are_as_likely_as_they_should_be():
    drawn = slices.draw_slices(N)
    shares = weights(slices.SLICES, 400)[400:]  # of y >= 0
    for y in (0, 1, 10, 31, 32, 60, 100):
        assert falls(drawn == y, shares[y] / math.fsum(shares))
    expected = np.arange(401) @ shares / shares.sum()
    assert abs(drawn.mean() - expected) < 7 * slices.SLICES / math.sqrt(N)


def test_the_table_has_the_first_bits_of_every_threshold_for_certain():
    """None is so near to a whole number of 2^-64 that what it is off by could matter."""
    table, finer = slices.first_bits(), slices.distribution(200)
    for y, first in enumerate(table.tolist()):
        exact = Fraction(finer[y]) * 2**64
        assert int(exact) == first
        rest = exact - first
        assert min(rest, 1 - rest) > 2**64 * Fraction(10) ** (3 - 60) or y > 300
    assert (np.diff(table.astype(object)) > 0)[:280].all()
    assert table[-1] == 2**64 - 1  # all that is beyond the table is decided with more bits


@pytest.mark.parametrize("y", [0, 5, 100, 250])
def test_words_next_to_a_threshold_are_decided_at_once(y):
    first = slices.first_bits()[y]
    near = np.array([first - np.uint64(1), first + np.uint64(1)], np.uint64)
    assert slices.slices_of(near).tolist() == [y, y + 1]


@pytest.mark.parametrize("y", [0, 5, 100, 250])
def test_a_word_that_is_a_thresholds_own_needs_more_bits(y):
    """Which side it falls to is as probable as the threshold's next bits say."""
    first = slices.first_bits()[y]
    drawn = slices.slices_of(np.full(2000, first, np.uint64))
    below = Fraction(slices.distribution(200)[y]) * 2**64 - int(first)
    assert set(drawn.tolist()) <= {y, y + 1}
    assert falls(drawn == y, float(below))


def test_bits_that_agree_with_a_threshold_for_long_are_decided_in_the_end(monkeypatch):
    exact = int(Fraction(slices.distribution(300)[7]) * 2**256)
    parts = iter([(exact >> 64 * place) & (2**64 - 1) for place in (2, 1, 0)] + [0] * 9)
    monkeypatch.setattr(slices.os, "urandom", lambda n: next(parts).to_bytes(n, "big"))
    assert slices.decided(exact >> 192) in (7, 8)
    assert next(parts) == 0
    assert len(list(parts)) < 8  # more than three words of bits were needed


def test_slices_beyond_the_table_are_reached_with_more_bits(monkeypatch):
    monkeypatch.setattr(slices.os, "urandom", lambda n: bytes([255]) * n)
    with monkeypatch.context() as patch:
        patch.setattr(slices, "distribution", lambda digits, real=slices.distribution: real(digits))
        words = iter([bytes([255] * 8)] * 6 + [bytes(8)] * 3)
        patch.setattr(slices.os, "urandom", lambda n: next(words))
        assert slices.decided(2**64 - 1) > 500


@pytest.mark.parametrize("place", [0, 3, 9])
@pytest.mark.parametrize("y", [0, 1, 40, 100])
def test_a_place_in_a_slice_is_kept_as_often_as_it_should_be(y, place):
    sigma = 10 * slices.SLICES
    kept = slices.kept(np.full(N, y), np.full(N, place, np.uint64), sigma)
    assert falls(kept, math.exp(-place * (20 * y + place) / (2 * sigma**2)))


def test_a_slice_far_out_is_kept_as_often_as_it_should_be():
    """One coin would have a probability above 1 in its exponent: many coins are flipped."""
    sigma, y = 10 * slices.SLICES, 1500
    kept = slices.kept(np.full(N, y), np.full(N, 9, np.uint64), sigma)
    assert falls(kept, math.exp(-9 * (20 * y + 9) / (2 * sigma**2)))


def test_without_the_library_an_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opendp.mod", None)
    with pytest.raises(SettingsError, match=r"opendp, which is not installed; .*fedmmf\[dp\]"):
        discrete_gaussian(1, 1.5)
