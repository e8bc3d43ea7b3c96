"""Ordered ratings: what is latent, where cut points go, and what both are worth."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings, RatingScale
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import TrainingInput
from fedmmf.errors import WireError
from fedmmf.settings import Settings
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext, UserData
from fedmmf.solvers.vb import VB
from fedmmf.solvers.vb.ordinal import (
    BEGINS_AFTER,
    cdf,
    density,
    expected_rating,
    latent,
    level_totals,
    moved_cuts,
    starting_cuts,
)
from fedmmf.solvers.vb.party import N_ALTERNATIONS, VbParty, evidence

SCALE = RatingScale(1, 5, 1)
CUTS = np.array([1.2, 1.9, 3.6, 4.1])  # gaps of 0.7, 1.7 and 0.5


@pytest.fixture
def generator():
    return np.random.default_rng(5)


def below(x):
    """P(a standard normal number is less than x)."""
    return math.erfc(-x / math.sqrt(2)) / 2


def draws_at_levels(z, cuts):
    """The level of each latent number. (n,)."""
    return np.searchsorted(cuts, z).astype(np.int32)


# Pieces


def test_the_distribution_is_that_of_the_standard_normal():
    """To 1e-6 everywhere, beside the ends of the table too; and 0 and 1 far out."""
    x = np.concatenate((np.linspace(-9, 9, 20_011), [-1e9, -np.inf, np.inf, 1e9]))
    expected = [below(value) for value in x]
    np.testing.assert_allclose(cdf(x), expected, atol=1e-6)
    assert (np.diff(cdf(np.sort(x))) >= 0).all()
    assert cdf(np.zeros(1)) == pytest.approx(0.5, abs=1e-12)
    np.testing.assert_allclose(cdf(x) + cdf(-x), 1.0, atol=1e-12)


def test_the_density_is_the_slope_of_the_distribution():
    x, step = np.linspace(-5, 5, 301), 1e-5
    slopes = [(below(value + step) - below(value - step)) / (2 * step) for value in x]
    np.testing.assert_allclose(density(x), slopes, atol=1e-8)


@pytest.mark.parametrize("n_levels", [2, 5, 10])
def test_cut_points_start_half_way_between_levels(n_levels):
    scale = RatingScale(1, 5, 4 / (n_levels - 1))
    cuts = starting_cuts(scale.min, scale.span, n_levels)
    ratings = scale.min + scale.step * np.arange(n_levels)
    np.testing.assert_allclose(cuts, (ratings[1:] + ratings[:-1]) / 2)
    # whoever rates just what is latent is at the level of that rating
    assert draws_at_levels(ratings, cuts).tolist() == scale.levels(ratings).tolist()


def test_without_levels_there_are_no_cut_points():
    assert starting_cuts(1.0, 4.0, 0).shape == (0,)


@pytest.mark.parametrize("tau", [0.05, 0.8, 9.0])
def test_what_is_latent_is_a_truncated_normal(tau):
    """Its mean and variance by numerical integration, for every level and from far away too."""
    spread = math.sqrt(tau)
    edges = np.concatenate(([-np.inf], CUTS, [np.inf]))
    for level in range(len(CUTS) + 1):
        for away in (-5.0, -2.0, -0.3, 0.0, 1.0, 5.0):
            near = np.clip(edges[level : level + 2], 0.0, 6.0).mean()
            expected = near + away * spread
            low = max(edges[level], expected - 12 * spread)
            high = min(edges[level + 1], expected + 12 * spread)
            z = np.linspace(low, high, 200_001)
            weight = np.exp(-((z - expected) ** 2) / (2 * tau) + away**2 / 2)
            share = np.trapezoid(weight, z) * math.exp(-(away**2) / 2)
            if share / (spread * math.sqrt(2 * math.pi)) < 1e-9:  # of no weight: it stays there
                continue
            mean = np.trapezoid(weight * z, z) / np.trapezoid(weight, z)
            variance = np.trapezoid(weight * (z - mean) ** 2, z) / np.trapezoid(weight, z)
            found = latent(np.array([level]), np.array([expected]), CUTS, tau)
            assert found[0][0] == pytest.approx(mean, abs=2e-4 * spread)
            assert found[1][0] == pytest.approx(variance, abs=2e-3 * tau)


def test_what_is_latent_is_between_its_cut_points(generator):
    expected = generator.uniform(-2, 8, 5000)
    levels = generator.integers(0, 5, 5000)
    mean, variance = latent(levels, expected, CUTS, 0.5)
    edges = np.concatenate(([-np.inf], CUTS, [np.inf]))
    nearest = np.clip(expected, edges[levels], edges[levels + 1])
    near = np.abs(nearest - expected) < 5 * math.sqrt(0.5)
    assert near.mean() > 0.7
    assert (mean > edges[levels] - 1e-3)[near].all()
    assert (mean < edges[levels + 1] + 1e-3)[near].all()
    assert ((variance >= 0) & (variance <= 0.5)).all()  # what is cut off never varies more


def test_what_nobody_would_have_given_is_finite():
    """A server's numbers may put a rating anywhere: the mean stays a number."""
    for expected in (-1e30, -1e3, 1e3, 1e30):
        for level in range(5):
            for tau in (1e-29, 1.0, 1e29):
                mean, variance = latent(np.array([level]), np.array([expected]), CUTS, tau)
                assert np.isfinite(mean).all()
                assert np.isfinite(variance).all()
                assert 0 <= variance[0] <= tau * (1 + 1e-6)


