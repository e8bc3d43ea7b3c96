"""The sums of vb, taken apart: the equations, and the power on small cohorts."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.vb_lists import VB_LISTS
from fedmmf.attacks.vb_sums import VB_RANKING, VB_UNMIXING, Mapped, Unknown, from_factors
from fedmmf.audit.vb_rounds import VbCohort
from fedmmf.settings import Settings
from fedmmf.simulation import prepare


def cohort_of(ratings, size, **changes):
    """A few people who train with vb, and the control."""
    settings = Settings(mask="mean", held_out=0.0, min_raters=1, factors=4, solver="vb")
    run = prepare(ratings, settings.changed(**changes))
    users = np.arange(size)
    return VbCohort(run, users), VbCohort(run, users, is_control=True)


@pytest.mark.parametrize("fit", ["alone", "joint"])
def test_sums_are_what_the_attackers_equations_make_of_true_ratings(small, fit):
    made, _ = cohort_of(small, 12, mask="lr", mask_fit=fit)
    view, masked = made.summed(7), made.prepared.masks.masked_ratings
    truth = Unknown(masked[view.is_told].astype(np.float64), np.zeros(view.is_told.sum()))
    for seen in view.rounds:
        one = Mapped.of(seen, view.places)
        p, _, scores = one.factors(truth)
        users, items = view.places.users, view.places.items
        rows = np.zeros_like(seen.rows)
        if seen.reading.is_membership_round:
            np.add.at(rows, items, p[users])
            np.testing.assert_allclose(rows, seen.rows, atol=2e-3)
        else:
            np.add.at(rows, items, (truth.mean - scores)[:, np.newaxis] * p[users])
            np.testing.assert_allclose(rows, one.residual_rows, atol=2e-3)
        np.testing.assert_allclose(p.sum(axis=0), seen.user_sum, atol=2e-3)
    assert sum(seen.reading.is_membership_round for seen in view.rounds) == 1


@pytest.mark.parametrize("attack", [VB_UNMIXING, VB_RANKING], ids=lambda attack: attack.name)
@pytest.mark.parametrize("size", [3, 12, 25])
def test_it_has_power_where_people_are_few(small, attack, size):
    """Among three people every item has its one to three raters: nothing is hidden."""
    made, control = cohort_of(small, size)
    found = attack.run(made.summed(8), made.truth)
    nothing = attack.run(control.summed(8), made.truth)
    assert found.advantage_interval[0] > 0
    assert found.advantage_interval[0] > nothing.advantage_interval[1]
    assert nothing.advantage_interval[0] <= 0


@pytest.mark.parametrize("part", [0, 5], ids=["rows", "membership"])
def test_one_round_alone_says_something(small, part):
    made, _ = cohort_of(small, 20)
    view = made.summed(6)
    assert [seen.reading.is_membership_round for seen in view.rounds] == [*5 * [False], True]
    alone = replace(view, rounds=(view.rounds[part],), beliefs={})
    assert VB_UNMIXING.run(alone, made.truth).advantage_interval[0] > 0


def test_totals_alone_say_something_of_three_people(small):
    made, control = cohort_of(small, 3, factors=8)
    view, masked = made.summed(1), made.prepared.masks.masked_ratings
    expected = view.masks.expected(view.public_mean, view.lists)
    start = Unknown(expected, np.full(len(expected), view.spread))
    own, other = made.trained[0], control.trained[0]
    errors = [np.mean(np.square(expected - masked))]
    for user_sum in (own.user_sum, other.user_sum):
        seen = Mapped.of(replace(own, user_sum=user_sum), view.places)
        errors.append(np.mean(np.square(from_factors([seen], start).mean - masked)))
    assert errors[1] < errors[0] <= errors[2]


def test_membership_rounds_and_more_rounds_say_more(sparse):
    made, _ = cohort_of(sparse, 40, min_raters=1)
    found = [VB_UNMIXING.run(made.summed(n), made.truth).mean for n in (1, 8)]
    assert found[1] > found[0] + 0.05


def test_lists_are_told_in_a_training_for_lists(vb_ranked):
    found = VB_LISTS.run(*vb_ranked.listed(22))
    assert found.mean > 0.8
    assert found.advantage_interval[0] > 0
    assert VB_LISTS.run(*vb_ranked.exchanged(22)).advantage_interval[0] <= 0


def test_what_counts_alone_say_of_who_took_part_is_no_gain(vb_ranked):
    """Everybody who took part is in the counts; the popularity of items is as good as a guess."""
    view, took_part = vb_ranked.listed(1)
    nothing = VB_LISTS.run(replace(view, columns=0.0 * view.columns), took_part)
    assert nothing.baseline_mean > 0.7
    assert nothing.mean == nothing.baseline_mean
    noise = np.random.default_rng(0).standard_normal(view.columns.shape)
    assert VB_LISTS.run(replace(view, columns=noise), took_part).advantage_interval[0] <= 0
