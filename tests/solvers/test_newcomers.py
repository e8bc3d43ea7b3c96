"""The prior of newcomers: a regression with errors in variables, from one sum over users."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.reference import NUMPY
from fedmmf.solvers.contract import Broadcast, UserData
from fedmmf.solvers.vb import VB, party
from fedmmf.solvers.vb.newcomers import (
    RIDGE,
    NewcomerPrior,
    precision_of,
    unrated_part,
    user_totals,
)
from fedmmf.solvers.vb.party import PINNED
from fedmmf.solvers.vb.reading import MAX_PRECISION
from fedmmf.solvers.vb.shapes import KNOWN, write_variant

K, N_ITEMS, N_USERS = 3, 40, 25
SHAPE = VB.update_shape(K, write_variant("both", joint=2))


@pytest.fixture(scope="module")
def people():
    """Items of each user, and mean and covariance of their p_u: (seen, mean, covariance)."""
    draw = np.random.default_rng(5)
    q = draw.normal(0.3, 0.5, (N_ITEMS, K))
    found = []
    for user in range(N_USERS):
        n = 1 if user == 0 else int(draw.integers(2, 35))
        seen = q[draw.choice(N_ITEMS, n, replace=False)]
        root = draw.normal(size=(SHAPE.n_own, SHAPE.n_own)) / 4
        mean = np.concatenate(([1.0], seen.mean(axis=0)[1:] * 2, draw.normal(size=2)))
        found.append((seen, mean, root @ root.T + 0.1 * np.eye(SHAPE.n_own)))
    return found


@pytest.fixture(scope="module")
def totals(people):
    return sum(user_totals(SHAPE, *one) for one in people)


def test_the_prior_is_what_the_moments_of_users_with_two_ratings_give(people, totals):
    """Moments by numpy's own functions, of everybody at once, instead of a sum over users."""
    known = [one for one in people if len(one[0]) > 1]
    t, p = (
        np.array(part) for part in ([s.mean(axis=0) for s, _, _ in known], [m for _, m, _ in known])
    )
    both = np.cov(np.hstack((t, p)).T, bias=True)
    between, cross, spread = both[:K, :K], both[:K, K:], both[K:, K:]
    within = np.mean([np.cov(s.T) for s, _, _ in known], axis=0)
    posterior = np.mean([c for _, _, c in known], axis=0)
    prior = NewcomerPrior.of(SHAPE, totals)
    for m in (*KNOWN, 4, 100):
        sizes = np.array([len(s) for s, _, _ in known])
        fpc = [np.maximum(1 - g / sizes, 0).mean() for g in KNOWN]
        beyond = 1 - min(1, (1 - fpc[-1]) * m / KNOWN[-1])
        fpc = np.interp(np.log(m), np.log(KNOWN), fpc) if m < KNOWN[-1] else beyond
        ridge = RIDGE / len(known) * np.trace(between + within / 20) / K
        weights = np.linalg.solve(between + fpc * within / m + ridge * np.eye(K), cross)
        seen = np.random.default_rng(m).normal(size=(m, K))
        mean, covariance = prior.at(seen)
        np.testing.assert_allclose(
            mean, p.mean(axis=0) + (seen.mean(axis=0) - t.mean(axis=0)) @ weights, atol=1e-9
        )
        np.testing.assert_allclose(covariance, spread + posterior - weights.T @ cross, atol=1e-9)


def test_without_any_rating_a_newcomer_is_the_mean_user(people, totals):
    mean, covariance = NewcomerPrior.of(SHAPE, totals).at(np.zeros((0, K)))
    known = np.array([one[1] for one in people if len(one[0]) > 1])
    np.testing.assert_allclose(mean, known.mean(axis=0))
    assert (np.linalg.eigvalsh(covariance) > 0).all()


def test_one_item_moves_the_prior_less_than_many_that_say_the_same(totals):
    prior, one = NewcomerPrior.of(SHAPE, totals), np.array([[0.8, -0.4, 0.6]])
    moved = [
        np.linalg.norm(prior.at(np.repeat(one, m, axis=0))[0] - prior.users) for m in (1, 3, 10, 30)
    ]
    assert moved == sorted(moved)
    assert 0 < moved[0] < 0.8 * moved[-1]


@pytest.mark.parametrize("m", [0, 1, 3, 29, 50])
def test_one_more_item_changes_the_prior_as_if_it_were_known(totals, m):
    prior, draw = NewcomerPrior.of(SHAPE, totals), np.random.default_rng(m)
    seen, more = draw.normal(size=(m, K)), draw.normal(size=(4, K))
    constant, weights = prior.change(seen)
    before, _ = prior.at(seen)
    for one in more:
        after, _ = prior.at(np.vstack((seen, one)))
        np.testing.assert_allclose(constant + one @ weights, after - before, atol=1e-9)


