import numpy as np
import pytest

from fedmmf.config import Settings
from fedmmf.errors import WireError
from fedmmf.solvers import sgd
from fedmmf.solvers.contract import Ground, ItemSums, Public
from fedmmf.solvers.sgd import SGD, Factors, SgdParty, SgdPlan, SgdServer


def plan(step="sum", rate=0.01, regularization=0.1, prior=1.0, biases=False):
    return SgdPlan(sgd.STEPS.index(step), rate, regularization, prior, float(biases))


def ground(n_items, level=0.0, seed=0):
    stream = np.random.default_rng(seed)
    return Ground(n_items, 4.0, level, 30.0, np.zeros((n_items, 0)), stream)


@pytest.fixture
def party():
    generator = np.random.default_rng(2)
    return (
        generator.standard_normal(8),
        generator.standard_normal((8, 3)),
        generator.standard_normal(3),
    )


def loss(r, q, p, regularization, prior):
    """Eq. 2 with errata 1 and 4: 1/2 sum [(r - q.p)^2 + lambda (|q|^2 + |p - p0|^2)]."""
    p0 = np.array([prior, 0, 0])
    return 0.5 * sum(
        (r[i] - q[i] @ p) ** 2 + regularization * (q[i] @ q[i] + (p - p0) @ (p - p0))
        for i in range(len(r))
    )


def test_the_party_steps_down_the_loss_and_then_sends_its_slope_in_q(party):
    """Errata 2 (the sign) and 3 (e' with the new p)."""
    r, q, start = party
    step = 1e-6
    moved = Factors.starting_at(start.copy())
    eta = sgd.party_update(r, q, moved, plan(), t=1)
    for f in range(3):
        up, down = start.copy(), start.copy()
        up[f] += step
        down[f] -= step
        slope = (loss(r, q, up, 0.1, 1.0) - loss(r, q, down, 0.1, 1.0)) / (2 * step)
        assert moved.value[f] == pytest.approx(start[f] - 0.01 * slope, abs=1e-6)
        for i in range(8):
            up, down = q.copy(), q.copy()
            up[i, f] += step
            down[i, f] -= step
            after = moved.value
            slope = (loss(r, up, after, 0.1, 1.0) - loss(r, down, after, 0.1, 1.0)) / (2 * step)
            assert eta[i, f] == pytest.approx(slope, abs=1e-5)


def test_a_zero_prior_is_the_papers_rule(party):
    r, q, start = party
    moved = Factors.starting_at(start.copy())
    sgd.party_update(r, q, moved, plan(prior=0.0), t=1)
    error = r - q @ start
    paper = start - 0.01 * sum(0.1 * start - error[i] * q[i] for i in range(8))
    np.testing.assert_allclose(moved.value, paper, rtol=1e-5)


def test_mean_divides_by_the_number_of_summands():
    x, g = np.ones((2, 3)), np.full((2, 3), 6.0)
    factors = Factors.starting_at(x.copy())
    sgd.descend(factors, g, np.array([[3], [0]]), plan("mean", rate=0.5), t=1)
    np.testing.assert_allclose(factors.value, [[0.0] * 3, [-2.0] * 3])


def test_adam_is_adam():
    """Kingma and Ba 2015, Algorithm 1, written out for one number."""
    factors = Factors.starting_at(np.array([1.0]))
    x, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate([0.3, -2.0, 0.7, 0.7], start=1):
        sgd.descend(factors, np.array([g]), 1, plan("adam", rate=0.05), t)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        x -= 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        assert factors.value[0] == pytest.approx(x, rel=1e-4)


def test_a_late_party_lands_where_its_updates_would_lead(party):
    r, q, _ = party
    late = sgd.settled_factors(r, q, plan())
    patient = Factors.starting_at(np.zeros(3))
    for t in range(1, 3000):
        sgd.party_update(r, q, patient, plan(), t)
    np.testing.assert_allclose(late, patient.value, atol=1e-4)


def test_auto_regularization_falls_with_history_and_grows_with_the_scale():
    assert sgd.auto_regularization(4.0, 100.0) == pytest.approx(0.1)
    assert sgd.auto_regularization(4.0, 400.0) == pytest.approx(0.05)
    assert sgd.auto_regularization(40.0, 100.0) == pytest.approx(1.0)


