import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from fedmmf.errors import SettingsError
from fedmmf.masks import epsilon_reached, privacy_indicator, sample_complexity
from fedmmf.masks.indicator import j_follows_variance, mean_relative_j, rating_variances

FLOAT32 = 32 * math.log(2)


def test_j_is_each_users_mean_square():
    residuals = np.array([0.1, -0.2, 0.5, 0.3, 0.3, 0.3])
    indptr = np.array([0, 2, 2, 3, 6])
    j = privacy_indicator(residuals, indptr)
    assert j[0] == pytest.approx((0.01 + 0.04) / 2)
    assert math.isnan(j[1])
    assert j[2] == pytest.approx(0.25)
    assert j[3] == pytest.approx(0.09)


def test_variances_are_each_users_own_and_exactly_0_where_ratings_are_equal():
    lists = [[0.1, 0.7, 0.4], [], [0.3], [7 / 9] * 11, [0.9, 0.2]]
    indptr = np.cumsum([0, *map(len, lists)])
    variances = rating_variances(np.concatenate(lists), indptr)
    expected = [np.var(some) if some else math.nan for some in lists]
    np.testing.assert_allclose(variances, expected, rtol=1e-12, atol=1e-30)
    assert variances[2] == variances[3] == 0  # what nearly 0 would divide by


def test_relative_j_is_the_mean_over_users_who_vary():
    j = np.array([0.02, 0.03, math.nan, 0.05])
    variances = np.array([0.04, 0.0, math.nan, 0.02])
    assert mean_relative_j(j, variances) == pytest.approx((0.02 / 0.04 + 0.05 / 0.02) / 2)
    assert mean_relative_j(j[1:3], variances[1:3]) is None
    assert mean_relative_j(np.empty(0), np.empty(0)) is None


@pytest.mark.parametrize("levels", [3, 10, 10**9])
def test_j_follows_variance_is_spearmans_correlation(levels):
    """With many ties, some and none."""
    rng = np.random.default_rng(levels)
    variances = rng.integers(0, levels, 50) / levels
    j = np.round(variances + rng.normal(0, 0.3, 50), 1 if levels < 10**9 else 12)
    found = j_follows_variance(np.append(j, math.nan), np.append(variances, math.nan))
    assert found == pytest.approx(spearmanr(j, variances).statistic, abs=1e-12)
    assert 0.3 < found < 0.95
    assert j_follows_variance(j, np.exp(j)) == pytest.approx(1.0)
    assert j_follows_variance(j, -j) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("j", "variances"),
    [([], []), ([0.1], [0.2]), ([0.1, 0.2], [0.0, 0.0]), ([0.1, 0.1], [0.0, 0.3])],
)
def test_what_does_not_vary_follows_nothing(j, variances):
    assert j_follows_variance(np.array(j), np.array(variances)) is None


def test_sample_complexity_has_the_corrected_constant():
    """Errata 20 and 21: 21 float32 weights, epsilon 0.1, delta 0.05."""
    assert sample_complexity(0.1, 0.05, 21 * FLOAT32) == 93_897
    printed = math.log(2 * 5 / 0.05) / 0.1**2
    assert sample_complexity(0.1, 0.05, math.log(5)) == math.ceil(2 * printed)


def test_the_mean_user_of_ml_100k_gets_nothing_from_theorem_1():
    assert epsilon_reached(106, 0.05, 21 * FLOAT32) == pytest.approx(2.976, abs=0.001)


def test_the_two_functions_are_inverse():
    n = sample_complexity(0.2, 0.1, 10.0)
    assert epsilon_reached(n, 0.1, 10.0) <= 0.2 < epsilon_reached(n - 1, 0.1, 10.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_complexity(0, 0.1, 1), r"epsilon must be in \(0, 1\); got 0"),
        (lambda: sample_complexity(0.1, 1, 1), r"delta must be in \(0, 1\); got 1"),
        (lambda: sample_complexity(0.1, 0.1, -1), "log_class_size must be finite and >= 0; got -1"),
        (lambda: epsilon_reached(0, 0.1, 1), "n_ratings must be at least 1; got 0"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(SettingsError, match=message):
        call()
