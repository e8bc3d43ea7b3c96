"""The variational solver against slow, obvious formulas."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import TrainingInput
from fedmmf.errors import WireError
from fedmmf.masks.feature_maps import design_of
from fedmmf.secagg import FixedPoint
from fedmmf.secagg.ring import RING64
from fedmmf.settings import Settings
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext, UpdateShape, UserData, added
from fedmmf.solvers.vb import VB
from fedmmf.solvers.vb import server as vb_server
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER
from fedmmf.solvers.vb.party import MAX_MEMBERSHIP_ROUNDS, PINNED, VbParty, evidence
from fedmmf.solvers.vb.reading import Spread, prior_mean
from fedmmf.solvers.vb.server import (
    MEMBERSHIP_RIDGE,
    MEMBERSHIP_ROUNDS,
    PRIOR_RIDGE,
    STEP,
    USER_RIDGE,
)
from fedmmf.solvers.vb.shapes import IMPLICIT, Blocks, VbShape, pack, unpack, write_variant
from fedmmf.solvers.vb.start import value_of_unrated, weight_of_unrated

K, N_USERS, N_ITEMS = 4, 13, 10  # nobody rates the last item
UNPROFILED = (2, 7)  # users without a profile
WEIGHT, VALUE = 0.3, 1.5  # of unrated items, where they count

# Implicit priors, columns of profiles, columns of a design, levels, columns of a joint mask.
VARIANTS = {
    "none": ("none", 0, 0, 0, 0),
    "items": ("items", 0, 0, 0, 0),
    "users": ("users", 0, 0, 0, 0),
    "both": ("both", 0, 0, 0, 0),
    "profiles": ("none", 2, 0, 0, 0),
    "users, profiles": ("users", 2, 0, 0, 0),
    "ranking": ("none", 0, 1, 0, 0),
    "ranking by features": ("none", 0, 3, 0, 0),
    "all of it": ("both", 2, 3, 0, 0),
    "ordinal": ("none", 0, 0, 5, 0),
    "ordinal, two levels": ("none", 0, 0, 2, 0),
    "ordinal, both, profiles": ("both", 2, 0, 5, 0),
    "joint": ("none", 0, 0, 0, 3),
    "joint, both, profiles": ("both", 2, 0, 0, 3),
    "joint mean": ("users", 0, 0, 0, 1),
    "joint, ordinal": ("both", 0, 0, 5, 3),
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture
def generator():
    return np.random.default_rng(4)


class World:
    """Some users and a server, after some rounds of training."""

    def __init__(self, variant, rounds=None, copies=1):
        implicit, d, m, n_levels, j = VARIANTS[variant]
        made, drawn = np.random.default_rng(12), np.random.default_rng(13)
        self.update_shape = VbShape.of(K, write_variant(implicit, d, m, n_levels, j))
        self.regressors = made.standard_normal((N_ITEMS, 2))
        self.design = design_of(self.regressors, sees_features=True)[:, : max(m, j)]
        self.own = []
        for _ in range(N_USERS):
            items = np.flatnonzero(made.random(N_ITEMS - 1) < 0.6)
            masked = made.standard_normal(len(items)).astype(np.float32)
            profile, line = made.standard_normal(2)[:d], made.standard_normal(3)[:m]
            line[:1] += 3.0
            if len(self.own) in UNPROFILED:
                profile = np.zeros(d)
            ordered = ()
            if n_levels:
                levels = drawn.integers(0, n_levels, len(items)).astype(np.int32)
                step = 4.0 / (n_levels - 1)
                ordered = (levels, (1.0 + step * levels - masked).astype(np.float32))
            self.own.append(UserData(items, masked, profile, line, *ordered))
        self.own = self.own * copies
        settings = {"unrated_weight": WEIGHT, "unrated_value": VALUE} if m else {}
        self.settings = Settings(solver="vb", factors=K - 1, implicit_prior=implicit, **settings)
        self.server = VB.server(self.settings, self.update_shape, self.context())
        self.halves = [VbParty(self.update_shape) for _ in self.own]
        if rounds is None:  # one has looked, and ordered ratings are levels
            rounds = max(MEMBERSHIP_ROUNDS[0] + 1, BEGINS_AFTER + 2 if n_levels else 0)
        for t in range(1, rounds + 1):
            self.round(t)
        self.t = rounds + 1  # the coming round

    def context(self):
        stream = np.random.default_rng(1)
        return SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 5.0, self.regressors, self.design, stream)

    def reading(self):
        return VB.reading(self.update_shape, self.server.broadcast(), self.design)

    def sums(self, t):
        """What everybody sends, added up."""
        parts, reading = [], self.reading()
        for half, own in zip(self.halves, self.own, strict=True):
            rows = np.zeros((N_ITEMS, self.update_shape.width))
            rows[own.items], totals = half.update(own, reading, t)
            is_rated = np.isin(np.arange(N_ITEMS), own.items).astype(int)
            parts.append(ItemSums(rows, is_rated, totals))
        return added(parts)

    def half_of(self, own):
        """The half of a user, as it is after all rounds so far."""
        (place, *_) = [at for at, other in enumerate(self.own) if other is own]
        half = VbParty(self.update_shape)
        half.restore(self.halves[place].state())
        return half

    def round(self, t):
        sums = self.sums(t)
        self.server.advance(sums, t)
        return sums


@dataclass
class Posterior:
    """Of one p_u, worked out over all items one by one."""

    prior: Any
    mean: Any
    moment: Any  # E[p p^T]
    targets: Any  # (n_items,) masked ratings, of unrated items too
    weights: Any  # (n_items,) 1 where rated
    variance: float  # of what is latent in ordered ratings, summed
    levels: Any  # what these add to the totals (3 (n_levels - 1),)


def covariances(reading, update_shape, broadcast):
    """T_i of every item: an inverse each, 0 for known columns. (n_items, n_own, n_own)."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    a, b = unpack(parts["curvature"], K), unpack(parts["base"], K)
    found = np.zeros((len(reading.mean), update_shape.n_own, update_shape.n_own))
    for covariance, n in zip(found, reading.n_raters, strict=True):
        covariance[:K, :K] = np.linalg.inv(n * a + b)
    return found


def middle(world):
    """Prior mean of p_u of whom nothing is known: what is pinned, and the mean mask."""
    now = world.server.state()
    return np.concatenate((prior_mean(K), now["joint_mean"]))


