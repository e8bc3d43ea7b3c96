import numpy as np
import pytest

from fedmmf.masks import FAMILIES
from fedmmf.paper.context import ContextPlan, crowd_gradient, train_context
from fedmmf.simulation.features import content_features

KINDS = ["lr", "fm", "nn"]


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_the_slope_of_the_weighted_error(kind):
    generator = np.random.default_rng(0)
    x, y, weights = generator.standard_normal((7, 3)), generator.standard_normal(7), np.arange(7.0)
    family, theta = FAMILIES[kind], away_from_zero(kind, 3)

    def loss(at):
        return 0.5 * np.sum(weights * (family.predict(x, at) - y) ** 2)

    step = 1e-6
    slope = [
        (loss(theta + step * row) - loss(theta - step * row)) / (2 * step)
        for row in np.eye(len(theta))
    ]
    np.testing.assert_allclose(family.gradient(x, y, weights, theta), slope, rtol=1e-5, atol=1e-7)


def away_from_zero(kind, n_features):
    start = ContextPlan(kind).start(n_features).value
    return start if start.any() else 0.1 * np.arange(len(start))


def party_gradient(family, features, ratings, user, theta):
    """The oracle: what one party would add to the sum, from its own ratings alone."""
    mine = ratings.user_codes == user
    x, y = features[ratings.item_codes[mine]], ratings.scale.to_unit(ratings.values[mine]) - 0.5
    return family.gradient(x, y, np.ones(len(x)), theta)


@pytest.mark.parametrize("kind", KINDS)
def test_the_crowds_gradient_is_the_sum_of_the_parties(small, kind):
    family, features = FAMILIES[kind], content_features(small)
    theta = away_from_zero(kind, features.shape[1])
    total = sum(
        party_gradient(family, features, small, user, theta) for user in range(small.n_users)
    )
    crowd = crowd_gradient(family, features, small)
    np.testing.assert_allclose(crowd(theta), total, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_model_beats_the_global_mean(small, kind):
    train, test = small.split(0.3, seed=0)
    model = train_context(ContextPlan(kind, strength=10.0, rounds=200), train)
    error = test.values - model.predict(test)
    assert np.mean(error**2) < np.mean((test.values - train.values.mean()) ** 2)


def test_the_linear_model_becomes_the_ridge_regression_of_everybodys_ratings(small):
    model = train_context(ContextPlan("lr", strength=10.0, rounds=3000), small)
    x = np.column_stack((np.ones(len(small)), content_features(small)[small.item_codes]))
    penalty = 10.0 * np.diag([0.0] + [1.0] * (x.shape[1] - 1))
    ridge = np.linalg.solve(x.T @ x + penalty, x.T @ (small.scale.to_unit(small.values) - 0.5))
    np.testing.assert_allclose(model.theta, ridge, atol=1e-4)


def test_the_same_seed_gives_the_same_model_and_another_one_another(small):
    thetas = [train_context(ContextPlan("nn", rounds=3, seed=s), small).theta for s in (1, 1, 2)]
    np.testing.assert_array_equal(thetas[0], thetas[1])
    assert not np.array_equal(thetas[0], thetas[2])


def test_only_models_with_a_gradient_can_be_shared(small):
    with pytest.raises(ValueError, match="no context model"):
        crowd_gradient(FAMILIES["mean"], np.zeros((small.n_items, 0)), small)
