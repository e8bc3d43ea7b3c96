"""The variational solver against slow, obvious formulas."""

import numpy as np
import pytest

from fedmmf.config import Settings
from fedmmf.engines import ENGINES
from fedmmf.errors import WireError
from fedmmf.solvers import vb
from fedmmf.solvers.contract import Ground, ItemSums, Public
from fedmmf.solvers.vb import VB, VbParty, VbServer

K = 4


def ground(generator, n_items, regressors=None):
    regressors = np.zeros((n_items, 0)) if regressors is None else regressors
    return Ground(n_items, 4.0, 0.0, 30.0, regressors, generator)


@pytest.fixture
def generator():
    return np.random.default_rng(4)


def random_moments(generator, n):
    means = generator.standard_normal((n, K))
    roots = generator.standard_normal((n, K, K))
    return means, roots @ roots.transpose(0, 2, 1) + np.eye(K)


def test_packing_is_reversible(generator):
    _, matrices = random_moments(generator, 5)
    assert np.array_equal(vb.unpack(vb.pack(matrices), K), matrices)
    assert vb.pack(matrices).shape == (5, K * (K + 1) // 2)


def rows_of(means, covariances):
    moments = covariances + means[:, :, np.newaxis] * means[:, np.newaxis, :]
    return np.hstack((means, vb.pack(moments)))


def sums_of(rows, ratings):
    return np.concatenate((ratings @ rows[:, :K], rows[:, K:].sum(axis=0)))


@pytest.mark.parametrize("solve", [vb.posterior_rows, ENGINES["numba"].solve])
def test_posterior_is_bayes_rule_for_a_linear_model(generator, solve):
    """With certain items (no covariance) it is Bayesian linear regression."""
    q, r = generator.standard_normal((9, K)), generator.standard_normal(9)
    precision, mean, tau = np.array([1.0, 2.0, 3.0, 0.5]), generator.standard_normal(K), 0.7
    sums = sums_of(rows_of(q, np.zeros((9, K, K))), r)
    (row,) = solve(sums[np.newaxis], precision, mean[np.newaxis], tau)
    inverse = np.linalg.inv(np.diag(precision) + q.T @ q / tau)
    expected = inverse @ (precision * mean + q.T @ r / tau)
    np.testing.assert_allclose(row[:K], expected, rtol=1e-5)
    moment = inverse + np.outer(expected, expected)
    np.testing.assert_allclose(vb.unpack(row[K:], K), moment, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(row[vb.diagonal(K)], np.diag(moment), rtol=1e-5)


def test_expected_squares_is_the_mean_over_draws(generator):
    means, covariances = random_moments(generator, 3)
    r = np.array([1.0, -0.5, 2.0])
    p, spread = generator.standard_normal(K), 0.3 * np.eye(K)
    sums = sums_of(rows_of(means, covariances), r)
    (row,) = rows_of(p[np.newaxis], spread[np.newaxis])
    found = vb.expected_squares(np.sum(r**2), sums, row, K)
    draws = 200_000
    total = 0.0
    for i in range(3):
        q = generator.multivariate_normal(means[i], covariances[i], draws)
        ps = generator.multivariate_normal(p, spread, draws)
        total += np.mean((r[i] - np.sum(q * ps, axis=1)) ** 2)
    assert found == pytest.approx(total, rel=0.02)


def split_rows(rows):
    """Means and covariances."""
    mean = rows[:, :K]
    return mean, vb.unpack(rows[:, K:], K) - mean[:, :, np.newaxis] * mean[:, np.newaxis, :]


def bound(problem, server, locals_):
    """Evidence lower bound, up to constants, written out from the definitions."""
    ratings, users, items = problem
    state = server.state()
    tau, a = state["hyper"][0], state["hyper"][1:]
    q, t = split_rows(state["rows"])
    total = 0.0
    for r, u, i in zip(ratings, users, items, strict=True):
        p, s = locals_[u]
        second_q, second_p = t[i] + np.outer(q[i], q[i]), s + np.outer(p, p)
        error = r * r - 2 * r * (q[i] @ p) + np.sum(second_q * second_p)
        total -= 0.5 * (np.log(tau) + error / tau)
    m = vb.prior_mean(K)
    for p, s in locals_:
        spread = (p - m) ** 2 + np.diag(s)
        total += 0.5 * np.sum(np.log(a) - a * spread) + 0.5 * np.linalg.slogdet(s)[1]
    c, prior = state["precision"], state["prior_mean"]
    for i in range(len(q)):
        spread = (q[i] - prior[i]) ** 2 + np.diag(t[i])
        total += 0.5 * np.sum(np.log(c) - c * spread) + 0.5 * np.linalg.slogdet(t[i])[1]
    return total


def test_every_round_raises_the_evidence_bound(generator):
    """Coordinate ascent: with the hyperparameters learned and the prior's ridge off, it must."""
    n_users, n_items = 12, 9
    users, items = np.divmod(np.flatnonzero(generator.random(108) < 0.6), n_items)
    truth = generator.standard_normal((n_users, 2)) @ generator.standard_normal((2, n_items))
    ratings = truth[users, items] + 0.3 * generator.standard_normal(len(users))
    server = VbServer(ground(generator, n_items), K - 1)
    values = []
    for t in range(1, 15):
        public = server.public()
        sums, totals, locals_ = np.zeros((n_items, public.item_rows.shape[1])), 0, []
        for u in range(n_users):
            mine = users == u
            local = VbParty(K)
            rows, more = local.update(ratings[mine], public.take(items[mine]), t)
            sums[items[mine]] += rows
            totals = totals + more
            hyper = vb.Hyper.of(public)
            mine_sums = sums_of(public.item_rows[items[mine]].astype(float), ratings[mine])
            row = vb.posterior_rows(
                mine_sums[np.newaxis], hyper.precision, vb.prior_mean(K)[np.newaxis], hyper.tau
            )
            locals_.append(tuple(part[0] for part in split_rows(row)))
        server.advance(ItemSums(sums, np.ones(n_items), totals), t)
        values.append(bound((ratings, users, items), server, locals_))
    steps = np.diff(values)
    assert (steps > -1e-3 * np.abs(values[-1])).all()
    assert values[-1] > values[0]


def test_a_party_without_ratings_adds_nothing():
    public = Public(K, np.concatenate(([1.0], np.ones(K))), np.zeros((0, K + 10), np.float32))
    rows, totals = VbParty(K).update(np.zeros(0), public, 1)
    assert rows.shape == (0, K + 10)
    assert not totals.any()
    assert len(totals) == vb.n_totals(K)


def test_the_prior_mean_learns_from_item_features(generator):
    """Items whose bias follows a public feature: an unrated item gets it from its feature."""
    n_items, n_users = 40, 30
    feature = generator.standard_normal((n_items, 1))
    feature[0] = 2.0
    ratings = np.tile(feature[:, 0], (n_users, 1)) + 0.1 * generator.standard_normal(
        (n_users, n_items)
    )
    known = np.arange(1, n_items)  # nobody rates item 0
    found = {}
    for item_prior in (True, False):
        settings = Settings(solver="vb", factors=1, item_prior=item_prior)
        server = VB.server(settings, ground(generator, n_items, feature))
        for t in range(1, 25):
            public = server.public()
            sums, totals = np.zeros_like(public.item_rows, np.float64), 0
            for u in range(n_users):
                rows, more = VbParty(2).update(ratings[u, known], public.take(known), t)
                sums[known] += rows
                totals = totals + more
            server.advance(ItemSums(sums, np.full(n_items, n_users), totals), t)
        found[item_prior] = server.public().item_factors[0, 0]
    assert found[True] == pytest.approx(2.0, abs=0.15)
    assert found[False] == pytest.approx(feature[1:].mean(), abs=0.15)


def test_one_factor_more_is_the_items_bias():
    assert VB.rank(Settings(solver="vb", factors=5)) == 6
    assert vb.prior_mean(3).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ([1.0] * K, f"has {K + 1} parameters; got {K}"),
        ([1.0] * (K + 2), f"has {K + 1} parameters; got {K + 2}"),
        ([0.0] + [1.0] * K, "tau and precisions are in"),
        ([-1.0] + [1.0] * K, "tau and precisions are in"),
        ([1.0] * K + [-1.0], "tau and precisions are in"),
        ([1.0] * K + [1e300], "tau and precisions are in"),
        ([1e-300] + [1.0] * K, "tau and precisions are in"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, reason):
    rows = np.zeros((1, VB.width(K)), np.float32)
    with pytest.raises(WireError, match=f"the server's numbers are out of range: .*{reason}"):
        VB.check(Public(K, np.array(parameters), rows))
