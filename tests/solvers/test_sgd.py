import numpy as np
import pytest

from fedmmf.errors import WireError
from fedmmf.settings import Settings
from fedmmf.solvers import sgd
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext, UserData
from fedmmf.solvers.sgd import SGD, AllUsers, Factors, SgdParty, SgdPlan, SgdServer


def plan(step="sum", rate=0.01, regularization=0.1, prior=1.0, biases=False, per_user=0.0):
    return SgdPlan(sgd.STEPS.index(step), rate, regularization, prior, float(biases), per_user)


def context(n_items, level=0.0, seed=0):
    stream = np.random.default_rng(seed)
    nothing = np.zeros((n_items, 0))
    return SolverContext(n_items, 4.0, 1.0, level, 30.0, nothing, nothing, stream)


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


def test_a_late_party_lands_where_updates_lead_whose_prior_is_the_mean_user(party):
    """With a weight of n lambda, which is theirs."""
    r, q, _ = party
    late = sgd.solved_factors(r, q, plan(), AllUsers(np.array([1.0, 0, 0]), np.full(3, 8 * 0.1)))
    patient = Factors.starting_at(np.zeros(3))
    for t in range(1, 3000):
        sgd.party_update(r, q, patient, plan(), t)
    np.testing.assert_allclose(late, patient.value, atol=1e-4)


def test_who_settles_is_shrunk_to_the_mean_user(party):
    """Each number by its own weight."""
    r, q, mean = party
    weight = np.array([0.2, 3.0, 40.0])
    found = sgd.solved_factors(r, q, plan(prior=0.0), AllUsers(mean, weight))
    # r = q.p + noise with p around the mean: a regression with a row more for each number of p
    rows = np.vstack((q, np.diag(np.sqrt(weight))))
    expected = np.linalg.lstsq(rows, np.concatenate((r, np.sqrt(weight) * mean)))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize("biases", [False, True])
def test_who_has_rated_nothing_settles_as_the_mean_user(biases):
    mean = np.array([0.8, 0.5, -0.25])
    nothing = (np.zeros(0), np.zeros((0, 3), np.float32))
    found = sgd.solved_factors(*nothing, plan(biases=biases), AllUsers(mean, np.full(3, 2.0)))
    np.testing.assert_allclose(found, [1.0 if biases else 0.8, 0.5, -0.25], rtol=1e-6)


@pytest.mark.parametrize("biases", [False, True])
def test_with_biases_the_first_factor_of_who_settles_is_one(party, biases):
    r, q, mean = party
    found = sgd.solved_factors(r, q, plan(biases=biases), AllUsers(mean, np.full(3, 2.0)))
    if not biases:
        assert abs(found[0] - 1.0) > 0.01
        return
    weight = np.sqrt(2.0)
    rows, targets = np.vstack((q[:, 1:], weight * np.eye(2))), (r - q[:, 0], weight * mean[1:])
    expected = np.linalg.lstsq(rows, np.concatenate(targets))[0]
    np.testing.assert_allclose(found, [1.0, *expected], rtol=1e-5, atol=1e-6)


def test_totals_are_one_p_u_and_its_squares():
    """After the update; who has rated nothing is not counted."""
    generator = np.random.default_rng(3)
    broadcast = SgdServer(plan(), context(6), 3).broadcast()
    half, own = (
        SgdParty(3),
        UserData(np.arange(4), generator.standard_normal(4), np.zeros(0), np.zeros(0)),
    )
    for t in (1, 2):
        before = half.user_factors.copy()
        _, totals = half.update(own, broadcast, t)
        assert totals.dtype == np.float64
        p = half.user_factors.astype(np.float64)
        assert np.array_equal(totals, [1.0, *p, *(p * p)])
        assert not np.array_equal(before, half.user_factors)
    nobody = UserData(np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros(0))
    rows, totals = SgdParty(3).update(nobody, broadcast, 1)
    assert rows.shape == (0, 3)
    assert totals.tolist() == [0.0] * 7