def phi(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def below(x):
    """P(a standard normal number is less than x)."""
    return math.erfc(-x / math.sqrt(2)) / 2


def in_order(world, own):
    """Mean and variance of what is latent, rating by rating, and the totals of cut points."""
    reading, p = world.reading(), world.half_of(own).user_factors
    n_cuts, spread = len(reading.cuts), math.sqrt(reading.tau)
    totals, means, variances = np.zeros((3, n_cuts)), [], []
    for item, level, mask in zip(own.items, own.levels, own.mask, strict=True):
        expected = float(mask) + sum(reading.mean[item][f] * float(p[f]) for f in range(len(p)))
        at = [(cut - expected) / spread for cut in reading.cuts]
        low, high = at[level - 1] if level else -9.0, at[level] if level < n_cuts else 9.0
        share = below(high) - below(low)
        shift = (phi(low) - phi(high)) / share
        means.append(expected + spread * shift - float(mask))
        narrower = (low * phi(low) - high * phi(high)) / share - shift**2
        variances.append(reading.tau * (1 + narrower))
        for cut in range(n_cuts):
            totals[:, cut] += (level <= cut, below(at[cut]), phi(at[cut]) / spread)
    return means, variances, totals


def known_of(world, own):
    """What the prior of a user knows: sums over items by hand, and a profile or the mean one."""
    reading, known = world.reading(), []
    if world.update_shape.implicit in ("users", "both"):
        n = len(own.items)
        share = 1 / (n or 1) if world.update_shape.ranks else 1 / math.sqrt(n or 1)
        known += [share * sum(reading.mean[i][f] for i in own.items) for f in range(K)]
    if world.update_shape.n_profile:
        known += list(own.profile if np.any(own.profile) else reading.profile_mean)
    return np.array(known)


def dense(world, own):
    """p_u by the definition: a sum over every item of the catalogue, with its weight."""
    reading, broadcast = world.reading(), world.server.broadcast()
    covariance = covariances(reading, world.update_shape, broadcast)
    n_items = len(reading.mean)
    targets, weights = np.zeros(n_items), np.zeros(n_items)
    if world.update_shape.n_design:
        targets = VALUE - np.array([row @ own.line for row in world.design])
        weights = np.full(n_items, WEIGHT)
    targets[own.items], weights[own.items] = own.masked_ratings, 1.0
    variance, levels = 0.0, []
    if world.update_shape.n_levels:
        targets[own.items], each, totals = in_order(world, own)
        variance, levels = sum(each), totals.ravel()
    prior = middle(world) + known_of(world, own) @ reading.user_weights
    precision, right = np.diag(reading.user_precision), reading.user_precision * prior
    for i in range(n_items):
        q = reading.mean[i]
        precision = precision + weights[i] * (covariance[i] + np.outer(q, q)) / reading.tau
        right = right + weights[i] * targets[i] * q / reading.tau
    inverse = np.linalg.inv(precision)
    mean = inverse @ right
    moment = inverse + np.outer(mean, mean)
    return Posterior(prior, mean, moment, targets, weights, variance, levels)


def expected_squares(world, posterior):
    """Sum over items of weight E[(r - q.p)^2]."""
    reading = world.reading()
    covariance = covariances(reading, world.update_shape, world.server.broadcast())
    total = posterior.variance
    for i, q in enumerate(reading.mean):
        r, second = posterior.targets[i], covariance[i] + np.outer(q, q)
        error = r * r - 2 * r * (q @ posterior.mean) + np.sum(second * posterior.moment)
        total += posterior.weights[i] * error
    return total


def slope(function, at, step=1e-5):
    """Numerical gradient."""
    out = np.empty_like(at)
    for place in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[place] += step
        down[place] -= step
        out[place] = (function(up) - function(down)) / (2 * step)
    return out


# Pieces


def test_packing_is_reversible(generator):
    roots = generator.standard_normal((5, K, K))
    matrices = roots @ roots.transpose(0, 2, 1)
    assert np.array_equal(unpack(pack(matrices), K), matrices)
    assert pack(matrices).shape == (5, K * (K + 1) // 2)
    assert pack(np.array([[1, 2], [2, 3]])).tolist() == [1, 2, 3]


def test_parts_of_a_vector_have_names():
    blocks = Blocks(first=2, nothing=0, last=1)
    assert blocks.size == 3
    assert blocks.join(last=np.array([5.0])).tolist() == [0, 0, 5]
    parts = blocks.split(np.arange(6.0).reshape(2, 3))
    assert parts["first"].tolist() == [[0, 1], [3, 4]]
    assert parts["nothing"].shape == (2, 0)
    assert parts["last"].tolist() == [[2], [5]]


@pytest.mark.parametrize("implicit", IMPLICIT)
def test_a_form_counts_what_is_sent(implicit):
    """k numbers per rated item, whatever the priors: these learn from totals, and from looks."""
    seen, looks = (implicit in names for names in (("users", "both"), ("items", "both")))
    update_shape = VbShape.of(5, write_variant(implicit, 0, 0, 0))
    assert (update_shape.width, update_shape.broadcast_width) == (5, 5 + 1)
    assert update_shape.n_parameters == 1 + 5 + 5 + 5 + 15 + 15 + 25 * seen + looks
    assert update_shape.n_totals == 4 + 5 + 5 + 15 + (15 + 25) * seen
    wide = VbShape.of(5, write_variant(implicit, 3, 2, 0))
    assert (wide.width, wide.broadcast_width) == (update_shape.width, update_shape.broadcast_width)
    assert wide.n_parameters == update_shape.n_parameters + 3 * 5 + 3 + 2
    grown = 36 - 15 if seen else 6  # a triangle of 5 + 3 columns instead of 5, or of 3
    assert wide.n_totals == update_shape.n_totals + grown + 3 * 5 + 1 + 3 + 15 + 10
    ordered = VbShape.of(5, write_variant(implicit, 0, 0, 7))
    assert (ordered.width, ordered.broadcast_width) == (
        update_shape.width,
        update_shape.broadcast_width,
    )
    assert ordered.n_parameters == update_shape.n_parameters + 6
    assert ordered.n_totals == update_shape.n_totals + 3 * 6
    assert (ordered.n_levels, update_shape.n_levels, wide.n_levels) == (7, 0, 0)
    assert (update_shape.n_seen, update_shape.has_membership_rounds, update_shape.ranks) == (
        5 * seen,
        looks,
        False,
    )
    assert wide.ranks


@pytest.mark.parametrize(
    "variant",
    [
        "",
        "implicit=both",
        "implicit=all profile=0 design=0 levels=0 joint=0",
        "implicit=both profile=-1 design=0 levels=0 joint=0",
        "implicit=both profile=01 design=0 levels=0 joint=0",
        "implicit=both profile=0 design=9999 levels=0 joint=0",
        "implicit=both profile=0 design=99999 levels=0 joint=0",
        "implicit=both profile=0 design=0 levels=0 levels=0 joint=0",
        "implicit=both profile=0 design=0 levels=-5 joint=0",
        "implicit=both profile=0 design=0 levels=05 joint=0",
        "implicit=both profile=0 design=0 levels=9999 joint=0",
        "implicit=both profile=0 design=0 levels= joint=0",
        "implicit=both profile=0 design=0 levels=0",
        "implicit=both profile=0 design=3 levels=0 joint=3",
        "profile=0 implicit=both design=0 levels=0 joint=0",
        "implicit=both  profile=0 design=0 levels=0 joint=0",
        "implicit=both profile=\u0663 design=0 levels=0 joint=0",
    ],
)
def test_what_is_no_variant_is_refused(variant):
    with pytest.raises(WireError, match="the server's numbers are out of range"):
        VB.update_shape(K, variant)


def test_a_variant_says_what_the_settings_ask_for():
    settings = Settings(solver="vb", implicit_prior="users")
    assert VB.variant(settings, 3, 2, 5) == "implicit=users profile=3 design=0 levels=0 joint=2"
    ranking = settings.changed(objective="ranking")
    assert VB.variant(ranking, 0, 2, 5) == "implicit=users profile=0 design=2 levels=0 joint=0"
    ordered = settings.changed(likelihood="ordinal", mask="none")
    assert VB.variant(ordered, 0, 1, 5) == "implicit=users profile=0 design=0 levels=5 joint=0"
    without = settings.changed(profile_prior=False, mask_strength=3.0)
    assert VB.variant(without, 3, 1, 0) == "implicit=users profile=0 design=0 levels=0 joint=0"


def test_one_factor_more_is_the_items_bias():
    assert VB.rank(Settings(solver="vb", factors=5)) == 6
    assert prior_mean(3).tolist() == [1.0, 0.0, 0.0]


def test_vb_takes_its_own_forms_alone():
    with pytest.raises(TypeError, match="vb has forms of its own"):
        VB.party(UpdateShape(rank=K, width=K, broadcast_width=K, n_parameters=5, n_totals=0))


@pytest.mark.parametrize("rank_of_curvature", [0, 2, K])
def test_spread_is_the_inverse_of_n_a_plus_b(generator, rank_of_curvature):
    root = generator.standard_normal((K, rank_of_curvature))
    base_root = generator.standard_normal((K, K))
    a, b = root @ root.T, base_root @ base_root.T + 0.1 * np.eye(K)
    spread, counts = Spread.of(a, b), np.array([0.0, 1.0, 7.0, 1e6])
    inverses = np.array([np.linalg.inv(n * a + b) for n in counts])
    vectors = generator.standard_normal((4, K))
    shrinkage = spread.shrinkage(counts)
    for i in range(4):
        found = spread.matrix(shrinkage[i])
        np.testing.assert_allclose(found, inverses[i], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        spread.matrix(shrinkage.sum(axis=0)), inverses.sum(axis=0), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        spread.apply(counts, vectors),
        [inverse @ vector for inverse, vector in zip(inverses, vectors, strict=True)],
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(
        spread.variances(counts), [np.diag(inverse) for inverse in inverses], rtol=1e-6, atol=1e-8
    )


# A party


def published(update_shape, n_items, **parts):
    """A broadcast of given parts; ones where numbers have to be positive."""
    numbers = {
        "tau": np.ones(1),
        "user_precision": np.ones(K),
        "item_precision": np.ones(K),
        "base": pack(np.eye(K)),
    }
    columns = {name: parts.pop(name) for name in ("mean", "n_raters") if name in parts}
    numbers |= parts
    return Broadcast(
        K,
        update_shape.blocks["parameters"].join(**numbers),
        update_shape.blocks["item_row"].join((n_items,), **columns).astype(np.float32),
    )


def test_a_posterior_is_bayes_rule_of_a_linear_model_where_items_are_certain(generator):
    update_shape = VbShape.of(K, write_variant("users", 2, 0, 0))
    q, r = generator.standard_normal((9, K)).astype(np.float32), generator.standard_normal(6)
    a, tau, v = np.array([1.0, 2.0, 3.0, 0.5]), 0.7, generator.standard_normal((K + 2, K))
    items, profile = np.array([0, 2, 3, 5, 7, 8]), generator.standard_normal(2)
    certain = pack(1e12 * np.eye(K))
    numbers = {"tau": np.array([tau]), "user_precision": a, "user_weights": v.ravel()}
    broadcast = published(update_shape, 9, mean=q, base=certain, **numbers)
    half = VbParty(update_shape)
    half.update(
        UserData(items, r, profile, np.zeros(0)),
        VB.reading(update_shape, broadcast, np.zeros((9, 0))),
        1,
    )
    prior = prior_mean(K) + profile @ v[K:] + q[items].sum(axis=0) / np.sqrt(6) @ v[:K]
    # r = q.p + noise with p ~ N(prior, 1/a): a regression with a row more for each number of p
    rows = np.vstack((q[items] / np.sqrt(tau), np.diag(np.sqrt(a))))
    targets = np.concatenate((r / np.sqrt(tau), np.sqrt(a) * prior))
    expected = np.linalg.lstsq(rows, targets)[0]
    np.testing.assert_allclose(half.user_factors, expected, rtol=1e-5)


@every_variant
def test_a_posterior_is_that_of_all_items_one_by_one(variant):
    """With what is uncertain about items and, where they count, with all unrated items."""
    world = World(variant)
    for own in world.own:
        half, expected = world.half_of(own), dense(world, own)
        half.update(own, world.reading(), world.t)
        np.testing.assert_allclose(half.user_factors, expected.mean, rtol=1e-5, atol=2e-6)
        if world.update_shape.n_levels:  # who settles takes more turns
            continue
        other = VbParty(world.update_shape)
        other.solve_user(own, world.reading())
        assert np.array_equal(other.user_factors, half.user_factors)


@pytest.mark.parametrize("variant", ["ranking", "ranking by features", "all of it"])
def test_evidence_of_unrated_items_is_a_sum_over_all_of_them(variant):
    world = World(variant)
    reading = world.reading()
    covariance = covariances(reading, world.update_shape, world.server.broadcast())
    for own in world.own:
        about, found = dense(world, own), evidence(own, reading)
        each = list(zip(about.weights, about.targets, reading.mean, covariance, strict=True))
        assert len(each) == N_ITEMS
        assert found.weight == pytest.approx(sum(w for w, *_ in each))
        assert found.squares == pytest.approx(sum(w * r * r for w, r, *_ in each))
        np.testing.assert_allclose(found.first, sum(w * r * q for w, r, q, _ in each), rtol=1e-6)
        second = sum(w * (t + np.outer(q, q)) for w, _, q, t in each)
        np.testing.assert_allclose(found.second, second, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("variant", ["profiles", "ranking by features", "all of it"])
def test_who_has_rated_nothing_settles_by_what_else_is_known(variant):
    world = World(variant)
    own = replace(world.own[0], items=np.zeros(0, int), masked_ratings=np.zeros(0, np.float32))
    half = VbParty(world.update_shape)
    half.solve_user(own, world.reading())
    reading = world.reading()
    prior = prior_mean(K) + own.profile @ reading.user_weights[world.update_shape.n_seen :]
    if not world.update_shape.n_design:
        np.testing.assert_allclose(half.user_factors, prior, rtol=1e-5, atol=1e-6)
        return
    covariance = covariances(reading, world.update_shape, world.server.broadcast())
    precision, right = np.diag(reading.user_precision), reading.user_precision * prior
    for i, q in enumerate(reading.mean):
        target = VALUE - world.design[i] @ own.line
        precision = precision + WEIGHT * (covariance[i] + np.outer(q, q)) / reading.tau
        right = right + WEIGHT * target * q / reading.tau
    expected = np.linalg.solve(precision, right)
    np.testing.assert_allclose(half.user_factors, expected, rtol=1e-5, atol=1e-6)


def test_expected_squares_are_the_mean_over_draws(generator):
    """The formula that the totals are compared with, by drawing q and p."""
    world = World("ranking by features")
    reading, about = world.reading(), dense(world, world.own[0])
    covariance = covariances(reading, world.update_shape, world.server.broadcast())
    draws, total = 200_000, 0.0
    spread = about.moment - np.outer(about.mean, about.mean)
    for i in range(N_ITEMS):
        q = generator.multivariate_normal(reading.mean[i], covariance[i], draws)
        p = generator.multivariate_normal(about.mean, spread, draws)
        error = np.mean((about.targets[i] - np.sum(q * p, axis=1)) ** 2)
        total += about.weights[i] * error
    assert expected_squares(world, about) == pytest.approx(total, rel=0.02)


@every_variant
def test_totals_are_what_they_are_called(variant):
    world = World(variant)
    reading = world.reading()
    for own, half in zip(world.own, world.halves, strict=True):
        about, n = dense(world, own), len(own.items)
        _, totals = half.update(own, reading, world.t)
        found = world.update_shape.blocks["totals"].split(totals)
        known = known_of(world, own)
        deviation = np.diag(about.moment) - 2 * about.mean * about.prior + about.prior**2
        expected = {
            "weight": [about.weights.sum()],
            "error": [expected_squares(world, about)],
            "n_users": [1],
            "n_ratings": [n],
            "user_sum": about.mean[:K],
            "deviation": deviation[:K],
            "moment": n * pack(about.moment[:K, :K]),
            "user_gram": [known[i] * known[j] for i in range(len(known)) for j in range(i + 1)],
            "user_moments": [x * p for x in known for p in (0.0, *about.mean[1:K])],
            "n_profiled": [float(own.profile.any())] if world.update_shape.n_profile else [],
            "profile_sum": own.profile,
            "all_moment": [],
            "all_line": [],
            "joint_sum": about.mean[K:],
            "joint_deviation": deviation[K:],
            "levels": about.levels,
        }
        if world.update_shape.n_design:
            line = -own.line
            line[0] += VALUE
            expected["all_moment"] = pack(about.moment)
            expected["all_line"] = np.outer(about.mean, line).ravel()
        assert set(found) == set(expected)
        exact = 1e-6 if world.update_shape.n_levels else 1e-8  # what is latent is a float32
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=exact, err_msg=name)


@every_variant
def test_summed_gradients_are_the_slope_of_the_expected_bound(variant):
    """In E[q_i], with the posteriors of all p_u held; what all items share goes through totals."""
    world = World(variant)
    reading = world.reading()
    about = [dense(world, own) for own in world.own]
    sums = world.sums(world.t)
    found = sums.rows
    totals = world.update_shape.blocks["totals"].split(sums.totals)
    if world.update_shape.n_design:
        line = totals["all_line"].reshape(K, -1)
        all_moment = unpack(totals["all_moment"], K)
        found = found + WEIGHT * (world.design @ line.T - reading.mean @ all_moment)

    def bound(learned):
        total, mean = 0.0, np.hstack((learned, reading.mean[:, K:]))
        for one in about:
            scores, squares = mean @ one.mean, np.einsum("ik,kl,il->i", mean, one.moment, mean)
            total -= 0.5 * np.sum(one.weights * (squares - 2 * one.targets * scores))
        return total  # what does not depend on the means is left out

    np.testing.assert_allclose(found, slope(bound, reading.mean[:, :K]), rtol=1e-4, atol=1e-5)


# The server


def after(world):
    """State before a round, its sums, each user's posterior in it, and the state after."""
    before = {name: value.copy() for name, value in world.server.state().items()}
    about = [dense(world, own) for own in world.own]
    reading = world.reading()
    sums = world.round(world.t)
    return before, about, reading, sums, world.server.state()


def tightness(world, n_raters):
    """By how much the prior of each q_i is tighter than that of an average item. (n_items,)."""
    if not world.update_shape.n_design:
        return np.ones(len(n_raters))
    pairs = n_raters + WEIGHT * len(world.own)
    return pairs / pairs[n_raters > 0].mean()


@every_variant
def test_a_step_of_the_items_is_that_of_dense_sums_over_users(variant):
    world = World(variant)
    before, about, reading, sums, now = after(world)
    tau, c, n_ratings = reading.tau, before["item_precision"], sum(sums.n_raters)
    shared = sum(len(own.items) * one.moment for own, one in zip(world.own, about, strict=True))
    shared = shared[:K, :K] / n_ratings
    everybody = sum(one.moment for one in about)[:K, :K]
    weight = WEIGHT if world.update_shape.n_design else 0.0
    tight = tightness(world, sums.n_raters)
    for i in range(N_ITEMS - 1):
        q, own = before["mean"][i], tight[i] * c
        precision = np.diag(own) + weight * everybody / tau
        precision = precision + (1 - weight) * sums.n_raters[i] * shared / tau
        gradient = -own * (q - before["prior"][i])
        for one in about:
            whole = one.targets[i] * one.mean - one.moment @ reading.mean[i]
            gradient += one.weights[i] * whole[:K] / tau
        expected = q + STEP * np.linalg.solve(precision, gradient)
        np.testing.assert_allclose(now["mean"][i], expected, rtol=1e-4, atol=1e-5)
        t = np.linalg.inv(sums.n_raters[i] * now["curvature"] + now["base"])
        np.testing.assert_allclose(t, np.linalg.inv(precision), rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(now["mean"][-1], before["prior"][-1])  # nobody has rated it


@every_variant
def test_hyperparameters_maximise_the_bound(variant):
    world = World(variant)
    _, about, reading, sums, now = after(world)
    deviation = sum(np.diag(one.moment) - 2 * one.mean * one.prior + one.prior**2 for one in about)
    found = np.concatenate((now["user_precision"], now["joint_precision"]))
    np.testing.assert_allclose(found[1:], (len(about) / deviation)[1:], rtol=1e-5)
    mean = np.mean([one.mean for one in about], axis=0)
    np.testing.assert_allclose(now["joint_mean"], mean[K:], rtol=1e-5, atol=1e-8)
    assert now["user_precision"][0] == PINNED
    n_pairs = sum(one.weights.sum() for one in about)
    assert now["tau"] * n_pairs == pytest.approx(sum_of_errors(reading, about), rel=1e-5)
    known = sums.n_raters > 0
    covariance = [np.linalg.inv(n * now["curvature"] + now["base"]) for n in sums.n_raters]
    spread = np.array([np.diag(t) for t in covariance]) + (now["mean"] - now["prior"]) ** 2
    spread = tightness(world, sums.n_raters)[:, np.newaxis] * spread
    np.testing.assert_allclose(now["item_precision"], 1 / spread[known].mean(axis=0), rtol=1e-6)


def sum_of_errors(reading, about):
    """E[(r - q.p)^2] over all pairs, by the broadcast of that round."""
    total = 0.0
    for one in about:
        total += one.variance
        for i, q in enumerate(reading.mean):
            second = reading.spread.matrix(reading.shrinkage[i]) + np.outer(q, q)
            r = one.targets[i]
            error = r * r - 2 * r * (q @ one.mean) + np.sum(second * one.moment)
            total += one.weights[i] * error
    return total


@every_variant
def test_the_items_prior_is_a_ridge_regression_on_their_features(variant):
    """And on what raters said of them in the last look, with a ridge of its own."""
    world = World(variant)
    before, _, _, sums, now = after(world)
    n_looked = K if VARIANTS[variant][0] in ("items", "both") else 0
    assert now["raters"].shape == (N_ITEMS, n_looked)
    assert np.array_equal(now["raters"], before["raters"])  # this round was no look
    assert now["raters"].any() == (n_looked > 0)
    x = np.column_stack((np.ones(N_ITEMS), world.regressors, now["raters"]))
    ridge = np.array([0.0, *[PRIOR_RIDGE] * 2, *[MEMBERSHIP_RIDGE] * n_looked])
    penalty = np.sqrt(np.diag(ridge))[1:]
    each = np.sqrt(tightness(world, sums.n_raters))[:-1, np.newaxis]
    rows = np.vstack((each * x[:-1], penalty))
    targets = np.vstack((each * now["mean"][:-1], np.zeros((len(penalty), K))))
    weights = np.linalg.lstsq(rows, targets)[0]
    np.testing.assert_allclose(now["item_weights"], weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(now["prior"], x @ weights, rtol=1e-4, atol=1e-5)
    more = np.random.default_rng(0).standard_normal((3, 2))
    found = world.update_shape.blocks["item_row"].split(world.server.unknown(more))
    mean = np.column_stack((np.ones(3), more)) @ weights[:3]  # nobody rated them
    np.testing.assert_allclose(found.pop("mean"), mean, rtol=1e-4, atol=1e-5)
    assert not any(part.any() for part in found.values())


KNOWING = [name for name in VARIANTS if VARIANTS[name][0] in ("users", "both") or VARIANTS[name][1]]
LOOKING = [name for name in VARIANTS if VARIANTS[name][0] in ("items", "both")]
PROFILED = [name for name in VARIANTS if VARIANTS[name][1]]


@pytest.mark.parametrize("variant", KNOWING)
def test_weights_of_users_prior_are_a_ridge_regression_over_users(variant):
    """A row for each user, and USER_RIDGE mean users who say nothing for each column."""
    world = World(variant)
    known = np.array([known_of(world, own) for own in world.own])
    _, about, _, _, now = after(world)
    n_seen, d = K * (VARIANTS[variant][0] in ("users", "both")), VARIANTS[variant][1]
    usual = np.mean(np.square(known[:, :n_seen])) if n_seen else 0.0
    penalty = np.diag(np.sqrt([USER_RIDGE * usual] * n_seen + [USER_RIDGE] * d))
    rows = np.vstack((known, penalty))
    targets = np.vstack(([one.mean[:K] for one in about], np.zeros((n_seen + d, K))))
    expected = np.linalg.lstsq(rows, targets)[0]
    expected[:, 0] = 0.0  # the pinned coordinate has no prior to explain
    np.testing.assert_allclose(now["user_weights"], expected, rtol=1e-4, atol=1e-6)
    assert now["user_weights"].shape == (n_seen + d, K)
    assert not now["user_weights"][:, 0].any()
    assert np.abs(expected).max() > 0.001
    parts = world.update_shape.blocks["parameters"].split(world.server.broadcast().parameters)
    assert np.array_equal(parts["user_weights"], now["user_weights"].ravel())


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in KNOWING])
def test_without_knowledge_users_have_one_prior(variant):
    """Where nothing else counts, somebody without ratings settles there."""
    world = World(variant)
    assert world.reading().user_weights.shape == (0, world.update_shape.n_own)
    if not world.update_shape.n_design:
        np.testing.assert_allclose(settled_without_ratings(world), middle(world), atol=1e-6)


def settled_without_ratings(world):
    """p_u of somebody without a profile either."""
    half, nothing = VbParty(world.update_shape), np.zeros(world.update_shape.n_profile)
    half.solve_user(UserData(np.zeros(0, int), np.zeros(0), nothing, np.zeros(0)), world.reading())
    return half.user_factors


@every_variant
def test_the_mean_user_is_the_mean_of_all_p_u_and_the_stranger(variant):
    """Of the round that has been; at first, where everybody starts."""
    world = World(variant, rounds=0)
    place = world.update_shape.blocks["parameters"].place("mean_user")
    assert world.server.broadcast().parameters[place].tolist() == [1, 0, 0, 0]
    for t in range(1, MEMBERSHIP_ROUNDS[0] + 3):  # looks are no exception
        sums = world.round(t)
        mean = np.mean([half.user_factors.astype(float) for half in world.halves], axis=0)
        found = world.server.broadcast().parameters[place]
        np.testing.assert_allclose(found, mean[:K], rtol=1e-5, atol=1e-6)
        summed = world.update_shape.blocks["totals"].split(sums.totals)["user_sum"]
        np.testing.assert_allclose(found, summed / N_USERS, rtol=1e-12)
        default_user = VB.default_user(world.update_shape, world.server.broadcast())
        assert np.array_equal(default_user[:K], found.astype(np.float32))
        np.testing.assert_allclose(default_user, mean, rtol=1e-5, atol=1e-6)  # with a mean mask
        assert default_user.dtype == np.float32
    assert np.abs(mean[1:]).max() > 0.001  # it is not the mean of the prior


@every_variant
def test_a_posterior_does_not_depend_on_the_mean_user(variant):
    """It is told for strangers alone."""
    world = World(variant)
    broadcast, own = world.server.broadcast(), world.own[0]
    numbers = broadcast.parameters.copy()
    numbers[world.update_shape.blocks["parameters"].place("mean_user")] += 1.0
    other = Broadcast(K, numbers, broadcast.item_rows)
    readings = (VB.reading(world.update_shape, told, world.design) for told in (broadcast, other))
    one, same = (world.half_of(own).update(own, reading, world.t) for reading in readings)
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert (
        VB.default_user(world.update_shape, other)
        > VB.default_user(world.update_shape, broadcast) + 0.9
    )[:K].all()


def test_who_has_rated_nothing_is_not_in_the_mean_user():
    world = World("both", rounds=0)
    nothing = {"items": np.zeros(0, int), "masked_ratings": np.zeros(0, np.float32)}
    world.own[3] = replace(world.own[3], **nothing)
    for t in (1, 2, 3):
        world.round(t)
    others = [half.user_factors for half, own in zip(world.halves, world.own, strict=True)
              if len(own.items)]  # fmt: skip
    assert len(others) == N_USERS - 1
    mean = np.mean(np.array(others, float), axis=0)
    default_user = VB.default_user(world.update_shape, world.server.broadcast())
    np.testing.assert_allclose(default_user, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", PROFILED)
def test_the_mean_profile_is_that_of_those_who_have_one(variant):
    world = World(variant)
    profiles = [own.profile for own in world.own if own.profile.any()]
    assert len(profiles) == N_USERS - len(UNPROFILED)
    np.testing.assert_allclose(world.reading().profile_mean, np.mean(profiles, axis=0), rtol=1e-12)


@pytest.mark.parametrize("variant", PROFILED)
def test_a_profile_of_zeros_is_taken_for_the_mean_one(variant):
    """And is not counted in the mean; a profile that says something else leads elsewhere."""
    world = World(variant)
    own, reading = world.own[UNPROFILED[0]], world.reading()
    assert not own.profile.any()
    found, totals = {}, {}
    mean = reading.profile_mean
    for way, profile in (("zeros", own.profile), ("mean", mean), ("other", mean + 1.0)):
        half = world.half_of(own)
        _, sent = half.update(replace(own, profile=profile), reading, world.t)
        found[way], totals[way] = half.user_factors, world.update_shape.blocks["totals"].split(sent)
    assert np.array_equal(found["zeros"], found["mean"])
    assert np.abs(found["zeros"] - found["other"]).max() > 1e-5
    for name in totals["mean"]:
        if name not in ("n_profiled", "profile_sum"):
            assert np.array_equal(totals["zeros"][name], totals["mean"][name])
    assert totals["zeros"]["n_profiled"].tolist() == [0]
    assert not totals["zeros"]["profile_sum"].any()
    assert totals["mean"]["n_profiled"].tolist() == [1]
    assert np.array_equal(totals["mean"]["profile_sum"], mean)


def test_nobody_may_have_a_profile():
    world = World("profiles", rounds=0)
    world.own = [replace(own, profile=np.zeros(2)) for own in world.own]
    for t in (1, 2, 3):
        world.round(t)
    assert not world.reading().profile_mean.any()
    assert not world.reading().user_weights.any()


@pytest.mark.parametrize("variant", [v for v in PROFILED if not VARIANTS[v][2]])
def test_who_has_neither_profile_nor_items_settles_by_the_mean_profile(variant):
    world = World(variant)
    reading = world.reading()
    expected = middle(world) + reading.profile_mean @ reading.user_weights[-2:]
    np.testing.assert_allclose(settled_without_ratings(world), expected, rtol=1e-5, atol=1e-6)


# Looks


@every_variant
def test_two_rounds_of_a_run_look_at_who_rated_what(variant):
    """After 5 and after 13 finished rounds, where the prior of items needs it; never else."""
    assert MEMBERSHIP_ROUNDS == (5, 13)
    assert len(MEMBERSHIP_ROUNDS) == MAX_MEMBERSHIP_ROUNDS
    world, looks = World(variant, rounds=0), []
    for t in range(1, VB.default_rounds + 1):
        place = world.update_shape.blocks["parameters"].place("membership")
        switch = world.server.broadcast().parameters[place]
        assert len(switch) == (variant in LOOKING)
        assert world.reading().is_membership_round == (switch.tolist() == [1.0])
        looks += [t] if world.reading().is_membership_round else []
        world.round(t)
    assert looks == ([6, 14] if variant in LOOKING else [])
    assert {int(half.state()["looks"]) for half in world.halves} == {len(looks)}


@pytest.mark.parametrize(
    ("rounds", "expected"), [("auto", (5, 13)), (10, (5, 13)), (22, (5, 13)), (40, (9, 23))]
)
@pytest.mark.parametrize("variant", ["both", "all of it"])
def test_lists_learned_in_more_rounds_look_later(rounds, expected, variant):
    world = World(variant, rounds=0)
    settings = world.settings.changed(rounds=rounds)
    server = VB.server(settings, world.update_shape, world.context())
    usual = (5, 13)
    assert server.membership_rounds == (expected if world.update_shape.ranks else usual)
    place = world.update_shape.blocks["parameters"].place("membership")
    for n_done in (5, 9, 13, 23):
        server.restore({**server.state(), "n_done": np.asarray(n_done)})
        looks = bool(server.broadcast().parameters[place].any())
        assert looks == (n_done in server.membership_rounds)


@pytest.mark.parametrize("variant", LOOKING)
def test_rows_of_a_look_are_p_u_and_totals_are_as_ever(variant):
    world = World(variant, rounds=MEMBERSHIP_ROUNDS[0])
    reading = world.reading()
    assert reading.is_membership_round
    blind = replace(reading, is_membership_round=False)
    for own in world.own:
        half, other, expected = world.half_of(own), world.half_of(own), dense_early(world, own)
        rows, totals = half.update(own, reading, world.t)
        gradients, same = other.update(own, blind, world.t)
        np.testing.assert_allclose(rows, np.tile(expected.mean[:K], (len(own.items), 1)), rtol=1e-4,
                                   atol=2e-6)  # fmt: skip
        assert all(np.array_equal(row, half.user_factors[:K]) for row in rows)
        assert rows.dtype == np.float32
        assert np.array_equal(totals, same)
        assert np.array_equal(half.user_factors, other.user_factors)
        assert np.abs(rows - gradients).max() > 0.01


def dense_early(world, own):
    """`dense`, before ordered ratings are levels."""
    update_shape = world.update_shape
    world.update_shape = replace(update_shape, n_levels=0)
    found = dense(world, own)
    world.update_shape = update_shape
    return found


@pytest.mark.parametrize("variant", LOOKING)
@pytest.mark.parametrize("rounds", MEMBERSHIP_ROUNDS)
def test_a_look_gives_regressors_and_moves_no_item(variant, rounds):
    """n_i^-1/2 sum of p_u, with mean 0 and deviation 1 over the items that somebody rated."""
    world = World(variant, rounds=rounds)
    before = {name: value.copy() for name, value in world.server.state().items()}
    assert before["raters"].any() == (rounds > MEMBERSHIP_ROUNDS[0])
    sums = world.round(world.t)
    now = world.server.state()
    told = np.zeros((N_ITEMS - 1, K))
    for i in range(N_ITEMS - 1):
        raters = [h for own, h in zip(world.own, world.halves, strict=True) if i in own.items]
        assert len(raters) == sums.n_raters[i] > 0
        told[i] = sum(half.user_factors[:K] for half in raters) / math.sqrt(len(raters))
    for f in range(K):
        mean = sum(told[:, f]) / len(told)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in told[:, f]) / len(told))
        expected = (told[:, f] - mean) / deviation
        np.testing.assert_allclose(now["raters"][:-1, f], expected, rtol=1e-4, atol=1e-5)
    assert not now["raters"][-1].any()  # nobody has rated it
    for name in ("mean", "curvature", "base"):
        assert np.array_equal(now[name], before[name])
    assert not np.array_equal(now["prior"], before["prior"])
    assert not np.array_equal(now["tau"], before["tau"])
    assert int(now["n_done"]) == rounds + 1


@pytest.mark.parametrize("variant", LOOKING)
def test_a_third_look_is_refused(variant):
    """Whichever rounds they are, and also where somebody has rated nothing."""
    world = World(variant, rounds=0)
    look = replace(world.reading(), is_membership_round=True)
    nothing = UserData(np.zeros(0, int), np.zeros(0), world.own[0].profile, world.own[0].line)
    for own in (world.own[0], nothing):
        half = VbParty(world.update_shape)
        half.update(own, look, 1)
        half.update(own, world.reading(), 2)
        half.update(own, look, 3)
        state = half.state()
        with pytest.raises(WireError, match="2 rounds at most may ask who rated what"):
            half.update(own, look, 4)
        assert np.array_equal(half.user_factors, state["value"])
        half.update(own, world.reading(), 5)  # others go on
        assert int(half.state()["looks"]) == 2
        half.solve_user(own, look)  # sends nothing
        again = VbParty(world.update_shape)
        again.restore(state)
        with pytest.raises(WireError, match="2 rounds at most may ask"):
            again.update(own, look, 4)


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, 1e-9])
def test_a_round_looks_or_does_not(value):
    world = World("items", rounds=2)
    broadcast = world.server.broadcast()
    for told in (0.0, 1.0, value):
        numbers = broadcast.parameters.copy()
        numbers[world.update_shape.blocks["parameters"].place("membership")] = told
        changed = Broadcast(K, numbers, broadcast.item_rows)
        if told != value:
            VB.check(world.update_shape, changed)
            continue
        with pytest.raises(WireError, match="a round asks who rated what, or it does not"):
            VB.check(world.update_shape, changed)


