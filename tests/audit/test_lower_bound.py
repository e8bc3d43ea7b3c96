"""The lower bound on epsilon: its limits hold as often as they say, and it has power."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, norm

from fedmmf.aggregation.dp.guarantee import spent
from fedmmf.attacks.epsilon import Scores, epsilon_of, lower_limit
from fedmmf.audit.lower_bound import Planted, bounds, bounds_of
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.vb.private import PrivateShape

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")

RUNS = 400
VARIANTS = {
    "vb": {},
    "vb local": {"dp_noise": "local"},
    "sgd": {"solver": "sgd", "factors": 3},
    "vb ensemble": {"ensemble": 2},
    "lists": {"objective": "ranking"},
}


def drawn(mu, n, seed, deviation=1.0):
    draws = np.random.default_rng(seed)
    return Scores(
        5.0 + deviation * (mu + draws.standard_normal(n)),
        5.0 + deviation * draws.standard_normal(n),
    )


def planted_in(ratings, **changes):
    run = prepare(ratings, Settings(aggregation="dp", mask="mean", **changes))
    return Planted.of(run), spent(run.settings, run.settings.ensemble * run.settings.max_rounds)


def with_group(planted, **changes):
    """The same releases from a build that clips or adds noise otherwise."""
    seen = replace(planted.seen)
    group = replace(planted.seen.group, **changes)
    vars(seen).update(rounds=planted.seen.rounds, group=group)
    return replace(planted, seen=seen)


# Statistics


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 3.0])
def test_the_limit_of_the_distance_is_below_it_as_often_as_it_says(mu):
    """Of 400 draws 95 % or more, and not far below."""
    limits = [drawn(mu, 300, seed, deviation=7.0).least_distance() for seed in range(400)]
    below = np.mean(np.array(limits) <= mu)
    assert below >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / 400)
    assert np.median(limits) > mu - 0.35


@pytest.mark.parametrize("mu", [0.5, 2.0, 4.0])
def test_counting_proves_no_more_than_is_true(mu):
    """Epsilon at delta of these two worlds is known exactly."""
    true = epsilon_of(mu, 1e-5)
    found = [drawn(mu, 1000, seed).by_counting(1e-5) for seed in range(60)]
    assert np.mean(np.array(found) <= true) >= 0.9
    assert np.median(found) > 0.15 * true or mu < 1


def test_counting_needs_no_gaussian():
    """Randomized response tells the truth with 3/4: epsilon is log 3, and a bit less is found."""
    draws = np.random.default_rng(1)
    present, absent = (draws.random(20_000) < share for share in (0.75, 0.25))
    found = Scores(present + 0.0, absent + 0.0).by_counting(1e-9)
    assert 0.9 * math.log(3) < found < math.log(3)


@pytest.mark.parametrize(("found", "n"), [(1, 10), (5, 10), (10, 10), (480, 500), (3, 1000)])
@pytest.mark.parametrize("error", [0.025, 0.05])
def test_clopper_and_pearson(found, n, error):
    """The quantile of the beta distribution."""
    assert lower_limit(found, n, error) == pytest.approx(beta.ppf(error, found, n - found + 1))
    assert lower_limit(0, n, error) == 0


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_epsilon_of_two_gaussians(mu, delta):
    """Put back into the curve of Balle and Wang, by scipy."""
    epsilon = epsilon_of(mu, delta)
    first = norm.cdf(mu / 2 - epsilon / mu)
    second = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    assert epsilon == 0 or first - second == pytest.approx(delta, rel=1e-5)
    assert epsilon_of(0.0, delta) == 0


def test_honest_builds_are_not_called_broken():
    """With the clip filled, limits of 95 % exceed the proof now and then; sure ones never."""
    mu, delta = 0.3, 1e-5
    proven, audits = epsilon_of(mu, delta), [drawn(mu, 300, seed) for seed in range(200)]
    assert any(epsilon_of(one.least_distance(), delta) > proven for one in audits)
    assert all(one.surely(delta) < proven for one in audits)


# Runs


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_planted_user_is_found_no_better_than_was_proven(small, variant, epsilon):
    planted, known = planted_in(small, dp_epsilon=epsilon, **VARIANTS[variant])
    found = bounds(planted, known["epsilon"], 1e-5, RUNS)
    assert not found.is_contradicted
    assert found.lower <= found.estimate
    assert (found.proven, found.runs) == (known["epsilon"], RUNS)
    if variant == "vb" and epsilon > 1:
        assert found.lower > 0.4 * epsilon  # the clip is filled
    assert f"in {RUNS} runs with a planted user and {RUNS} without" in found.sentence
    assert "(one-sided, 95 %" in found.sentence


@pytest.mark.parametrize("variant", ["vb", "sgd"])
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_half_of_the_noise_is_found_out(small, variant, epsilon):
    planted, known = planted_in(small, dp_epsilon=epsilon, **VARIANTS[variant])
    broken = with_group(planted, noise_std=planted.seen.group.noise_std / 2)
    found = bounds(broken, known["epsilon"], 1e-5, 1000)
    assert found.surely > known["epsilon"]
    assert found.is_contradicted
    assert "something is broken. Report it" in found.sentence


def naming_a_clip(round_):
    """A server that names ten times the clip, which a build without a clip would believe."""
    shape = PrivateShape.of(round_.rank, "stages=counts,means,factors joint=1")
    numbers = round_.parameters.copy()
    numbers[shape.blocks["parameters"].place("clip")] *= 10
    return replace(round_, parameters=numbers)


def test_a_clip_that_is_taken_out_is_found_out(small):
    """Of vb by a server that names a larger one; of sgd by any."""
    for variant, told in (("vb", naming_a_clip), ("sgd", lambda round_: round_)):
        planted, known = planted_in(small, dp_epsilon=2.0, **VARIANTS[variant])
        planted = replace(planted, told=told)
        held = bounds(planted, known["epsilon"], 1e-5, RUNS)
        assert not held.is_contradicted
        cohort = replace(planted.seen.group.cohort, clip=np.inf)
        broken = bounds(with_group(planted, cohort=cohort), known["epsilon"], 1e-5, 1000)
        assert broken.is_contradicted
        assert broken.lower > known["epsilon"]
        assert broken.lower_by_counting > known["epsilon"]


def test_every_release_counts(small):
    """With all releases together more is found than with any of them alone."""
    planted, known = planted_in(small, dp_epsilon=8.0)
    whole = bounds(planted, known["epsilon"], 1e-5, RUNS)
    for release in (0, 2, 11):
        seen = replace(planted.seen)
        vars(seen).update(
            rounds=planted.seen.rounds[release : release + 1], group=planted.seen.group
        )
        alone = bounds(replace(planted, seen=seen), known["epsilon"], 1e-5, RUNS)
        assert 0 < alone.estimate < 0.5 * whole.estimate


def test_the_same_seed_gives_the_same_bounds(small):
    run = prepare(small, Settings(aggregation="dp", mask="mean", dp_epsilon=4.0, rounds=4))
    assert bounds_of(run) == bounds_of(run)
    assert bounds_of(run).runs == 1000
