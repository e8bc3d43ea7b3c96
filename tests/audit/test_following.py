"""All planned rounds as a server sees them: exact sums, drop-outs, and noise where there is any."""

import numpy as np
import pytest

from fedmmf.audit.following import (
    MAX_ROUNDS,
    follow,
    hidden_group,
    planned_presence,
    planned_rounds,
)
from fedmmf.settings import Settings
from fedmmf.simulation import prepare

STRICT = Settings(mask="mean", factors=4, rounds=5, held_out=0.0)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_with_everybody_present_the_sums_are_those_of_a_training(small, solver):
    run = prepare(small, STRICT.changed(solver=solver))
    coordinator, parties = run.coordinator(), run.parties()
    for seen in follow(run, np.ones((5, small.n_users), bool)):
        round_ = coordinator.next_round()
        sums = parties.sums(round_)
        assert np.array_equal(seen.sums.rows, sums.rows)
        assert np.array_equal(seen.sums.totals[2:], sums.totals[2:])
        coordinator.advance(round_, sums)
    assert coordinator.is_finished


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_who_stays_away_adds_nothing_and_learns_nothing(small, solver):
    """In round 2 the sum is that of the others; later it is as if that round had not been."""
    run = prepare(small, STRICT.changed(solver=solver))
    present = np.ones((3, small.n_users), bool)
    present[1, 7] = False
    seen = list(follow(run, present))
    assert [one.present.sum() for one in seen] == [60, 59, 60]
    everybody = list(follow(run, np.ones((3, small.n_users), bool)))
    assert np.array_equal(seen[0].sums.rows, everybody[0].sums.rows)
    missing = everybody[1].sums.rows - seen[1].sums.rows  # the update of user 7, by the sum's own
    rated = np.isin(run.layout.items, run.lists.items[run.lists.of(7)])
    assert np.abs(missing[~rated]).max() == 0
    assert (np.abs(missing[rated]).max(axis=1) > 0).mean() > 0.9


def test_a_round_with_too_few_gives_no_sum(small):
    run = prepare(small, STRICT)
    present = np.ones((3, small.n_users), bool)
    present[1, 2:] = False
    assert [one.round.round for one in follow(run, present)] == [1, 2]


def test_noise_is_in_the_sums_where_the_scheme_adds_it(small):
    pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")
    run = prepare(small, Settings(mask="mean", factors=4, rounds=3, aggregation="dp"))
    first = next(iter(follow(run, np.ones((1, small.n_users), bool))))
    (group,) = run.groups
    others = first.sums.rows[:, 1:]  # the level has the updates as well
    assert others.std() == pytest.approx(group.noise_std, rel=0.2)
    present = planned_presence(run.settings, 600)
    assert (~present).sum(axis=1).max() <= 30  # with fewer there is no sum


def test_only_those_in_sums_are_followed(small):
    run = prepare(small, STRICT.changed(sharing="adaptive"))
    hidden = hidden_group(run)
    assert 0 < hidden.members.sum() < small.n_users
    for seen in follow(run, planned_presence(run.settings, small.n_users)):
        assert not seen.present[run.in_clear].any()
    plain = prepare(small, STRICT.changed(sharing="plain"))
    assert hidden_group(plain) is None
    assert list(follow(plain, np.ones((2, small.n_users), bool))) == []


def test_as_many_stay_away_as_a_federation_has_to_bear():
    assert planned_rounds(Settings()) == 200
    assert planned_rounds(Settings(solver="vb")) == 22
    assert planned_rounds(Settings(rounds=10_000)) == MAX_ROUNDS
    present = planned_presence(Settings(), 300)
    assert present.shape == (200, 300)
    assert present[0].all()
    assert present.mean() == pytest.approx(0.95, abs=0.01)
    batches = planned_presence(Settings(batch=10), 300)
    assert batches.mean() == pytest.approx(0.95**10, abs=0.05)