def test_a_mean_over_levels_is_what_was_expected(generator):
    """E[E[z | level]] = E[z], and the variances add up to tau."""
    expected, tau = 2.7, 1.3
    z = expected + math.sqrt(tau) * generator.standard_normal(400_000)
    mean, variance = latent(draws_at_levels(z, CUTS), np.full(len(z), expected), CUTS, tau)
    assert mean.mean() == pytest.approx(expected, abs=0.01)
    assert variance.mean() + mean.var() == pytest.approx(tau, abs=0.01)
    for level in range(5):
        here = draws_at_levels(z, CUTS) == level
        assert mean[here][0] == pytest.approx(z[here].mean(), abs=0.01)
        assert variance[here][0] == pytest.approx(z[here].var(), abs=0.01)


# Cut points


def test_totals_count_and_their_slope_is_that_of_expected_numbers(generator):
    n, tau, step = 60, 0.7, 1e-4
    expected, levels = generator.uniform(0, 6, n), generator.integers(0, 5, n)
    found = level_totals(levels, expected, CUTS, tau)
    assert found.shape == (3, 4)
    spread = math.sqrt(tau)
    for cut in range(4):
        assert found[0, cut] == sum(int(level) <= cut for level in levels)

        def numbers(at):
            return sum(below((at - score) / spread) for score in expected)

        assert found[1, cut] == pytest.approx(numbers(CUTS[cut]), abs=1e-6 * n)
        slope = (numbers(CUTS[cut] + step) - numbers(CUTS[cut] - step)) / (2 * step)
        assert found[2, cut] == pytest.approx(slope, rel=1e-5)


def test_totals_add_up_over_users(generator):
    expected, levels = generator.uniform(0, 6, 30), generator.integers(0, 5, 30)
    whole = level_totals(levels, expected, CUTS, 0.7)
    parts = [level_totals(levels[at::3], expected[at::3], CUTS, 0.7) for at in range(3)]
    np.testing.assert_allclose(sum(parts), whole)
    assert not level_totals(levels[:0], expected[:0], CUTS, 0.7).any()


def step_of(cuts, levels, expected, tau):
    return moved_cuts(cuts, level_totals(levels, expected, cuts, tau))


@pytest.mark.parametrize("n_levels", [2, 5])
def test_cut_points_go_to_where_shares_match(generator, n_levels):
    """On draws from known cut points, those are found, and expected shares are the given ones."""
    truth, tau, n = CUTS[: n_levels - 1], 0.8, 60_000
    expected = generator.normal(2.8, 1.2, n)
    levels = draws_at_levels(expected + math.sqrt(tau) * generator.standard_normal(n), truth)
    cuts = starting_cuts(1.0, 4.0, n_levels)
    for _ in range(25):
        cuts = step_of(cuts, levels, expected, tau)
        assert (np.diff(cuts) > 0).all()
    np.testing.assert_allclose(cuts, truth, atol=0.03)
    given, found, _ = level_totals(levels, expected, cuts, tau) / n
    np.testing.assert_allclose(found, given, atol=1e-6)
    np.testing.assert_allclose(step_of(cuts, levels, expected, tau), cuts, atol=1e-6)


def test_cut_points_stay_in_order_whatever_the_totals_say(generator):
    for _ in range(200):
        cuts = np.sort(generator.normal(0, 2, 6)) + 1e-6 * np.arange(6)
        totals = 10.0 ** generator.uniform(-8, 8, (3, 6)) * generator.choice([-1, 0, 1], (3, 6))
        moved = moved_cuts(cuts, totals)
        assert np.isfinite(moved).all()
        assert (np.diff(moved) > 0).all()