def test_the_mean_user_is_published_and_is_the_stranger():
    server, update_shape = SgdServer(plan(per_user=7.0), context(2), 3), SGD.update_shape(3, "")
    assert AllUsers.of(server.broadcast()).mean.tolist() == [1, 0, 0]  # where everybody starts
    assert AllUsers.of(server.broadcast()).weight.tolist() == pytest.approx([0.7] * 3)
    totals = np.array([4.0, 3.0, 2.0, -1.0, 2.5, 2.0, 0.25])
    sums = ItemSums(np.zeros((2, 3)), np.array([4, 4]), totals)
    server.advance(sums, 1)
    broadcast = server.broadcast()
    weight = [1 / (2.5 / 4 - 0.75**2), 1 / (0.5 - 0.25), 1e6]  # a quarter of 1..5 is 1
    assert broadcast.parameters[:9].tolist() == [0, 0.01, 0.1, 1, 0, 7, 0.75, 0.5, -0.25]
    assert AllUsers.of(broadcast).weight.tolist() == pytest.approx(weight)
    default_user = SGD.default_user(update_shape, broadcast)
    assert default_user.tolist() == [0.75, 0.5, -0.25]
    assert default_user.dtype == np.float32
    again = SgdServer(plan(per_user=7.0), context(2), 3)
    again.restore(server.state())
    assert np.array_equal(again.broadcast().parameters, broadcast.parameters)


@pytest.mark.parametrize("totals", [[0.0] * 7, [0.9] + [5.0] * 6, [-3.0] + [5.0] * 6])
def test_where_nobody_is_counted_the_mean_user_stays(totals):
    """With noise that hides users, totals are zeros."""
    server = SgdServer(plan(per_user=7.0), context(2), 3)
    server.advance(ItemSums(np.zeros((2, 3)), np.array([4, 4]), np.array(totals)), 1)
    known = AllUsers.of(server.broadcast())
    assert known.mean.tolist() == [1, 0, 0]
    assert known.weight.tolist() == pytest.approx([7.0 * 0.1] * 3)  # a mean user's n lambda


@pytest.mark.parametrize("span", [4.0, 10.0])
def test_mean_and_weight_of_users_are_those_of_their_p_u(span):
    """Ratings' noise, a quarter of the scale, by the variance of each number of p_u."""
    p = np.random.default_rng(6).normal([1.0, 0.5, -2.0], [0.3, 2.0, 0.0], (50, 3))
    p = p.astype(np.float32)
    found = AllUsers.of_totals(AllUsers.totals_of(p).sum(axis=0), span)
    np.testing.assert_allclose(found.mean, p.mean(axis=0, dtype=np.float64), rtol=1e-12)
    variance = p[:, :2].astype(np.float64).var(axis=0)
    np.testing.assert_allclose(found.weight[:2], (span / 4) ** 2 / variance, rtol=1e-9)
    assert found.weight[2] == pytest.approx((span / 4) ** 2 * 1e6)  # all alike: nearly certain


def test_one_user_alone_is_all_that_is_known_of_users():
    """Rounding makes no variance negative."""
    p = np.array([0.1, -0.7, 3.3], np.float32)
    found = AllUsers.of_totals(AllUsers.totals_of(p), 4.0)
    assert found.mean.tolist() == p.tolist()
    assert found.weight.tolist() == pytest.approx([1e6] * 3)


def test_auto_regularization_falls_with_history_and_grows_with_the_scale():
    assert sgd.auto_regularization(4.0, 100.0) == pytest.approx(0.1)
    assert sgd.auto_regularization(4.0, 400.0) == pytest.approx(0.05)
    assert sgd.auto_regularization(40.0, 100.0) == pytest.approx(1.0)


def test_the_start_predicts_the_level():
    server = SgdServer(plan(), context(5000, level=3.0), 3)
    p = sgd.start_user_factors(1, 3)[0]
    assert (server.broadcast().item_factors @ p).mean() == pytest.approx(3.0, abs=0.02)


