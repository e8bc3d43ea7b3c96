import math

import numpy as np
import pytest

from fedmmf.errors import SettingsError
from fedmmf.masks import epsilon_reached, privacy_indicator, sample_complexity

FLOAT32 = 32 * math.log(2)


def test_j_is_each_users_mean_square():
    residuals = np.array([0.1, -0.2, 0.5, 0.3, 0.3, 0.3])
    indptr = np.array([0, 2, 2, 3, 6])
    j = privacy_indicator(residuals, indptr)
    assert j[0] == pytest.approx((0.01 + 0.04) / 2)
    assert math.isnan(j[1])
    assert j[2] == pytest.approx(0.25)
    assert j[3] == pytest.approx(0.09)


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
