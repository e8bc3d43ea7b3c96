"""Differences over splits, and their intervals."""

import numpy as np
import pytest
from scipy import stats

from fedmmf.evaluation import paired_difference


def test_the_interval_is_that_of_a_paired_t_test():
    first, second = [0.91, 0.93, 0.90, 0.95], [0.90, 0.91, 0.90, 0.92]
    found = paired_difference(first, second)
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.mean == pytest.approx(0.015)
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=1e-5)
    assert str(found) == f"+0.0150 ({found.low:+.4f} to {found.high:+.4f})"


def test_one_split_has_no_interval():
    found = paired_difference([0.9], [1.0])
    assert found.low is found.high is None
    assert str(found) == "-0.1000"


def test_intervals_hold_what_they_should():
    draws = np.random.default_rng(0).standard_normal((500, 2, 6))
    found = [paired_difference(*pair) for pair in draws]
    assert 0.92 < np.mean([one.low < 0 < one.high for one in found]) < 0.98
