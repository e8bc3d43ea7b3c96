"""Evidence for noise, on few runs: agreement, a lower bound on epsilon, and what was added."""

import math

import numpy as np
import pytest
from scipy import stats

from fedmmf.settings import Settings
from fedmmf_experiments.paper import agreement, lower_bound, whole_runs

pytest.importorskip("dp_accounting", reason="the extra `dp`")
pytest.importorskip("opendp", reason="the extra `dp`")

FEW, PERMUTATIONS = 12, 999


# Agreement


def test_vectors_of_one_distribution_agree_and_others_are_told_apart():
    draws = np.random.default_rng(0)
    alike = draws.standard_normal((3, 60, 20)) @ np.diag(np.arange(1.0, 21.0))
    assert min(agreement.compared(alike[0], alike[1], PERMUTATIONS, draws)) > 0.01
    shifted, narrow = alike[2].copy(), 0.8 * alike[2]
    shifted[:, 3] += 4.0
    shift = agreement.compared(alike[0], shifted, PERMUTATIONS, draws)
    assert shift[0] == 1 / (1 + PERMUTATIONS)
    less = agreement.compared(alike[0], narrow, PERMUTATIONS, draws)
    assert less[2] == 1 / (1 + PERMUTATIONS)
    correlated = alike[1].copy()
    correlated[:, 1:] = 0.3 * correlated[:, 1:] + correlated[:, :1] * np.arange(2.0, 21.0)
    assert agreement.compared(alike[0], correlated, PERMUTATIONS, draws)[3] < 0.01


@pytest.mark.parametrize("noise", agreement.NOISES)
@pytest.mark.parametrize("kind", ["vb, joint lr mask", "sgd"])
def test_few_simulated_runs_are_like_real_ones_in_every_stage(kind, noise):
    """A false alarm has a probability of 24 / 1,000 among all of these; 200 runs are printed."""
    settings = agreement.settings_of(kind, noise, rounds=4)
    ratings, draws = agreement.tiny(), np.random.default_rng(1)
    real = agreement.collected(agreement.real_runs(ratings, settings, FEW), settings)
    one = agreement.collected(agreement.simulated_runs(ratings, settings, FEW), settings)
    assert list(real) == (["updates"] if kind == "sgd" else ["counts", "means", "factors"])
    for stage, vectors in real.items():
        assert vectors.shape == one[stage].shape
        assert min(agreement.compared(vectors, one[stage], PERMUTATIONS, draws)) > 0.001
    larger = settings.changed(dp_epsilon=2 * settings.dp_epsilon)
    other = agreement.collected(agreement.simulated_runs(ratings, larger, FEW), larger)
    for stage, vectors in real.items():
        found = agreement.compared(vectors, other[stage], PERMUTATIONS, draws)
        assert found[2] == 0.001, stage


# The lower bound


def test_a_planted_user_shows_no_more_than_is_claimed_and_more_without_the_clip():
    as_it_is, without = (
        lower_bound.measure(Settings(aggregation="dp", mask="mean", dp_epsilon=2.0), 40, has_clip)
        for has_clip in (True, False)
    )
    assert as_it_is.is_below
    assert as_it_is.claimed <= 2.0
    assert without.by_means > without.claimed
    assert without.shift > 2 * as_it_is.shift


def test_the_planted_users_shift_is_nearly_all_that_is_paid_for():
    """The user is a worst case: the shift that is aimed at is what the noise is made for."""
    settings = Settings(aggregation="dp", mask="mean", dp_epsilon=2.0)
    found = lower_bound.measure(settings, 60)
    paid = 1 / lower_bound.spent(settings, 1)["noise_multiplier"] * math.sqrt(settings.max_rounds)
    assert found.shift_low < paid
    assert found.shift_high > 0.6 * paid


def test_the_bound_by_counting_is_that_of_the_two_limits():
    draws = np.random.default_rng(2)
    far, none = draws.normal(4.0, 1.0, 4_000), draws.normal(0.0, 1.0, 4_000)
    bound = lower_bound.counted(far, none, 1e-5)
    assert 3.0 < bound < math.log(1 / stats.norm.sf(2.0))
    assert lower_bound.counted(none, none.copy(), 1e-5) == 0.0
    low, shift, high = lower_bound.shift_between(far, none)
    assert low < shift < high
    assert shift == pytest.approx(4.0, abs=0.15)


# What was seen


@pytest.mark.parametrize("number", [0, 5, 6, 8], ids=["vb", "ensemble", "local", "sgd"])
def test_epsilon_of_what_parties_added_is_what_is_claimed(number):
    """Up to what 10,000 draws say of the noise, and by the exact curve below the claim."""
    settings = whole_runs.RUNS[number]
    row = whole_runs.measure(whole_runs.tiny(), settings)
    assert row.releases == settings.ensemble * settings.max_rounds
    assert 0.99 < row.longest <= 1.0
    assert row.measured == pytest.approx(row.multiplier, rel=0.03)
    assert row.claimed == pytest.approx(settings.dp_epsilon, rel=1e-3)
    assert row.discrete == pytest.approx(row.claimed, rel=0.05)
    assert row.losses == pytest.approx(row.analytic, rel=0.01)
    assert row.analytic < row.claimed


def test_the_conversion_is_that_of_dp_accounting():
    from fedmmf.aggregation.dp import accounting

    for multiplier, rounds, delta in ((20.0, 28, 1e-5), (2.0, 6, 1e-7), (0.4, 1, 1e-5)):
        ours = whole_runs.concentrated(rounds / (2 * multiplier**2), delta)
        assert ours == pytest.approx(accounting.epsilon(multiplier, rounds, delta), rel=1e-5)