def test_who_rated_an_item_says_what_it_is(generator):
    """Items of two kinds, each rated by those who like it: the prior knows a kind by its raters."""
    n_items, n_users = 40, 120
    kind, taste = np.repeat((1.0, -1.0), n_items // 2), np.repeat((1.0, -1.0), n_users // 2)
    found = {}
    for implicit in ("none", "items"):
        made = np.random.default_rng(5)
        settings = Settings(solver="vb", factors=1, implicit_prior=implicit)
        update_shape, nothing = (
            VB.update_shape(2, VB.variant(settings, 0, 0, 0)),
            np.zeros((n_items, 0)),
        )
        context = SolverContext(n_items, 4.0, 1.0, 0.0, 9.0, nothing, nothing, made)
        server, own = VB.server(settings, update_shape, context), []
        for u in range(n_users):
            items = np.flatnonzero(made.random(n_items) < np.where(kind == taste[u], 0.35, 0.1))
            masked = taste[u] * kind[items] + 0.3 * made.standard_normal(len(items))
            own.append(UserData(items, masked.astype(np.float32), np.zeros(0), np.zeros(0)))
        halves = [VbParty(update_shape) for _ in own]
        n_raters = np.bincount(np.concatenate([one.items for one in own]), minlength=n_items)
        for t in range(1, 15):
            reading, sums, totals = VB.reading(update_shape, server.broadcast(), nothing), 0, 0
            sums = np.zeros((n_items, 2))
            for half, one in zip(halves, own, strict=True):
                rows, more = half.update(one, reading, t)
                np.add.at(sums, one.items, rows)
                totals = totals + more
            server.advance(ItemSums(sums, n_raters, totals), t)
        prior = server.state()["prior"][:, 1]
        found[implicit] = abs(np.corrcoef(prior, kind)[0, 1]) if np.ptp(prior) > 1e-9 else 0.0
    assert found["items"] > 0.9
    assert found["none"] == 0.0


# More of the server


@every_variant
def test_who_stays_away_is_taken_for_the_mean_of_those_who_came(variant):
    """Two of each, of whom one comes: all moves as if both had come.

    But weights of users' prior are pulled to zero by as many as ever, so that half as many users
    give what twice the ridge would give; and what rounding may have done to totals is less.
    """
    everybody, half = World(variant, copies=2), World(variant, copies=2)
    t = everybody.t
    sums = everybody.sums(t)
    halved = ItemSums(sums.rows / 2, sums.n_raters, sums.totals / 2)
    everybody.server.advance(sums, t)
    half.sums(t)
    half.server.advance(halved, t)
    expected, found = dict(everybody.server.state()), half.server.state()
    if variant in KNOWING:
        totals = everybody.update_shape.blocks["totals"].split(sums.totals)
        e, n_seen = len(expected["user_weights"]), everybody.update_shape.n_seen
        gram = unpack(totals["user_gram"], e)
        ridge = np.full(e, 2 * USER_RIDGE)
        ridge[:n_seen] *= np.trace(gram[:n_seen, :n_seen]) / max(n_seen, 1) / totals["n_users"]
        moments = totals["user_moments"].reshape(e, K)
        expected["user_weights"] = np.linalg.solve(gram + np.diag(ridge), moments)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-7, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("name", ["moment", "all_moment", "user_gram"])
def test_rounded_totals_of_many_equal_users_still_give_positive_matrices(name):
    """Each user's numbers are rounded before they are added, and equal users round alike.

    The sums of 200,000 users who are all near one line in the space of factors are then off by
    thousands of steps, and no longer a covariance: unmended, a factorization of them fails.
    """
    world, n_users = World("all of it"), 200_000
    totals, place = world.sums(world.t).totals, world.update_shape.blocks["totals"].place
    codec = FixedPoint(n_users, VB.bounds(4.0).total, RING64)
    size = K if name != "user_gram" else world.update_shape.n_seen + world.update_shape.n_profile
    wave = np.resize([1.0, -1.0], size)
    own = np.outer(wave, wave) * 0.51 / codec.scale  # rounds up to a whole step, off the diagonal
    np.fill_diagonal(own, 0.49 / codec.scale)  # and to nothing on it
    rounded = n_users * pack(codec.quantize(own) / codec.scale)
    assert np.linalg.eigvalsh(unpack(rounded, size))[0] < 0
    totals[place(name)], totals[place("n_users")] = rounded, n_users
    sums = world.sums(world.t)
    small = world.server.state() | {"tau": np.asarray(1e-3)}
    world.server.restore(small)
    world.server.advance(ItemSums(sums.rows, sums.n_raters, totals), world.t)
    world.server.check(world.server.broadcast())


def test_item_factors_start_smaller_where_unrated_items_outweigh_rated_ones_by_far():
    """Else all p_u would be tiny, and their squares lost in the rounding of totals."""
    update_shape = VbShape.of(K, write_variant("none", 0, 1, 0, 0))
    settings = Settings(solver="vb", factors=K - 1, objective="ranking")

    def start(ratings_per_user, n_items):
        stream, none = np.random.default_rng(1), np.zeros((n_items, 0))
        about = (n_items, 4.0, 1.0, 0.0, ratings_per_user, none, np.ones((n_items, 1)), stream)
        return VB.server(settings, update_shape, SolverContext(*about)).state()

    usual, sparse = start(60.0, 1000), start(6.0, 1000)  # 8 and 33 times as much weight
    share = np.sqrt(8 / (0.2 * (1 - 0.006) / 0.006))
    np.testing.assert_allclose(sparse["mean"], share * usual["mean"], rtol=1e-6)
    np.testing.assert_allclose(sparse["item_precision"], usual["item_precision"] / share**2)
    assert usual["mean"].std() == pytest.approx(0.3, rel=0.05)  # of a quarter of the scale


def predictions(world):
    """q_i . p_u of all pairs, and the covariances of q_i, by what is broadcast next."""
    reading = world.reading()
    about = [dense(world, own) for own in world.own]
    expected = np.array([reading.mean @ one.mean for one in about])  # (n_users, n_items)
    scaled = [one.mean[:K] @ reading.spread.basis[:K] for one in about]
    return expected, np.abs(scaled), np.array([world.server.unknown(world.regressors)[:, 0]])


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "ordinal" not in name])
def test_a_factor_that_is_brought_into_proportion_is_the_same_factor(variant, monkeypatch):
    """Not so where ratings are ordered: p_u of the last round says what is latent in the next."""
    found = []
    for most in (np.inf, 1.0):  # no factor is out of proportion, or every one
        world = World(variant)
        monkeypatch.setattr(vb_server, "MAX_IMBALANCE", most)
        world.round(world.t)
        monkeypatch.undo()
        found.append((*predictions(world), world.server.state()["item_precision"]))
    *before, precision = found[0]
    *after, other = found[1]
    assert set(np.log2(other[1:] / precision[1:])) <= {-2.0, 2.0}
    for one, same in zip(before, after, strict=True):
        np.testing.assert_allclose(same, one, rtol=1e-5, atol=1e-6)