def test_unrated_items_count_by_what_is_known_of_a_list(totals):
    prior = NewcomerPrior.of(SHAPE, totals)
    parts = [unrated_part(prior, m) for m in range(100)]
    assert parts == sorted(parts)
    assert parts[0] == 0.0
    assert 0 < parts[1] < 0.05
    assert parts[-1] == 1.0
    assert np.diff(parts).max() < 0.1  # without a jump


@pytest.mark.parametrize("part", ["between", "within", "moment"])
def test_sums_that_no_honest_users_could_give_are_not_used(totals, part):
    forged = totals.copy()
    place = SHAPE.blocks["newcomers"].place(part)
    forged[place] -= 10 * N_USERS
    assert NewcomerPrior.of(SHAPE, totals) is not None
    assert NewcomerPrior.of(SHAPE, forged) is None


@pytest.mark.parametrize("totals", [0.0, -3.0, np.nan, np.inf])
def test_a_sum_over_nobody_is_not_used(totals):
    with np.errstate(all="ignore"):
        assert NewcomerPrior.of(SHAPE, np.full(SHAPE.n_newcomer, totals)) is None


def test_directions_without_variance_get_little(totals):
    prior = NewcomerPrior.of(SHAPE, totals)
    flat = prior.spread.copy()
    flat[-1, :] = flat[:, -1] = 0.0
    precision = precision_of(flat, PINNED)
    assert precision[0, 0] == PINNED
    assert not precision[0, 1:].any()
    assert np.isfinite(precision).all()
    assert 0 < precision[-1, -1] < MAX_PRECISION


# Through a party's half


def broadcast_of(draw, variant, newcomers=None):
    shape = VB.update_shape(K, variant)
    numbers = {
        "tau": np.ones(1),
        "user_precision": np.array([PINNED, 2.0, 2.0]),
        "item_precision": np.ones(K),
        "mean_user": np.array([1.0, 0.1, -0.1]),
        "base": np.array([1.0, 0, 1, 0, 0, 1]),
        "joint_precision": np.ones(shape.n_joint),
    }
    if shape.n_levels:
        numbers["cuts"] = np.array([1.5, 2.5, 3.5, 4.5])
    if shape.n_design:
        numbers["unrated"] = np.array([0.1, 1.0])
    if shape.n_profile:
        numbers["user_weights"] = np.vstack((np.zeros((K, K)), [[0, 0.5, -0.5]])).ravel()
        numbers["profile_mean"] = np.array([0.25])
    numbers = {name: part for name, part in numbers.items() if len(part)}
    rows = np.column_stack((draw.normal(size=(N_ITEMS, K)), np.full(N_ITEMS, 9.0)))
    parameters = shape.blocks["parameters"].join(**numbers)
    return shape, Broadcast(K, parameters, rows.astype(np.float32), newcomers)


VARIANTS = {
    "ratings": write_variant("both"),
    "no implicit prior": write_variant("none"),
    "joint": write_variant("both", joint=1),
    "ordered": write_variant("both", levels=5),
    "ranking": write_variant("both", design=1),
    "profiles": write_variant("both", profile=1),
}


def given_of(draw, shape, lengths):
    items = [np.sort(draw.choice(N_ITEMS, n, replace=False)) for n in lengths]
    n = sum(lengths)
    levels = draw.integers(0, 5, n) if shape.n_levels else np.zeros(0, np.int32)
    return TrainingInput(
        solver="vb",
        update_shape=shape,
        design=np.ones((N_ITEMS, shape.n_columns)),
        lists=RatedItems(np.concatenate(([0], np.cumsum(lengths))), np.concatenate(items)),
        masked_ratings=draw.normal(size=n).astype(np.float32),
        profiles=np.ones((len(lengths), shape.n_profile)),
        lines=np.zeros((len(lengths), shape.n_design)),
        levels=levels,
        mask=np.full(len(levels), 3.0, np.float32),
    )


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_variant_sums_and_solves(variant):
    draw = np.random.default_rng(3)
    shape, broadcast = broadcast_of(draw, variant)
    given = given_of(draw, shape, [1, 2, 9, 30, 0])
    before = (halves := NUMPY.halves(given)).user_factors
    totals = halves.newcomer_totals(broadcast, Cohort())
    assert totals.shape == (shape.n_newcomer,)
    assert totals[0] == 3  # with two ratings or more
    assert np.array_equal(halves.user_factors, before)  # nobody's p_u has moved
    halves.solve_users(broadcast, np.arange(5))
    usual = halves.user_factors
    halves.solve_users(replace(broadcast, newcomers=totals), np.arange(5))
    assert np.isfinite(halves.user_factors).all()
    moved = np.abs(halves.user_factors - usual).max(axis=1)
    assert (moved[[0, 1, 2, 4]] > 1e-3).all()
    assert np.abs(halves.user_factors[:, 0] - 1.0).max() < 1e-2


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_scores_change_as_if_the_item_were_in_the_list(variant, monkeypatch):
    """p_u again for each item, with the prior mean of a list that the item belongs to."""
    draw = np.random.default_rng(8)
    shape, broadcast = broadcast_of(draw, variant)
    totals = NUMPY.halves(given_of(draw, shape, [4, 9, 30])).newcomer_totals(broadcast, Cohort())
    broadcast = replace(broadcast, newcomers=totals)
    given = given_of(draw, shape, [2, 0])
    if shape.n_levels:  # p_u and latent ratings are found in turns: here they stay
        monkeypatch.setattr(party, "N_ALTERNATIONS", 0)
    everything = np.arange(N_ITEMS, dtype=np.int32)
    lists = RatedItems(np.array([0, N_ITEMS, 2 * N_ITEMS]), np.tile(everything, 2))
    effects = NUMPY.halves(given).effects_of_rating(broadcast, lists).reshape(2, N_ITEMS)
    assert not effects[0, given.lists.items].any()  # what is rated counts already
    reading = VB.reading(shape, broadcast, given.design)
    if shape.ranks or not shape.n_seen:
        assert not effects.any()
        return
    at = NewcomerPrior.at
    for user, item in [(0, 3), (0, 17), (1, 5), (1, 39)]:
        assert item not in given.lists.items[given.lists.of(user)]

        def with_item(prior, seen, item=item):
            return at(prior, np.vstack((seen, reading.mean[item, :K])))[0], at(prior, seen)[1]

        usual, changed = NUMPY.halves(given), NUMPY.halves(given)
        usual.solve_users(broadcast, np.array([user]))
        with monkeypatch.context() as patch:
            patch.setattr(NewcomerPrior, "at", with_item)
            changed.solve_users(broadcast, np.array([user]))
        beyond = changed.user_factors[user] - usual.user_factors[user]
        assert effects[user, item] == pytest.approx(reading.mean[item] @ beyond, abs=1e-5)
        assert abs(effects[user, item]) > 1e-4


