"""Differences over splits, and their intervals."""

import numpy as np
import pytest
from scipy import stats

from fedmmf_experiments.paired import paired_difference


def test_the_interval_is_that_of_a_paired_t_test():
    first, second = [0.91, 0.93, 0.90, 0.95], [0.90, 0.91, 0.90, 0.92]
    found = paired_difference(first, second, 0.0)
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.mean == pytest.approx(0.015)
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=1e-5)
    assert str(found) == f"+0.0150 ({found.low:+.4f} to {found.high:+.4f})"


def test_one_split_has_no_interval():
    found = paired_difference([0.9], [1.0], 0.2)
    assert found.low is found.high is None
    assert str(found) == "-0.1000"


def test_intervals_hold_what_they_should():
    draws = np.random.default_rng(0).standard_normal((500, 2, 6))
    found = [paired_difference(*pair, test=0.0) for pair in draws]
    assert 0.92 < np.mean([one.low < 0 < one.high for one in found]) < 0.98


def test_splits_that_overlap_say_less():
    """Means of splits of the same numbers: what they share does not average out."""
    generator, hold, n = np.random.default_rng(1), [], 200
    for _ in range(400):
        values = generator.standard_normal(n)
        figures = [values[generator.permutation(n)[:40]].mean() for _ in range(10)]
        plain, wider = (paired_difference(figures, [0.0] * 10, test) for test in (0.0, 0.2))
        assert wider.high - wider.low == pytest.approx(
            np.sqrt(3.5) * (plain.high - plain.low), 1e-3
        )
        hold.append((plain.low < 0 < plain.high, wider.low < 0 < wider.high))
    plain_share, wider_share = np.mean(hold, axis=0)
    assert plain_share < 0.85 < 0.9 < wider_share