def test_factors_stay_in_proportion_over_many_rounds(monkeypatch):
    """Nothing in the model decides how large item factors are beside user factors."""

    def imbalance(most):
        monkeypatch.setattr(vb_server, "MAX_IMBALANCE", most)
        now = World("all of it", rounds=400).server.state()
        ratio = now["user_precision"][1:] / now["item_precision"][1:]  # the unit of items is 1
        return np.abs(np.log2(ratio)).max()

    assert imbalance(np.inf) > 9
    assert imbalance(2.0**8) <= 8


def test_a_few_who_came_do_not_stand_for_many():
    """What they send counts four times at most."""
    one, other = World("none"), World("none")
    sums, t = one.sums(one.t), one.t
    one.server.advance(ItemSums(sums.rows, 4 * sums.n_raters, sums.totals), t)
    other.server.advance(ItemSums(sums.rows, 1000 * sums.n_raters, sums.totals), t)
    before = World("none").server.state()
    near, far = (w.server.state()["mean"] - before["mean"] for w in (one, other))
    assert np.abs(far[:-1]).mean() < np.abs(near[:-1]).mean()


def test_the_prior_mean_learns_from_item_features(generator):
    """Items whose bias follows a public feature: an unrated item gets it from its feature."""
    n_items, n_users = 40, 30
    feature = generator.standard_normal((n_items, 1))
    feature[0] = 2.0
    ratings = np.tile(feature[:, 0], (n_users, 1)) + 0.1 * generator.standard_normal(
        (n_users, n_items)
    )
    known, nothing = np.arange(1, n_items), np.zeros((n_items, 0))  # nobody rates item 0
    found, unknown = {}, {}
    for item_prior in (True, False):
        settings = Settings(solver="vb", factors=1, item_prior=item_prior, implicit_prior="none")
        update_shape = VB.update_shape(2, VB.variant(settings, 0, 0, 0))
        stream = np.random.default_rng(3)
        context = SolverContext(n_items, 4.0, 1.0, 0.0, 39.0, feature, nothing, stream)
        server = VB.server(settings, update_shape, context)
        n_raters = np.where(np.arange(n_items) > 0, n_users, 0)
        for t in range(1, 25):
            reading = VB.reading(update_shape, server.broadcast(), nothing)
            sums, totals = np.zeros((n_items, update_shape.width)), 0
            for u in range(n_users):
                own = UserData(known, ratings[u, known], np.zeros(0), np.zeros(0))
                rows, more = VbParty(update_shape).update(own, reading, t)
                sums[known] += rows
                totals = totals + more
            server.advance(ItemSums(sums, n_raters, totals), t)
        found[item_prior] = server.broadcast().item_factors[0, 0]
        unknown[item_prior] = server.unknown(np.array([[2.0]]))[0, 0]
    for what in (found, unknown):
        assert what[True] == pytest.approx(2.0, abs=0.15)
        assert what[False] == pytest.approx(feature[1:].mean(), abs=0.15)


