"""The sum after the last round: once in a run, after its rounds, of what was agreed on."""

from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.data.synthetic import synthetic
from fedmmf.solvers.vb.newcomers import NewcomerPrior
from fedmmf.wire import name_of

FEW = synthetic(14, 20, 200, min_per_user=8, seed=4)


@pytest.fixture
def trained():
    """A federation after its rounds, before the last sum; and its final broadcast."""
    federation = federation_of(FEW, settings_of("secure vb", factors=2, held_out=0.0))
    federation.prepare_sums()
    for _ in range(3):
        federation.one_round()
    return federation, federation.server.coordinator.next_round(is_last=True)


def reasons(federation):
    return {incident.reason for incident in federation.server.roster.incidents}


def test_it_is_over_everybody_and_moves_nobody(trained):
    federation, last = trained
    before = [party.user_factors.copy() for party in federation.parties.values()]
    found = federation.server.side.newcomers(last)
    assert found[0] == FEW.n_users
    assert NewcomerPrior.of(federation.plan.update_shape, found) is not None
    for factors, party in zip(before, federation.parties.values(), strict=True):
        assert np.array_equal(party.user_factors, factors)


def test_a_run_has_one(trained):
    federation, last = trained
    assert federation.server.side.newcomers(last) is not None
    again = replace(last, round=last.round + 1)
    assert federation.server.side.newcomers(again) is None
    assert any("comes once, after the rounds" in reason for reason in reasons(federation))


def test_no_round_follows_it(trained):
    federation, last = trained
    federation.server.side.newcomers(last)
    coordinator = federation.server.coordinator
    coordinator.skip_to(last.round)
    before = coordinator.n_done
    federation.one_round()
    assert coordinator.n_done == before
    assert any("training is over" in reason for reason in reasons(federation))


def test_it_does_not_come_before_the_first_round():
    federation = federation_of(FEW, settings_of("secure vb", factors=2, held_out=0.0))
    federation.prepare_sums()
    last = federation.server.coordinator.next_round(is_last=True)
    assert federation.server.side.newcomers(last) is None
    assert any("comes once, after the rounds" in reason for reason in reasons(federation))
    federation.one_round()  # a refusal changes nothing
    assert federation.server.coordinator.n_done == 1


def test_a_party_remembers_it_in_its_state_and_in_its_guards(trained):
    federation, last = trained
    name, party = next(iter(federation.parties.items()))
    before, mark = party.state(), party.mark
    federation.server.side.newcomers(last)
    assert party.mark != mark
    assert party.guards.last_round == last.round
    told = party.state()
    party.restore(told)
    assert federation.server.side.newcomers(replace(last, round=last.round + 1)) is None
    assert "newcomers" in told
    assert "newcomers" not in before
    assert party.guards.lead_over(replace(party.guards, last_round=last.round - 1))
    assert name in federation.server.roster.refused


def test_the_final_factors_are_taken_after_it(trained):
    federation, last = trained
    federation.server.side.newcomers(last)
    federation.server.side.finish(last)
    assert all(party.is_finished for party in federation.parties.values())


def test_p_u_of_the_best_round_is_kept_where_that_was_the_last_one():
    """The sum moves the number of the last round that was answered, and no p_u."""
    federation = federation_of(FEW, settings_of("secure vb", factors=2, held_out=0.2))
    federation.prepare_sums()
    federation.one_round()
    factors = [party.user_factors.copy() for party in federation.parties.values()]
    coordinator = federation.server.coordinator
    assert coordinator.best_round == coordinator.round == 1
    last = coordinator.next_round(is_last=True)
    federation.server.side.newcomers(last)
    federation.server.side.finish(last)
    for before, party in zip(factors, federation.parties.values(), strict=True):
        if len(party.users.summed_lists.items):
            assert np.array_equal(party.user_factors, before)


def test_masks_bind_the_broadcast_that_was_agreed_on(trained, monkeypatch):
    """A set-up names one last round; another one under that set-up gets no answer."""
    federation, last = trained
    side = federation.server.side
    other = replace(last, item_rows=last.item_rows * 2)
    named = name_of(other.encode())
    monkeypatch.setattr(side, "_layout_name", lambda work: named)
    assert side.newcomers(last) is None
    assert any("agreed on for something else" in reason for reason in reasons(federation))


@pytest.mark.parametrize("value", [-1.0, 1e31])
def test_hyperparameters_out_of_range_are_refused(trained, value):
    federation, last = trained
    bad = replace(last, parameters=np.concatenate(([value], last.parameters[1:])))
    assert federation.server.side.newcomers(bad) is None
    assert any("out of range" in reason for reason in reasons(federation))


def test_a_sum_that_fails_costs_the_prior_alone(trained, monkeypatch):
    federation, last = trained
    silent = sorted(federation.parties)[:12]
    for name in silent:
        monkeypatch.setattr(federation.parties[name], "answer", lambda data: b"")
    assert federation.server.side.newcomers(last) is None
    monkeypatch.undo()
    federation.server.side.finish(last)
    assert any(party.is_finished for party in federation.parties.values())
