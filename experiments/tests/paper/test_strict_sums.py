"""What a sum says, weighed against what is public. The first tests show that there is power."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.calibrated import CALIBRATED, calibrate, trusting
from fedmmf.attacks.unmixing import UNMIXING, unmix
from fedmmf.audit.cohorts import FirstRound
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.paired import paired_gain
from fedmmf_experiments.paper.strict_sums import draw_cohorts


@pytest.fixture(scope="module")
def movies():
    """Round 1 of everybody in ML-100K, and its control; made once."""
    return {}


@pytest.fixture
def first_100k(ml_100k, movies):
    if not movies:
        run = prepare(ml_100k, Settings(mask="lr", held_out=0.0))
        movies["made"] = FirstRound.of(run), FirstRound.of(run, is_control=True)
    return movies["made"]


def outside_of(first, cohorts):
    return np.setdiff1d(np.arange(first.run.training.n_users), np.concatenate(cohorts))


def gains(first, cohorts, weight, attack=CALIBRATED):
    """Each cohort's success minus what the public knows, user by user."""
    results = [attack.run(trusting(view, weight), t) for view, t in map(first.summed, cohorts)]
    return [result.success - result.baseline for result in results]


@pytest.mark.parametrize("size", [25, 50])
def test_weighing_a_sum_finds_more_than_the_public_knows(first_100k, size):
    first, control = first_100k
    cohorts = draw_cohorts(first.run.training.n_users, size, seed=0)
    weight = calibrate(CALIBRATED, first.rehearsals(outside_of(first, cohorts), size))
    assert weight > 0
    assert paired_gain(gains(first, cohorts, weight)).low > 0
    assert paired_gain(gains(control, cohorts, weight)).low <= 0


def test_what_is_found_is_the_users_own_part_of_the_sum(first_100k):
    """The same sums with one user's residuals in other places say less of that user."""
    first, control = first_100k
    with_own, without = [], []
    for cohort in draw_cohorts(first.run.training.n_users, 12, seed=0)[:12]:
        view, truth = first.summed(cohort)
        with_own.append(CALIBRATED.run(view, truth).success)
        without.append(success_without_own(first, control, cohort))
    assert paired_gain([a - b for a, b in zip(with_own, without, strict=True)]).low > 0


def success_without_own(first, control, cohort):
    view, truth = first.summed(cohort)
    rows = np.isin(first.run.lists.users, cohort)
    found = np.empty(len(cohort))
    for user, mine in enumerate(view.ranges):
        updates = first.updates[rows].copy()
        updates[mine] = control.updates[rows][mine]
        other = replace(view, rows=first.sum_of(view.lists, updates), beliefs={})
        found[user] = CALIBRATED.run(other, truth).success[user]
    return found


def test_a_sum_over_few_is_taken_apart(first_100k):
    """25 parties: nearly every residual in the sum is found, from round 1 alone."""
    first, control = first_100k
    cohort = draw_cohorts(first.run.training.n_users, 25, seed=0)[0]
    view, truth = first.summed(cohort)
    belief, shown = view.believed(unmix), view.is_shown[view.lists.items]
    masked = first.run.masks.masked_ratings[np.isin(first.run.lists.users, cohort)]
    found = belief.deviation + view.expected + view.item_factors[view.lists.items, 0]
    assert (np.abs(found - masked)[shown] < 0.2).mean() > 0.9
    result = UNMIXING.run(view, truth)
    assert result.advantage_interval[0] > 0.1
    assert UNMIXING.run(control.summed(cohort)[0], truth).advantage_interval[0] <= 0