def test_the_plan_survives_its_numbers():
    rule, mean = plan("adam", biases=True, per_user=12.5), np.array([1.0, 0.5, -2.0])
    users = AllUsers(mean, np.array([1.0, 2.0, 3.0]))
    broadcast = Broadcast(3, rule.to_parameters(users), np.zeros((1, 3)))
    assert len(broadcast.parameters) == sgd.N_PLAN + 6
    assert SgdPlan.of(broadcast) == rule
    assert np.array_equal(AllUsers.of(broadcast).mean, mean)
    assert np.array_equal(AllUsers.of(broadcast).weight, users.weight)


def test_biases_are_pinned_on_both_sides(party):
    """q_i0 is then the item's bias and p_u1 the user's: p_u0 and q_i1 stay 1."""
    r, _, _ = party
    rule = plan("adam", rate=0.1, biases=True)
    server = SgdServer(rule, context(8), 4)
    local, own = SgdParty(4), UserData(np.arange(8), r, np.zeros(0), np.zeros(0))
    for t in range(1, 30):
        rows, totals = local.update(own, server.broadcast(), t)
        server.advance(ItemSums(rows, np.ones(8, int), totals), t)
    assert local.user_factors[0] == 1.0
    assert (server.broadcast().item_factors[:, 1] == 1.0).all()
    assert local.user_factors[1] != 0.0
    broadcast = server.broadcast()
    assert AllUsers.of(broadcast).mean[0] == 1.0
    late = sgd.solved_factors(r, broadcast.item_factors, rule, AllUsers.of(broadcast))
    assert late[0] == pytest.approx(1.0, abs=1e-6)


def test_the_plan_takes_what_the_settings_leave_to_auto():
    found = SgdPlan.filled_in(Settings(step="mean"), context(5))
    assert found.learning_rate == sgd.DEFAULT_RATES["mean"]
    assert found.regularization == sgd.auto_regularization(4.0, 30.0)
    chosen = Settings(step="sum", learning_rate=0.3, regularization=0.0, user_prior=0.0)
    assert SgdPlan.filled_in(chosen, context(5)) == plan("sum", 0.3, 0.0, 0.0, per_user=30.0)


def test_biases_are_two_factors_more():
    assert SGD.rank(Settings(factors=5)) == 5
    assert SGD.rank(Settings(factors=5, biases=True)) == 7


@pytest.mark.parametrize("step", sgd.STEPS)
def test_what_nobody_rated_is_the_mean_of_the_others_in_every_round(step):
    """Such an item has no starting noise, and follows where the others go."""
    server = SgdServer(plan(step, rate=0.5), context(4, level=2.5), 4)
    n_raters, draw, before = np.array([1, 0, 2, 0]), np.random.default_rng(5), []
    for t in (1, 2, 3):
        rows = np.where(n_raters[:, np.newaxis] > 0, draw.standard_normal((4, 4)), 0.0)
        server.advance(ItemSums(rows, n_raters, np.zeros(9)), t)
        factors = server.broadcast().item_factors
        expected = factors[[0, 2]].astype(np.float64).mean(axis=0)
        np.testing.assert_allclose(factors[[1, 3]], [expected] * 2, rtol=1e-6)
        before.append(expected)
    assert np.abs(np.diff(before, axis=0)).max(axis=1).min() > 0.01