# Training


def full_moments(train, n_users, n_items, rounds, seed):
    """Coordinate ascent with a covariance for every item, as textbooks have it. E[q], E[p]."""
    ratings, users, items = train
    stream = np.random.default_rng(seed)
    q = 0.3 * stream.standard_normal((n_items, K))
    covariance = np.tile(0.1 * np.eye(K), (n_items, 1, 1))
    tau, a, c = 1.0, np.array([PINNED, *np.ones(K - 1)]), np.ones(K)
    m, prior = prior_mean(K), np.zeros(K)
    for _ in range(rounds):
        p, seconds = np.zeros((n_users, K)), np.zeros((n_users, K, K))
        for u in range(n_users):
            mine = items[users == u]
            second = sum(covariance[i] + np.outer(q[i], q[i]) for i in mine)
            inverse = np.linalg.inv(np.diag(a) + second / tau)
            p[u] = inverse @ (a * m + ratings[users == u] @ q[mine] / tau)
            seconds[u] = inverse + np.outer(p[u], p[u])
        error = sum(
            r * r
            - 2 * r * (q[i] @ p[u])
            + np.sum(seconds[u] * (covariance[i] + np.outer(q[i], q[i])))
            for r, u, i in zip(ratings, users, items, strict=True)
        )
        for i in range(n_items):
            raters = users[items == i]
            covariance[i] = np.linalg.inv(np.diag(c) + seconds[raters].sum(axis=0) / tau)
            q[i] = covariance[i] @ (c * prior + ratings[items == i] @ p[raters] / tau)
        tau = error / len(ratings)
        a = 1 / np.mean(
            [np.diag(s) - 2 * e * m + m * m for s, e in zip(seconds, p, strict=True)], 0
        )
        a[0] = PINNED
        prior = q.mean(axis=0)
        c = 1 / np.mean((q - prior) ** 2 + np.array([np.diag(t) for t in covariance]), axis=0)
    return q, p


