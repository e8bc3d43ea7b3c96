import numpy as np
import pytest

from fedmmf.factorization import sgd
from fedmmf.factorization.contract import ItemSums, Public
from fedmmf.factorization.sgd import Factors, Plan
from fedmmf.factorization.stopping import EarlyStop


def plan(step="sum", rate=0.01, regularization=0.1, prior=1.0, biases=False):
    return Plan(sgd.STEPS.index(step), rate, regularization, prior, float(biases))


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
    server = sgd.Server(plan(), np.random.default_rng(0), 5000, 3, level=3.0)
    p = sgd.start_user_factors(1, 3)[0]
    assert (server.public().item_factors @ p).mean() == pytest.approx(3.0, abs=0.02)


def test_the_plan_survives_its_numbers():
    public = Public(3, plan("adam", biases=True).to_parameters(), np.zeros((1, 3)))
    assert Plan.of(public) == plan("adam", biases=True)


def test_biases_are_pinned_on_both_sides(party):
    """q_i0 is then the item's bias and p_u1 the user's: p_u0 and q_i1 stay 1."""
    r, _, _ = party
    rule = plan("adam", rate=0.1, biases=True)
    server = sgd.Server(rule, np.random.default_rng(0), 8, 4, level=0.0)
    local = sgd.Local(4)
    for t in range(1, 30):
        rows, totals = local.update(r, server.public(), t)
        server.advance(ItemSums(rows, np.ones(8, int), totals), t)
    assert local.user_factors[0] == 1.0
    assert (server.public().item_factors[:, 1] == 1.0).all()
    assert local.user_factors[1] != 0.0
    late = sgd.settled_factors(r, server.public().item_factors, rule)
    assert late[0] == pytest.approx(1.0, abs=1e-6)


def test_early_stop_waits_for_its_patience():
    stop = EarlyStop(patience=2)
    assert [stop.observe(e, 1) for e in (4.0, 1.0, 2.0)] == [True, True, False]
    assert (stop.best_round, stop.best_rmse, stop.is_over) == (2, 1.0, False)
    stop.observe(1.0, 1)
    assert stop.is_over


def test_without_held_out_ratings_nothing_is_best():
    stop = EarlyStop(patience=1)
    assert not stop.observe(0.0, 0)
    assert (stop.best_round, stop.is_over) == (0, False)