def test_where_nobody_rated_anything_items_stay():
    server = SgdServer(plan(), context(3, level=2.5), 4)
    before = server.broadcast().item_factors
    server.advance(ItemSums(np.zeros((3, 4)), np.zeros(3, int), np.zeros(9)), 1)
    assert np.array_equal(server.broadcast().item_factors, before)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
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
        ([1, 0.1, 0.1, 1, 0, -1], "users have ratings; got -1 on average"),
        ([1, 0.1, 0.1, 1, 0, 1e9], r"users have ratings; got 1e\+09 on average"),
        ([1, 0.1, 0.1, 1, 0, 30, 1, 1.1e6, 0], "the mean of all users is within 1e6"),
        ([1, 0.1, 0.1, 1, 0, 30, -1.1e6, 0, 0], "the mean of all users is within 1e6"),
        ([1, 0.1, 0.1, 1, 0, 30, 1, np.nan, 0], "the mean of all users is within 1e6"),
        ([1, 0.1, 0.1, 1, 0, 30, 1, 0, 0, 1, 1, 0], "and its weight positive"),
        ([1, 0.1, 0.1, 1, 0, 30, 1, 0, 0, -1, 1, 1], "and its weight positive"),
        ([1, 0.1, 0.1, 1, 0, 30, 1, 0, 0, 1, np.nan, 1], "and its weight positive"),
    ],
)
def test_a_plan_out_of_range_is_refused(parameters, reason):
    usual = [1, 0.1, 0.1, 1, 0, 30, 1, 0, 0, 1, 1, 1]
    check(Broadcast(3, np.array(usual, float), np.zeros((1, 3), np.float32)))
    numbers = np.array([*parameters, *usual[len(parameters) :]], float)
    with pytest.raises(WireError, match=f"the server's numbers are out of range: .*{reason}"):
        check(Broadcast(3, numbers, np.zeros((1, 3), np.float32)))


def check(broadcast):
    SGD.check(SGD.update_shape(broadcast.rank, ""), broadcast)


def test_there_is_one_variant():
    update_shape = SGD.update_shape(
        3, SGD.variant(Settings(), n_profile=2, n_columns=0, n_levels=0)
    )
    assert (update_shape.rank, update_shape.width, update_shape.broadcast_width) == (3, 3, 3)
    assert (
        update_shape.n_parameters,
        update_shape.n_totals,
        update_shape.n_profile,
        update_shape.n_design,
    ) == (12, 7, 0, 0)
    with pytest.raises(WireError, match="sgd has no variant; got 'other'"):
        SGD.update_shape(3, "other")


def test_a_party_takes_its_own_items_of_what_is_published(party):
    r, q, _ = party
    users = AllUsers(np.array([0.5, 0.25, -1.0]), np.array([1.0, 4.0, 0.5]))
    broadcast = Broadcast(
        3, plan("adam").to_parameters(users), np.vstack((q, -q)).astype(np.float32)
    )
    items = np.array([1, 4, 9])
    one, other = SgdParty(3), Factors.starting_at(sgd.start_user_factors(1, 3)[0])
    own = UserData(items, r[:3], np.zeros(0), np.zeros(0))
    rows, totals = one.update(
        own, SGD.reading(SGD.update_shape(3, ""), broadcast, np.zeros((16, 0))), 1
    )
    expected = sgd.party_update(r[:3], broadcast.item_rows[items], other, plan("adam"), 1)
    assert np.array_equal(rows, expected)
    assert np.array_equal(one.user_factors, other.value)
    p = other.value.astype(np.float64)
    assert np.array_equal(totals, [1.0, *p, *(p * p)])
    one.solve_user(own, broadcast)
    late = sgd.solved_factors(r[:3], broadcast.item_rows[items], plan("adam"), users)
    assert np.array_equal(one.user_factors, late)


def test_items_that_are_not_summed_are_taken_for_the_mean_one():
    """Of those with raters; with biases it has a 1 where all have."""
    server = SgdServer(plan(biases=True), context(3, level=2.5), 4)
    rows = np.random.default_rng(7).standard_normal((3, 4))
    rows[1] = 0.0
    server.advance(ItemSums(rows, np.array([2, 0, 5]), np.zeros(9)), 1)
    found = server.unknown(np.zeros((2, 5)))
    expected = server.broadcast().item_factors[[0, 2]].astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(found, [expected] * 2, rtol=1e-6)
    assert (found[:, 1] == 1).all()
    assert found.dtype == np.float32


def test_biases_need_two_factors():
    for rank in (2, 1):
        numbers = plan(biases=True).to_parameters(AllUsers(np.ones(rank), np.ones(rank)))
        broadcast = Broadcast(rank, numbers, np.zeros((1, rank), np.float32))
        if rank == 2:
            check(broadcast)
            continue
        with pytest.raises(WireError, match="with two factors"):
            check(broadcast)