def test_training_ends_where_full_moments_end(generator):
    """One curvature for all items costs no accuracy: error on ratings that nobody trained on."""
    n_users, n_items, noise = 60, 40, 0.4
    truth = generator.standard_normal((n_users, 2)) @ generator.standard_normal((2, n_items))
    truth += generator.standard_normal(n_items)
    is_rated = generator.random((n_users, n_items)) < 0.5
    is_rated[:, 0] |= True
    is_test = is_rated & (generator.random(is_rated.shape) < 0.2)
    is_test[:, 0] = False
    noisy = (truth + noise * generator.standard_normal(truth.shape)).astype(np.float32)
    users, items = np.nonzero(is_rated & ~is_test)
    train = (noisy[users, items].astype(float), users, items)

    settings = Settings(solver="vb", factors=K - 1, implicit_prior="none")
    update_shape, nothing = (
        VB.update_shape(K, VB.variant(settings, 0, 0, 0)),
        np.zeros((n_items, 0)),
    )
    indptr = np.concatenate(([0], np.cumsum(np.bincount(users, minlength=n_users))))
    lists = RatedItems(indptr, items.astype(np.int32))
    empty = np.zeros((n_users, 0))
    crowd = ENGINES["numba"].halves(
        TrainingInput("vb", update_shape, nothing, lists, noisy[users, items], empty, empty)
    )
    stream = np.random.default_rng(2)
    context = SolverContext(n_items, 4.0, 1.0, 0.0, len(users) / n_users, nothing, nothing, stream)
    server = VB.server(settings, update_shape, context)
    for t in range(1, 61):
        update = crowd.update(server.broadcast(), t)
        server.advance(ItemSums(update.rows[0], lists.counts(n_items), update.totals[0]), t)
    q, p = full_moments(train, n_users, n_items, 60, seed=2)

    def error(q, p):
        return float(np.sqrt(np.mean((noisy - p @ q.T)[is_test] ** 2)))

    found, expected = error(server.broadcast().item_factors, crowd.user_factors), error(q, p)
    assert expected < 1.35 * noise  # the oracle has learned something
    assert found == pytest.approx(expected, rel=0.02)
    assert float(server.state()["tau"]) == pytest.approx(noise**2, rel=0.3)


