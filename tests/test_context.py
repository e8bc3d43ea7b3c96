import numpy as np
import pytest

from fedmmf import context, rng, simulation
from fedmmf.aggregation.plain import Plain
from fedmmf.context import RemoteGradient, crowd_gradient, party_gradient, train_context
from fedmmf.masks.models import FAMILIES
from fedmmf.party import Party
from fedmmf.transport import InProcess

KINDS = ["lr", "fm", "nn"]


def start(kind, d):
    found = FAMILIES[kind].start(np.random.default_rng(1), d)
    return found if len(found) else 0.1 * np.arange(1 + d)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_the_slope_of_the_weighted_error(kind):
    generator = np.random.default_rng(0)
    x, y, weights = generator.standard_normal((7, 3)), generator.standard_normal(7), np.arange(7.0)
    family, theta = FAMILIES[kind], start(kind, 3)

    def loss(at):
        return 0.5 * np.sum(weights * (family.predict(x, at) - y) ** 2)

    step = 1e-6
    slope = [
        (loss(theta + step * row) - loss(theta - step * row)) / (2 * step)
        for row in np.eye(len(theta))
    ]
    np.testing.assert_allclose(family.gradient(x, y, weights, theta), slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_the_crowds_gradient_is_the_sum_of_the_parties(small, kind):
    features = simulation.content_features(small)
    theta = start(kind, features.shape[1])
    family = FAMILIES[kind]
    total = sum(
        party_gradient(
            family,
            features[small.item_codes[small.user_codes == user]],
            small.values[small.user_codes == user],
            small.scale,
            theta,
        )
        for user in range(small.n_users)
    )
    crowd = crowd_gradient(family, features, small.item_codes, small.values, small.scale)
    np.testing.assert_allclose(crowd(theta), total, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_train_the_same_model(small, kind):
    features = simulation.content_features(small)
    parties = {}
    for user in range(small.n_users):
        mine = small.user_codes == user
        ratings = small.values[mine]
        parties[f"{user:03}"] = Party(
            small.item_codes[mine], ratings, small.scale, features, mask="mean", sharing="plain"
        )
    remote = RemoteGradient(kind, Plain(InProcess(parties), sorted(parties)))
    crowd = crowd_gradient(FAMILIES[kind], features, small.item_codes, small.values, small.scale)
    models = [
        train_context(
            kind, source, features.shape[1], len(small), small.scale,
            strength=1.0, rounds=15, rng=rng.stream(0, "test"),
        )
        for source in (remote, crowd)
    ]  # fmt: skip
    np.testing.assert_allclose(models[0].theta, models[1].theta, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_model_beats_the_global_mean(small, kind):
    train, test = small.split(0.3, seed=0)
    features = simulation.content_features(small)
    gradient = crowd_gradient(FAMILIES[kind], features, train.item_codes, train.values, small.scale)
    model = train_context(
        kind, gradient, features.shape[1], len(train), small.scale,
        strength=10.0, rounds=200, rng=rng.stream(0, "test"),
    )  # fmt: skip
    error = test.values - model.predict(features)[test.item_codes]
    assert np.mean(error**2) < np.mean((test.values - train.values.mean()) ** 2)


def test_only_models_with_a_gradient_can_be_shared(small):
    with pytest.raises(ValueError, match="no context model"):
        context.crowd_gradient(
            FAMILIES["mean"],
            np.zeros((small.n_items, 0)),
            small.item_codes,
            small.values,
            small.scale,
        )