def test_a_level_that_nobody_gives_stops_no_other_and_keeps_some_room(generator):
    """Also after hundreds of rounds: cut points that meet would be refused by everybody."""
    tau, n = 0.8, 20_000
    truth = np.array([1.2, 1.9, 1.9, 4.1])  # nobody gives level 2
    expected = generator.normal(2.8, 1.2, n)
    levels = draws_at_levels(expected + math.sqrt(tau) * generator.standard_normal(n), truth)
    assert not (levels == 2).any()
    cuts = starting_cuts(1.0, 4.0, 5)
    for t in range(400):
        cuts = step_of(cuts, levels, expected, tau)
        assert (np.diff(cuts) > 1e-4).all()
        if t == 30:
            np.testing.assert_allclose(cuts, truth, atol=0.06)
    np.testing.assert_allclose(cuts, truth, atol=0.06)


def test_levels_at_the_ends_that_nobody_gives_do_no_harm(generator):
    expected = generator.normal(3.0, 0.5, 1000)
    levels = 1 + draws_at_levels(expected + 0.5 * generator.standard_normal(1000), CUTS[1:3])
    cuts = starting_cuts(1.0, 4.0, 5)
    for _ in range(300):
        cuts = step_of(cuts, levels, expected, 0.25)
    assert np.isfinite(cuts).all()
    assert (np.diff(cuts) > 0).all()
    np.testing.assert_allclose(cuts[1:3], CUTS[1:3], atol=0.1)


# Ratings


@pytest.mark.parametrize("scale", [SCALE, RatingScale(0.5, 5, 0.5), RatingScale(-10, 10, 20)])
@pytest.mark.parametrize("tau", [0.01, 0.8, 30.0])
def test_a_rating_is_the_mean_over_levels_and_on_the_scale(generator, scale, tau):
    cuts = np.sort(generator.uniform(scale.min, scale.max, scale.n_levels - 1))
    scores = np.concatenate((generator.uniform(scale.min - 3, scale.max + 3, 40), [-1e6, 1e6]))
    found = expected_rating(scores.astype(np.float32), cuts, tau, scale)
    assert found.dtype == np.float32
    edges = [-math.inf, *cuts, math.inf]
    for score, rating in zip(scores, found, strict=True):
        total = 0.0
        for level in range(scale.n_levels):
            low, high = ((edges[level + side] - score) / math.sqrt(tau) for side in (0, 1))
            total += (scale.min + scale.step * level) * (below(high) - below(low))
        assert rating == pytest.approx(total, abs=1e-5 * scale.span)
    assert (found >= scale.min).all()
    assert (found <= scale.max).all()
    assert (np.diff(found[np.argsort(scores)]) >= -1e-6).all()
    assert found[-2:].tolist() == [scale.min, scale.max]


def test_scores_are_shown_as_the_objective_and_the_likelihood_have_it():
    scores = np.array([-2.0, 0.5, 3.3, 9.0], np.float32)
    expected = {
        "implicit=none profile=0 design=0 levels=0 joint=0": np.clip(scores, 1, 5),
        "implicit=none profile=0 design=1 levels=0 joint=0": scores,
        "implicit=none profile=0 design=0 levels=5 joint=0": expected_rating(
            scores, CUTS, 0.6, SCALE
        ),
    }
    for variant, ratings in expected.items():
        update_shape = VB.update_shape(3, variant)
        parts = {"cuts": CUTS} if update_shape.n_levels else {}
        numbers = update_shape.blocks["parameters"].join(tau=np.array([0.6]), **parts)
        broadcast = Broadcast(3, numbers, np.zeros((1, update_shape.broadcast_width), np.float32))
        assert np.array_equal(VB.ratings_of(update_shape, broadcast, scores, SCALE), ratings)


# Halves

N_USERS, N_ITEMS = 30, 20


