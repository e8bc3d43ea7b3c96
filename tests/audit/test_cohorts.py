"""Cohorts of a run summed without the protocol: the same numbers, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf import rng
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.audit import expose
from fedmmf.audit.cohorts import FirstRound, members_lists, with_drawn_ratings
from fedmmf.audit.dropouts import DropOuts, PresentHalves, sums_of_rounds
from fedmmf.audit.recording import record_strict
from fedmmf.federation.local import make_parties, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import UserData
from fedmmf.solvers.sgd import SGD, Factors, SgdPlan, party_update, start_user_factors


def test_a_cohorts_sum_is_what_secure_sums_give(small):
    settings = Settings(mask="lr", factors=6, held_out=0.0, sharing="strict", min_raters=1)
    run = prepare(small, settings)
    assert len(run.layout.items) == small.n_items  # the factors of few items are others
    seen = record_strict(server_plan(small, settings), make_parties(small, settings), expose(run))
    view, truth = FirstRound.of(run).summed(np.arange(small.n_users))
    # What users have in common is summed in steps there, and in floating point here.
    np.testing.assert_allclose(view.rows, seen.sums[0].rows, rtol=1e-6, atol=2e-6)
    assert np.array_equal(np.where(view.is_shown, view.n_raters, 0), seen.sums[0].n_raters)
    assert np.array_equal(truth, small.values)


def test_a_run_with_a_budget_has_cohorts_too(small):
    run = prepare(small, Settings(mask="mean", factors=2, aggregation="dp", dp_epsilon=1.0))
    assert FirstRound.of(run).run.settings.aggregation == "secure"


def test_a_cohorts_sum_is_without_what_too_few_of_it_rated(small):
    settings = Settings(mask="lr", factors=6, held_out=0.0, sharing="strict", min_raters=3)
    first = FirstRound.of(prepare(small, settings))
    unguarded = replace(first.run, settings=settings.changed(min_raters=1))
    all_shown, some_shown = (
        made.summed(np.arange(40))[0] for made in (replace(first, run=unguarded), first)
    )
    is_rare = all_shown.n_raters < raters_needed(3)
    assert 0 < is_rare.sum() < small.n_items
    assert np.array_equal(some_shown.is_shown, ~is_rare)
    assert not some_shown.rows[is_rare].any()
    np.testing.assert_array_equal(some_shown.rows[~is_rare], all_shown.rows[~is_rare])


def test_the_control_has_other_ratings_of_the_same_items(small):
    run = prepare(small, Settings(mask="lr", held_out=0.0))
    first, control = FirstRound.of(run), FirstRound.of(run, is_control=True)
    assert first.updates.shape == control.updates.shape
    assert not np.allclose(first.updates, control.updates)
    (view, truth), (drawn, same) = (made.summed(np.arange(20)) for made in (first, control))
    assert np.array_equal(truth, same)  # what is attacked, and what is public, stay
    assert np.array_equal(view.prior, drawn.prior)
    values = with_drawn_ratings(run).training.values
    assert set(values) <= set(small.values)
    assert abs(np.corrcoef(values, small.values)[0, 1]) < 0.3


def test_rehearsals_are_on_people_who_are_known(small):
    first = FirstRound.of(prepare(small, Settings(mask="mean", held_out=0.0)))
    people = np.arange(10, 50)
    made = first.rehearsals(people, 8)
    users = np.concatenate([view.users for view, _ in made])
    assert len(users) == len(set(users)) == 40
    assert set(users) == set(people)
    (everybody, _), *none = first.rehearsals(people, 100)
    assert len(everybody.users) == 40
    assert not none


def test_everybody_present_is_what_parties_compute(small):
    run = prepare(small, Settings(mask="mean", held_out=0.0, factors=4))
    first = FirstRound.of(run)
    lists, rows = members_lists(run.lists, np.arange(5))
    crowd = PresentHalves(lists, run.masks.masked_ratings[rows], 4)
    present, mine = np.array([True, True, False, True, True]), lists.of(3)
    p = Factors.starting_at(start_user_factors(1, 4)[0])
    for t in (1, 2, 3):
        made = crowd.updates(first.item_factors, first.plan, t, present)
        args = run.masks.masked_ratings[rows][mine], first.item_factors[lists.items[mine]]
        np.testing.assert_allclose(made[mine], party_update(*args, p, first.plan, t), atol=1e-5)
    assert np.array_equal(crowd.factors.value[2], start_user_factors(1, 4)[0])


def test_totals_of_those_present_are_what_parties_send(small):
    run = prepare(small, Settings(mask="mean", held_out=0.0, factors=4))
    broadcast = run.over_everything().coordinator().next_round().broadcast
    lists, rows = members_lists(run.lists, np.arange(5))
    masked = run.masks.masked_ratings[rows]
    crowd = PresentHalves(lists, masked, 4)
    present, sent = np.array([True, True, False, True, True]), np.zeros(1 + 2 * 4)
    halves = [SGD.party(SGD.update_shape(4, "")) for _ in present]
    for t in (1, 2):
        crowd.updates(broadcast.item_factors, SgdPlan.of(broadcast), t, present)
        sent[:] = 0
        for user in np.flatnonzero(present):
            mine = lists.of(user)
            own = UserData(lists.items[mine], masked[mine], np.zeros(0), np.zeros(0))
            sent += halves[user].update(own, broadcast, t)[1]
    held_out, told = np.split(crowd.totals(present), [HELD_OUT_TOTALS])
    assert told[0] == 4
    assert not held_out.any()
    np.testing.assert_allclose(told, sent, atol=1e-5)


def test_batches_come_and_go_as_a_whole():
    drops = DropOuts.drawn(50, 400, 0.05, 5, rng.stream(0, "away"))
    alike = np.unique(drops.present, axis=1)
    assert alike.shape[1] == 10
    assert abs(drops.present.mean() - 0.95**5) < 0.03


@pytest.mark.parametrize("factors", [4, 5])
def test_a_round_with_hardly_anybody_gives_no_sum(small, factors):
    run = prepare(small, Settings(mask="mean", held_out=0.0, factors=factors))
    present = np.ones((4, 10), bool)
    present[1, 2:] = False
    level, kept = sums_of_rounds(run, np.arange(10), DropOuts(present))
    assert level.shape == (3, small.n_items)
    assert kept.all()
