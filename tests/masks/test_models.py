"""Each family against a slow and obvious oracle."""

import numpy as np
import pytest

from fedmmf.masks import FAMILIES, models


@pytest.fixture
def problem():
    generator = np.random.default_rng(5)
    return generator.standard_normal((40, 6)), 0.3 * generator.standard_normal(40)


PULL = 1.7


def start(family, d, seed=0):
    return FAMILIES[family].start(np.random.default_rng(seed), d)


def fm_objective(theta, x, y, strength):
    n, d = x.shape
    b, w = theta[0], theta[1 : 1 + d]
    v = theta[1 + d :].reshape(models.FM_RANK, d)
    f = np.full(n, b) + x @ w
    for i in range(d):
        for j in range(i + 1, d):
            f += (v[:, i] @ v[:, j]) * x[:, i] * x[:, j]
    penalty = PULL * b**2 + strength * (w @ w)
    return np.sum((y - f) ** 2) + penalty + models.FM_PAIR_PENALTY * strength * np.sum(v**2)


def slope(function, theta, step=1e-6):
    out = np.empty_like(theta)
    for j in range(len(theta)):
        up, down = theta.copy(), theta.copy()
        up[j] += step
        down[j] -= step
        out[j] = (function(up) - function(down)) / (2 * step)
    return out


def test_mean_is_the_shrunken_mean(problem):
    x, y = problem
    assert models.fit_mean(x, y, 2.0, PULL, np.zeros(0))[0] == pytest.approx(y.sum() / 42)


def test_ridge_is_least_squares_on_augmented_rows(problem):
    x, y = problem
    root = np.sqrt([PULL] + [3.0] * 6)
    rows = np.vstack((np.column_stack((np.ones(40), x)), np.diag(root)))
    oracle = np.linalg.lstsq(rows, np.concatenate((y, np.zeros(7))))[0]
    theta = models.fit_lr(x, y, 3.0, PULL, np.zeros(0))
    np.testing.assert_allclose(theta, oracle, rtol=1e-10)
    np.testing.assert_allclose(models.predict_lr(x, theta), rows[:40] @ oracle, rtol=1e-10)


def test_fm_predicts_the_sum_over_pairs(problem):
    x, y = problem
    theta = np.random.default_rng(1).standard_normal(1 + 6 + models.FM_RANK * 6)
    f = models.predict_fm(x, theta)
    penalty = fm_objective(theta, x, y, 0.0) - np.sum((y - f) ** 2)
    assert penalty == pytest.approx(PULL * theta[0] ** 2)


def test_fm_descends_to_a_stationary_point(problem, monkeypatch):
    x, y = problem

    def objective(theta):
        return fm_objective(theta, x, y, 1.0)

    values = []
    for sweeps in (1, 3, 400):
        monkeypatch.setattr(models, "FM_SWEEPS", sweeps)
        values.append(objective(models.fit_fm(x, y, 1.0, PULL, start("fm", 6))))
    assert values[0] >= values[1] >= values[2]
    final = models.fit_fm(x, y, 1.0, PULL, start("fm", 6))
    assert np.abs(slope(objective, final)).max() < 1e-5
    assert np.abs(final[7:]).max() > 0.01  # the pairs take part


def test_nn_descends_its_objective_to_a_stationary_point(problem, monkeypatch):
    x, y = problem

    def objective(theta):
        error = y - models.predict_nn(x, theta)
        penalty = np.sum(theta[1:] ** 2)
        return np.sum(error**2) + PULL * theta[0] ** 2 + 0.1 * penalty

    first = start("nn", 6)
    assert objective(models.fit_nn(x, y, 0.1, PULL, first)) < 0.7 * objective(first)
    monkeypatch.setattr(models, "NN_STEPS", 4000)
    monkeypatch.setattr(models, "NN_RATE", 0.002)
    final = models.fit_nn(x, y, 0.1, PULL, first)
    assert np.abs(slope(objective, final)).max() < 0.01 * np.abs(slope(objective, first)).max()


def test_nn_prediction_unit_by_unit(problem):
    x, _ = problem
    theta = start("nn", 6, seed=2)
    h = models.NN_HIDDEN
    weights = theta[1 + 2 * h :].reshape(h, 6)
    slow = [
        theta[0]
        + sum(theta[1 + u] * np.tanh(weights[u] @ row + theta[1 + h + u]) for u in range(h))
        for row in x
    ]
    np.testing.assert_allclose(models.predict_nn(x, theta), slow, rtol=1e-12)


def test_parties_do_not_share_a_random_start():
    assert not np.array_equal(start("nn", 4, seed=1), start("nn", 4, seed=2))


@pytest.mark.parametrize("name", [name for name in FAMILIES.names() if FAMILIES[name].gradient])
def test_a_gradient_is_the_slope_of_weighted_squares(problem, name):
    x, y = problem
    family, generator = FAMILIES[name], np.random.default_rng(3)
    theta = 0.3 * generator.standard_normal(family.n_parameters(6))
    weights = generator.random(40)

    def loss(theta):
        return 0.5 * np.sum(weights * (family.predict(x, theta) - y) ** 2)

    np.testing.assert_allclose(
        family.gradient(x, y, weights, theta), slope(loss, theta), rtol=1e-5, atol=1e-7
    )
