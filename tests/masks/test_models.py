"""Each family against a slow and obvious oracle."""

import numpy as np
import pytest

from fedmmf.masks import FAMILIES, models


@pytest.fixture
def problem():
    generator = np.random.default_rng(5)
    return generator.standard_normal((40, 6)), 0.3 * generator.standard_normal(40)


PULL = 1.7


def test_mean_is_the_shrunken_mean(problem):
    x, y = problem
    assert models.fit_mean(x, y, 2.0, PULL)[0] == pytest.approx(y.sum() / 42)


def test_ridge_is_least_squares_on_augmented_rows(problem):
    x, y = problem
    root = np.sqrt([PULL] + [3.0] * 6)
    rows = np.vstack((np.column_stack((np.ones(40), x)), np.diag(root)))
    oracle = np.linalg.lstsq(rows, np.concatenate((y, np.zeros(7))))[0]
    theta = models.fit_lr(x, y, 3.0, PULL)
    np.testing.assert_allclose(theta, oracle, rtol=1e-10)
    np.testing.assert_allclose(models.predict_lr(x, theta), rows[:40] @ oracle, rtol=1e-10)


def test_families_differ_in_what_they_see_alone(problem):
    x, y = problem
    fits = [FAMILIES[name].fit(x, y, 3.0, PULL) for name in ("lr", "fm", "nn")]
    assert np.array_equal(fits[0], fits[1])
    assert np.array_equal(fits[0], fits[2])
