"""Cohorts of a run summed without the protocol: the same numbers, to the last bit."""

import numpy as np

from fedmmf import rng
from fedmmf.audit import expose
from fedmmf.audit.cohorts import FirstRound, members_lists
from fedmmf.audit.dropouts import DropOuts, PresentCrowd, sums_of_rounds
from fedmmf.audit.recording import record_strict
from fedmmf.config import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.federation import make_parties, server_plan
from fedmmf.solvers.sgd import Factors, party_update, start_user_factors


def test_a_cohorts_sum_is_what_secure_sums_give(small):
    settings = Settings(mask="lr", factors=6, held_out=0.0, sharing="strict")
    run = prepare(small, settings)
    seen = record_strict(server_plan(small, settings), make_parties(small, settings), expose(run))
    view, truth = FirstRound.of(run).summed(np.arange(small.n_users))
    np.testing.assert_array_equal(view.rows.astype(np.float32), seen.sums[0].rows)
    assert np.array_equal(np.where(view.is_shown, view.n_raters, 0), seen.sums[0].n_raters)
    assert np.array_equal(truth, small.values)


def test_the_control_keeps_everybodys_masked_ratings_but_not_their_places(small):
    run = prepare(small, Settings(mask="lr", held_out=0.0))
    first, control = FirstRound.of(run), FirstRound.of(run, shuffled=True)
    assert first.updates.shape == control.updates.shape
    assert not np.allclose(first.updates, control.updates)


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
    crowd = PresentCrowd(lists, run.masks.masked_ratings[rows], 4)
    present, mine = np.array([True, True, False, True, True]), lists.of(3)
    p = Factors.starting_at(start_user_factors(1, 4)[0])
    for t in (1, 2, 3):
        made = crowd.updates(first.item_factors, first.plan, t, present)
        args = run.masks.masked_ratings[rows][mine], first.item_factors[lists.items[mine]]
        np.testing.assert_allclose(made[mine], party_update(*args, p, first.plan, t), atol=1e-5)
    assert np.array_equal(crowd.factors.value[2], start_user_factors(1, 4)[0])


def test_batches_come_and_go_as_a_whole():
    drops = DropOuts.drawn(50, 400, 0.05, 5, rng.stream(0, "away"))
    alike = np.unique(drops.present, axis=1)
    assert alike.shape[1] == 10
    assert abs(drops.present.mean() - 0.95**5) < 0.03


def test_a_round_with_hardly_anybody_gives_no_sum(small):
    run = prepare(small, Settings(mask="mean", held_out=0.0, factors=4))
    present = np.ones((4, 10), bool)
    present[1, 2:] = False
    level, kept = sums_of_rounds(run, np.arange(10), DropOuts(present))
    assert level.shape == (3, small.n_items)
    assert kept.all()