# What is refused


def changes():
    """Name, what is changed, and what is said of it."""
    indefinite, singular = np.diag([1.0, 1.0, -0.5, 1.0]), np.diag([1.0, 1.0, 0.0, 1.0])
    for name in ("tau", "user_precision", "item_precision"):
        for value in (0.0, -1.0, 1e-300, 1e300):
            yield f"{name} {value:g}", name, value, "tau and precisions are in"
    yield "indefinite curvature", "curvature", pack(indefinite), "the curvature is positive"
    yield "negative curvature", "curvature", -pack(np.eye(K)), "the curvature is positive"
    yield "wild curvature", "curvature", 1e40 * pack(np.eye(K)), "the curvature is positive"
    yield "indefinite base", "base", pack(indefinite), "the base is positive"
    yield "singular base", "base", pack(singular), "the base is positive"
    yield "no base", "base", 0.0, "the base is positive"
    for value in (0.0, -0.1, 1.0, 2.0):
        yield f"weight {value}", "unrated", [value, 1.0], "an unrated item weighs less"


@pytest.mark.parametrize(("name", "value", "reason"), [c[1:] for c in changes()],
                         ids=[c[0] for c in changes()])  # fmt: skip
def test_parameters_out_of_range_are_refused(name, value, reason):
    world = World("all of it", rounds=2)
    broadcast = world.server.broadcast()
    numbers = broadcast.parameters.copy()
    place = world.update_shape.blocks["parameters"].place(name)
    if name.endswith("precision"):  # one of them is enough
        place = slice(place.stop - 1, place.stop)
    numbers[place] = value
    told = Broadcast(K, numbers, broadcast.item_rows)
    VB.check(world.update_shape, broadcast)
    with pytest.raises(WireError, match=f"the server's numbers are out of range: .*{reason}"):
        VB.check(world.update_shape, told)
    with pytest.raises(WireError, match="the server's numbers are out of range"):
        world.server.check(told)