class World:
    """Users with ordered ratings, and a server; all sums as the reference makes them."""

    def __init__(self, n_levels=5, solver="numpy"):
        made = np.random.default_rng(3)
        taste, kind = made.standard_normal((N_USERS, 2)), made.standard_normal((N_ITEMS, 2))
        z = 3.0 + taste @ kind.T + 0.5 * made.standard_normal((N_USERS, N_ITEMS))
        users, items = np.nonzero(made.random(z.shape) < 0.6)
        cuts = np.quantile(z, np.linspace(0, 1, n_levels + 1)[1:-1])
        levels = draws_at_levels(z[users, items], cuts)
        ratings = 1.0 + 4.0 / (n_levels - 1) * levels
        mask = (3.0 + 0.2 * taste[users, 0]).astype(np.float32)
        indptr = np.concatenate(([0], np.cumsum(np.bincount(users, minlength=N_USERS))))
        self.settings = Settings(solver="vb", factors=2, likelihood="ordinal")
        self.update_shape = VB.update_shape(3, VB.variant(self.settings, 0, 0, n_levels))
        self.lists, nothing = RatedItems(indptr, items.astype(np.int32)), np.zeros((N_USERS, 0))
        masked = (ratings - mask).astype(np.float32)
        self.given = TrainingInput(
            "vb", self.update_shape, np.zeros((N_ITEMS, 0)), self.lists, masked, nothing, nothing,
            levels=levels, mask=mask,
        )  # fmt: skip
        regressors = np.zeros((N_ITEMS, 0))
        context = SolverContext(
            N_ITEMS, 4.0, 1.0, 0.0, 12.0, regressors, regressors, np.random.default_rng(1)
        )
        self.server = VB.server(self.settings, self.update_shape, context)
        self.crowd = ENGINES[solver].halves(self.given)

    def cuts(self):
        return self.update_shape.blocks["parameters"].split(self.server.broadcast().parameters)[
            "cuts"
        ]

    def round(self, t):
        update = self.crowd.update(self.server.broadcast(), t)
        n_raters = self.lists.counts(N_ITEMS)
        self.server.advance(ItemSums(update.rows[0], n_raters, update.totals[0]), t)
        return self.update_shape.blocks["totals"].split(update.totals[0])

    def own(self, user):
        mine, nothing = self.lists.of(user), np.zeros(0)
        given = self.given
        arrays = (given.masked_ratings[mine], nothing, nothing, given.levels[mine])
        return UserData(self.lists.items[mine], *arrays, given.mask[mine])

    def reading(self):
        return VB.reading(self.update_shape, self.server.broadcast(), np.zeros((N_ITEMS, 0)))


def test_ratings_are_numbers_at_first_and_levels_afterwards():
    world, start = World(), starting_cuts(1.0, 4.0, 5)
    for t in range(1, BEGINS_AFTER + 1):
        totals = world.round(t)
        assert not totals["levels"].any()
        assert np.array_equal(world.cuts(), start)
    before = world.cuts()
    totals = world.round(BEGINS_AFTER + 1)["levels"].reshape(3, 4)
    counted = [(world.given.levels <= cut).sum() for cut in range(4)]
    assert totals[0].tolist() == counted
    assert not np.array_equal(world.cuts(), before)
    np.testing.assert_array_equal(world.cuts(), moved_cuts(before, totals))


def test_shares_of_levels_are_matched_in_training():
    world = World()
    for t in range(1, 61):
        totals = world.round(t)
        VB.check(world.update_shape, world.server.broadcast())
    given, expected, _ = totals["levels"].reshape(3, 4) / totals["n_ratings"]
    np.testing.assert_allclose(expected, given, atol=0.01)


def test_in_the_first_rounds_the_likelihood_changes_nothing():
    """Levels or numbers: the same sums, bit by bit."""
    world = World()
    numbers = replace(
        world.given,
        update_shape=VB.update_shape(3, VB.variant(world.settings, 0, 0, 0)),
        levels=np.zeros(0, int),
    )
    crowd, places = (
        ENGINES["numpy"].halves(numbers),
        world.update_shape.blocks["parameters"].place("cuts"),
    )
    for t in range(1, BEGINS_AFTER + 1):
        broadcast = world.server.broadcast()
        plain = Broadcast(3, np.delete(broadcast.parameters, places), broadcast.item_rows)
        found, expected = crowd.update(plain, t), world.crowd.update(broadcast, t)
        assert np.array_equal(found.rows[0], expected.rows[0])
        assert np.array_equal(found.totals[0], expected.totals[0][: -3 * 4])
        update = ItemSums(expected.rows[0], world.lists.counts(N_ITEMS), expected.totals[0])
        world.server.advance(update, t)


def test_who_settles_takes_turns_with_what_is_latent():
    """By the slow formulas: p from numbers, then p and z in turn, wherever p was before."""
    world = World()
    for t in range(1, BEGINS_AFTER + 4):
        world.round(t)
    reading = world.reading()
    for user in range(4):
        own = world.own(user)
        mean, tau = reading.mean[own.items], reading.tau

        def posterior(targets, own=own, tau=tau):
            found = evidence(replace(own, masked_ratings=np.float32(targets)), reading)
            precision = np.diag(reading.user_precision) + found.second / tau
            seen = reading.mean[own.items].sum(axis=0) / np.sqrt(len(own.items))
            prior = np.array([1.0, 0.0, 0.0]) + seen @ reading.user_weights
            return np.linalg.solve(precision, reading.user_precision * prior + found.first / tau)

        p = posterior(own.masked_ratings)
        first = p
        for _ in range(N_ALTERNATIONS):
            z, _ = latent(own.levels, mean @ np.float32(p) + own.mask, reading.cuts, tau)
            p = posterior(z - own.mask)
        for start in (np.zeros(3), np.array([1.0, 5.0, -5.0])):
            half = VbParty(world.update_shape)
            half.user_factors = start.astype(np.float32)
            half.solve_user(own, reading)
            np.testing.assert_allclose(half.user_factors, p, rtol=1e-5, atol=1e-5)
        assert np.abs(p - first).max() > 1e-3