def test_scores_change_for_newcomers_alone():
    shape, broadcast = broadcast_of(draw := np.random.default_rng(9), VARIANTS["ratings"])
    halves = NUMPY.halves(given_of(draw, shape, [5]))
    lists = RatedItems.of_one(np.arange(N_ITEMS, dtype=np.int32))
    assert not halves.effects_of_rating(broadcast, lists).any()


def test_a_profile_moves_the_prior_by_its_own_weights():
    draw = np.random.default_rng(4)
    shape, broadcast = broadcast_of(draw, VARIANTS["profiles"])
    given = given_of(draw, shape, [4, 6, 8])
    totals = NUMPY.halves(given).newcomer_totals(broadcast, Cohort())
    reading = VB.reading(shape, replace(broadcast, newcomers=totals), np.zeros((N_ITEMS, 0)))
    nobody = UserData(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(1), np.zeros(0))
    factors = []
    for profile in (0.0, 1.25):  # without one, the mean one, 0.25
        half = VB.party(shape)
        half.solve_user(replace(nobody, profile=np.array([profile])), reading)
        factors.append(half.user_factors)
    np.testing.assert_allclose(factors[1] - factors[0], [0, 0.5, -0.5], atol=1e-5)


# Bounded, user by user


def test_a_user_who_overflows_adds_nothing_and_changes_nothing_for_the_others():
    draw = np.random.default_rng(6)
    shape, broadcast = broadcast_of(draw, VARIANTS["ratings"])
    lists = [np.arange(5), np.arange(5, 12), np.arange(30, 38)]
    given = replace(
        given_of(draw, shape, [5, 7, 8]),
        lists=RatedItems(np.array([0, 5, 12, 20]), np.concatenate(lists)),
    )
    hostile = broadcast.item_rows.copy()
    hostile[35, :K] = 3e38  # an item that the third user alone has rated
    cohort = Cohort(bound=32.0, scale=2.0**20, total_bound=1e3, total_scale=2.0**20)
    found = NUMPY.halves(given).newcomer_totals(replace(broadcast, item_rows=hostile), cohort)
    alone = replace(cohort, members=np.array([True, True, False]))
    expected = NUMPY.halves(given).newcomer_totals(replace(broadcast, item_rows=hostile), alone)
    assert np.array_equal(found, expected)
    assert found[0] == 2 * 2**20


def test_whatever_the_broadcast_a_users_totals_are_bounded_together():
    draw = np.random.default_rng(7)
    shape, broadcast = broadcast_of(draw, VARIANTS["ratings"])
    given = given_of(draw, shape, [9])
    large = replace(broadcast, item_rows=(broadcast.item_rows * 1e4).astype(np.float32))
    cohort = Cohort(bound=32.0, scale=2.0**20, total_bound=64.0, total_scale=2.0**20)
    exact = NUMPY.halves(given).newcomer_totals(large, Cohort())
    found = NUMPY.halves(given).newcomer_totals(large, cohort) / 2.0**20
    assert np.abs(exact).max() > 64.0
    assert np.abs(found).max() == 64.0
    np.testing.assert_allclose(found, exact * (64.0 / np.abs(exact).max()), atol=2.0**-20)
