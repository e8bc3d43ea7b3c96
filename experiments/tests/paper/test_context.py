import numpy as np
import polars as pl
import pytest

from fedmmf import rng
from fedmmf.data.features import content_features
from fedmmf_experiments.paper.context import Context, ContextPlan, summed_gradient, train_context
from fedmmf_experiments.paper.models import ROWS, row_called, run_row

PLANS = [ContextPlan("lr"), ContextPlan("fm", rank=1), ContextPlan("fm"), ContextPlan("nn")]
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.kind}-{plan.rank}")


@pytest.fixture(scope="module")
def told(small):
    """Ratings of users who say something of themselves; some say the same."""
    codes = np.arange(small.n_users)
    people = {"user_id": small.user_ids, "town": (codes % 3).astype(str), "old": codes % 2 == 0}
    return small.with_profiles(pl.DataFrame(people))


def away_from_zero(plan, n_features):
    start = plan.model.start(rng.stream(0, "test"), n_features)
    return start if start.any() else 0.1 * np.arange(len(start))


@every_plan
def test_gradient_is_the_slope_of_the_weighted_error(plan):
    generator = np.random.default_rng(0)
    x, y, weights = generator.standard_normal((7, 3)), generator.standard_normal(7), np.arange(7.0)
    model, theta = plan.model, away_from_zero(plan, 3)

    def loss(at):
        return 0.5 * np.sum(weights * (model.predict(x, at) - y) ** 2)

    step = 1e-6
    slope = [
        (loss(theta + step * row) - loss(theta - step * row)) / (2 * step)
        for row in np.eye(len(theta))
    ]
    np.testing.assert_allclose(model.gradient(x, y, weights, theta), slope, rtol=1e-5, atol=1e-7)


def party_gradient(model, context, ratings, user, theta):
    """The oracle: what one party would add to the sum, from its own ratings and profile alone."""
    mine = ratings.user_codes == user
    of_items = context.items[ratings.item_codes[mine]]
    x = np.hstack((of_items, np.tile(context.users[user], (mine.sum(), 1))))
    y = ratings.scale.to_unit(ratings.values[mine]) - 0.5
    return model.gradient(x, y, np.ones(len(x)), theta)


@every_plan
@pytest.mark.parametrize("with_profiles", [True, False])
def test_the_crowds_gradient_is_the_sum_of_the_parties(told, plan, with_profiles):
    plan = ContextPlan(plan.kind, rank=plan.rank, profiles=with_profiles)
    model, context = plan.model, Context.of(told, plan)
    theta = away_from_zero(plan, context.width)
    total = sum(party_gradient(model, context, told, user, theta) for user in range(told.n_users))
    crowd = summed_gradient(model, context, told)
    np.testing.assert_allclose(crowd(theta), total, rtol=1e-6, atol=1e-8)


def test_the_machine_is_a_sum_over_pairs(small):
    x = content_features(small)[:9]
    d = x.shape[1]
    theta = np.random.default_rng(4).standard_normal(1 + d + 2 * d)
    v = theta[1 + d :].reshape(2, d)
    pairs = sum((v[:, i] @ v[:, j]) * x[:, i] * x[:, j] for i in range(d) for j in range(i))
    slow = theta[0] + x @ theta[1 : 1 + d] + pairs
    np.testing.assert_allclose(ContextPlan("fm", rank=2).model.predict(x, theta), slow)


def test_the_network_goes_unit_by_unit(small):
    x, model = content_features(small)[:9], ContextPlan("nn").model
    theta = model.start(rng.stream(0, "test"), x.shape[1])
    h, weights = model.hidden, theta[1 + 2 * model.hidden :].reshape(model.hidden, -1)
    units = [np.tanh(x @ weights[u] + theta[1 + h + u]) for u in range(h)]
    slow = theta[0] + sum(theta[1 + u] * unit for u, unit in enumerate(units))
    np.testing.assert_allclose(model.predict(x, theta), slow)


@every_plan
def test_a_context_model_beats_the_global_mean(small, plan):
    train, test = small.split(0.3, seed=0)
    model = train_context(ContextPlan(plan.kind, rounds=200, rank=plan.rank), train)
    error = test.values - model.predict(test)
    assert np.mean(error**2) < np.mean((test.values - train.values.mean()) ** 2)


@pytest.mark.parametrize("with_profiles", [True, False])
def test_the_linear_model_becomes_the_ridge_regression_of_everybodys_ratings(told, with_profiles):
    plan = ContextPlan("lr", strength=10.0, rounds=3000, profiles=with_profiles)
    rows = Context.of(told, plan).rows(told.user_codes, told.item_codes)
    assert rows.shape[1] == told.features.values.shape[1] + 5 * with_profiles
    x = np.column_stack((np.ones(len(told)), rows))
    penalty = 10.0 * np.diag([0.0] + [1.0] * (x.shape[1] - 1))
    ridge = np.linalg.solve(x.T @ x + penalty, x.T @ (told.scale.to_unit(told.values) - 0.5))
    np.testing.assert_allclose(train_context(plan, told).theta, ridge, atol=1e-3)


def test_profiles_can_be_ignored_and_are_not_needed(small, told):
    alone = train_context(ContextPlan("lr", rounds=20), small)
    ignored = train_context(ContextPlan("lr", rounds=20, profiles=False), told)
    np.testing.assert_array_equal(alone.theta, ignored.theta)
    seen = train_context(ContextPlan("lr", rounds=20), told)
    same_item = told.select(told.item_codes == 0)
    assert len(np.unique(seen.predict(same_item))) > 1 == len(np.unique(alone.predict(same_item)))


def test_the_same_seed_gives_the_same_model_and_another_one_another(small):
    thetas = [train_context(ContextPlan("nn", rounds=3, seed=s), small).theta for s in (1, 1, 2)]
    np.testing.assert_array_equal(thetas[0], thetas[1])
    assert not np.array_equal(thetas[0], thetas[2])


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind == "context"], ids=lambda r: r.name
)
def test_a_row_says_what_it_saw(told, row):
    train, test = told.split(0.2)
    found = run_row(row, train, test, {"rounds": 5}, seed=0).settings
    assert found["profiles"] == ("without" not in row.name)
    assert ("rank" in found) == (row.mask == "fm")


def test_profiles_help_on_ml_100k(ml_100k):
    """Least squares on items and profiles gives an RMSE of 1.076, on items alone 1.086."""
    train, test = ml_100k.split(0.2, seed=0)
    names = ("FedLR", "FedLR without profiles")
    tuned = {"strength": 2.2, "rounds": 110}
    seen, alone = (run_row(row_called(name), train, test, tuned, 0).rmse for name in names)
    assert seen == pytest.approx(1.0774, abs=5e-4)
    assert alone == pytest.approx(1.0869, abs=5e-4)