def test_a_curvature_may_be_zero_and_a_value_may_be_anything():
    world = World("ranking", rounds=2)
    broadcast = world.server.broadcast()
    numbers = broadcast.parameters.copy()
    numbers[world.update_shape.blocks["parameters"].place("curvature")] = 0.0
    numbers[world.update_shape.blocks["parameters"].place("unrated")] = (0.5, -100.0)
    VB.check(world.update_shape, Broadcast(K, numbers, broadcast.item_rows))


@pytest.mark.parametrize("value", [-1.0, -0.001, np.nan])
def test_numbers_of_raters_are_not_negative(value):
    world = World("both", rounds=2)
    broadcast = world.server.broadcast()
    rows = broadcast.item_rows.copy()
    rows[2, world.update_shape.blocks["item_row"].place("n_raters")] = value
    with pytest.raises(WireError, match="numbers of raters are not negative"):
        VB.check(world.update_shape, Broadcast(K, broadcast.parameters, rows))


# Unrated items


@pytest.mark.parametrize(
    ("n_items", "per_user", "weight"),
    [(1000, 60.0, 8.0 * 0.06 / 0.94), (1000, 10.0, 0.2), (1000, 400.0, 0.55), (10, 10.0, 0.55)],
)
def test_unrated_items_together_weigh_about_eight_times_as_much_as_rated_ones(
    n_items, per_user, weight
):
    """Within limits, and unless asked for."""
    nothing = np.zeros((n_items, 0))
    context = SolverContext(
        n_items, 4.0, 1.0, 0.0, per_user, nothing, nothing, np.random.default_rng(0)
    )
    assert weight_of_unrated(Settings(), context) == pytest.approx(weight)
    assert weight_of_unrated(Settings(unrated_weight=0.01), context) == 0.01
    assert value_of_unrated(Settings(), context) == 1.0
    assert value_of_unrated(Settings(unrated_value=2.5), context) == 2.5


def test_a_server_publishes_what_unrated_items_count_as():
    world = World("ranking", rounds=0)
    numbers = world.update_shape.blocks["parameters"].split(world.server.broadcast().parameters)
    assert numbers["unrated"].tolist() == [WEIGHT, VALUE]
    assert World("none", rounds=0).reading().unrated is None


# State


@every_variant
def test_a_partys_state_is_its_mean_and_how_often_others_looked(variant):
    world = World(variant)
    state = world.halves[0].state()
    assert set(state) == {"value", "looks"}
    looks = sum(rounds < world.t - 1 for rounds in MEMBERSHIP_ROUNDS) if variant in LOOKING else 0
    assert int(state["looks"]) == looks
    again = VbParty(world.update_shape)
    again.restore(state)
    mine = world.halves[0].update(world.own[0], world.reading(), world.t)
    theirs = again.update(world.own[0], world.reading(), world.t)
    assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_bounds_leave_room_for_long_lists():
    """A user with thousands of ratings reaches neither bound."""
    update_shape = VbShape.of(K, write_variant("both", 0, 0, 0))
    generator, n = np.random.default_rng(0), 5000
    broadcast = published(update_shape, n, mean=generator.standard_normal((n, K)))
    own = UserData(np.arange(n), 2 * generator.standard_normal(n), np.zeros(0), np.zeros(0))
    rows, totals = VbParty(update_shape).update(
        own, VB.reading(update_shape, broadcast, np.zeros((n, 0))), 1
    )
    bounds = VB.bounds(4.0)
    assert np.abs(rows).max() < bounds.row
    assert np.abs(totals).max() < bounds.total
    assert VB.bounds(0.5) == VB.bounds(1.0)


@pytest.mark.parametrize(
    ("total", "value"),
    [("joint_sum", 1e9), ("joint_sum", -1e9), ("joint_deviation", -1.0), ("joint_deviation", 1e30)],
)
def test_a_bad_partys_totals_lead_joint_masks_no_further_than_bounds(total, value):
    world = World("joint")
    sums = world.sums(world.t)
    sums.totals[world.update_shape.blocks["totals"].place(total)] = value
    world.server.advance(sums, world.t)
    now = world.server.state()
    assert np.abs(now["joint_mean"]).max() <= 8 * 4.0
    assert ((now["joint_precision"] > 1e-4) & (now["joint_precision"] < 1e6)).all()
    world.server.check(world.server.broadcast())