def test_the_start_predicts_the_level():
    server = SgdServer(plan(), ground(5000, level=3.0), 3)
    p = sgd.start_user_factors(1, 3)[0]
    assert (server.public().item_factors @ p).mean() == pytest.approx(3.0, abs=0.02)


def test_the_plan_survives_its_numbers():
    public = Public(3, plan("adam", biases=True).to_parameters(), np.zeros((1, 3)))
    assert SgdPlan.of(public) == plan("adam", biases=True)


def test_biases_are_pinned_on_both_sides(party):
    """q_i0 is then the item's bias and p_u1 the user's: p_u0 and q_i1 stay 1."""
    r, _, _ = party
    rule = plan("adam", rate=0.1, biases=True)
    server = SgdServer(rule, ground(8), 4)
    local = SgdParty(4)
    for t in range(1, 30):
        rows, totals = local.update(r, server.public(), t)
        server.advance(ItemSums(rows, np.ones(8, int), totals), t)
    assert local.user_factors[0] == 1.0
    assert (server.public().item_factors[:, 1] == 1.0).all()
    assert local.user_factors[1] != 0.0
    late = sgd.settled_factors(r, server.public().item_factors, rule)
    assert late[0] == pytest.approx(1.0, abs=1e-6)


def test_the_plan_takes_what_the_settings_leave_to_auto():
    found = SgdPlan.filled_in(Settings(step="mean"), ground(5))
    assert found.learning_rate == sgd.DEFAULT_RATES["mean"]
    assert found.regularization == sgd.auto_regularization(4.0, 30.0)
    chosen = Settings(step="sum", learning_rate=0.3, regularization=0.0, user_prior=0.0)
    assert SgdPlan.filled_in(chosen, ground(5)) == plan("sum", 0.3, 0.0, 0.0)


def test_biases_are_two_factors_more():
    assert SGD.rank(Settings(factors=5)) == 5
    assert SGD.rank(Settings(factors=5, biases=True)) == 7


def test_what_nobody_rated_loses_its_starting_noise():
    """The mask alone, and the level, predict an item that has no rater in the first round."""
    server = SgdServer(plan(), ground(3, level=2.5), 4)
    server.advance(ItemSums(np.zeros((3, 4)), np.array([1, 0, 2]), np.zeros(0)), 1)
    factors = server.public().item_factors
    assert factors[1].tolist() == [2.5, 0, 0, 0]
    assert factors[0, 1:].all()


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ([1, 0.1, 0.1, 1], "5 numbers; got 4"),
        ([1, 0.1, 0.1, 1, 0, 0], "5 numbers; got 6"),
        ([1.5, 0.1, 0.1, 1, 0], "the step is one of .*; got 1.5"),
        ([3, 0.1, 0.1, 1, 0], "the step is one of .*; got 3"),
        ([-1, 0.1, 0.1, 1, 0], "the step is one of .*; got -1"),
        ([1, 0, 0.1, 1, 0], r"the learning rate is in \(0, 1e6\]; got 0"),
        ([1, -0.1, 0.1, 1, 0], "the learning rate .*; got -0.1"),
        ([1, 1e300, 0.1, 1, 0], r"the learning rate .*; got 1e\+300"),
        ([1, 0.1, -0.1, 1, 0], r"lambda is in \[0, 1e6\]; got -0.1"),
        ([1, 0.1, 1e300, 1, 0], r"lambda .*; got 1e\+300"),
        ([1, 0.1, 0.1, 1, 0.5], "biases are 0, or 1 with two factors; got 0.5"),
        ([1, 0.1, 0.1, 1, -1], "biases .*; got -1"),
    ],
)
def test_a_plan_out_of_range_is_refused(parameters, reason):
    with pytest.raises(WireError, match=f"the server's numbers are out of range: .*{reason}"):
        SGD.check(Public(3, np.array(parameters, np.float64), np.zeros((1, 3), np.float32)))


def test_biases_need_two_factors():
    parameters = plan(biases=True).to_parameters()
    SGD.check(Public(2, parameters, np.zeros((1, 2), np.float32)))
    with pytest.raises(WireError, match="with two factors"):
        SGD.check(Public(1, parameters, np.zeros((1, 1), np.float32)))