@pytest.mark.parametrize("n_levels", [2, 5])
def test_kernels_do_what_numpy_does_in_every_round(n_levels):
    """The same broadcasts to both: in rounds of numbers, of levels, and in the end."""
    world, other = World(n_levels), World(n_levels, "numba")
    for t in range(1, BEGINS_AFTER + 6):
        broadcast = world.server.broadcast()
        found = other.crowd.update(broadcast, t)
        expected = world.crowd.update(broadcast, t)
        np.testing.assert_allclose(found.rows[0], expected.rows[0], rtol=1e-4, atol=2e-4)
        np.testing.assert_allclose(found.totals[0], expected.totals[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(
            other.crowd.user_factors, world.crowd.user_factors, rtol=1e-4, atol=2e-5
        )
        sums = ItemSums(expected.rows[0], world.lists.counts(N_ITEMS), expected.totals[0])
        world.server.advance(sums, t)
    broadcast = world.server.broadcast()
    far = broadcast.item_rows.copy()
    far[:, 0] += np.linspace(-8, 8, N_ITEMS)  # levels that nobody would have given
    odd = Broadcast(3, broadcast.parameters, far)
    found, expected = (one.crowd.update(odd, t + 1) for one in (other, world))
    np.testing.assert_allclose(found.rows[0], expected.rows[0], rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(found.totals[0], expected.totals[0], rtol=1e-3, atol=1e-2)
    for one in (world, other):
        one.crowd.solve_users(world.server.broadcast(), np.arange(N_USERS))
    np.testing.assert_allclose(
        other.crowd.user_factors, world.crowd.user_factors, rtol=1e-4, atol=2e-5
    )


@pytest.mark.parametrize("cuts", [[2.0, 1.0, 3.0, 4.0], [1.0, 2.0, 2.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
def test_cut_points_that_do_not_increase_are_refused(cuts):
    world = World()
    broadcast = world.server.broadcast()
    numbers = broadcast.parameters.copy()
    numbers[world.update_shape.blocks["parameters"].place("cuts")] = cuts
    told = Broadcast(3, numbers, broadcast.item_rows)
    VB.check(world.update_shape, broadcast)
    for check in (world.server.check, lambda told: VB.check(world.update_shape, told)):
        with pytest.raises(WireError, match="cut points increase"):
            check(told)


# What it is worth


def ordered_ratings(seed, gaps=(0.25, 0.25, 3.0)):
    """Levels of a low-rank problem, with cut points that are far from even."""
    made = np.random.default_rng(seed)
    n_users, n_items = 150, 80
    z = made.standard_normal((n_users, 2)) @ made.standard_normal((2, n_items))
    z += made.standard_normal(n_items) + 0.5 * made.standard_normal((n_users, 1))
    z += 0.4 * made.standard_normal(z.shape)
    cuts = np.concatenate(([0.0], np.cumsum(gaps)))
    cuts -= cuts.mean()
    users, items = np.nonzero(made.random(z.shape) < 0.5)
    ratings = 1.0 + draws_at_levels(z[users, items], cuts)
    frame = pl.DataFrame({"user_id": users, "item_id": items, "rating": ratings})
    return Ratings.from_frame(frame, scale=SCALE).split(0.2, seed=seed)


def test_ordered_ratings_with_uneven_gaps_are_predicted_better_as_levels():
    """Error on held-back ratings, in pairs on the same split: better on each of them."""
    gains = []
    for seed in range(4):
        train, test = ordered_ratings(seed)
        errors = {}
        for likelihood in ("gaussian", "ordinal"):
            chosen = {"solver": "vb", "mask": "mean", "factors": 4, "rounds": 40, "seed": seed}
            model = FedMMF(likelihood=likelihood, **chosen).fit(train)
            errors[likelihood] = model.evaluate(test)["rmse"]
        gains.append(errors["gaussian"] - errors["ordinal"])
    assert min(gains) > 0.03
    assert np.mean(gains) > 0.06
