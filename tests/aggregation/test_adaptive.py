"""Algorithm 1 among real parties: two groups, each party's own choice."""

import numpy as np
import pytest

from fedmmf import coordinator, federation, simulation, training, wire
from fedmmf.aggregation.adaptive import Adaptive
from fedmmf.aggregation.plain import Plain
from fedmmf.config import Settings
from fedmmf.errors import WireError
from fedmmf.factorization.contract import Public
from fedmmf.federation import make_participants, make_parties
from fedmmf.transport import InProcess

ADAPTIVE = Settings(mask="lr", sharing="adaptive", factors=3, rounds=5, held_out=0.2)


def groups_of(ratings, settings):
    parties = make_parties(ratings, settings, simulation.choose_held_out(ratings, settings))
    participants = make_participants(parties, InProcess(parties), settings, ratings.scale.span)
    return parties, participants


@pytest.fixture
def middle(small):
    """A threshold that puts half of the users into either group."""
    parties = make_parties(small, ADAPTIVE, simulation.choose_held_out(small, ADAPTIVE))
    return float(np.median([party.privacy_indicator for party in parties.values()]))


@pytest.mark.parametrize("collect_masked", [False, True])
def test_training_ends_where_the_simulation_ends(small, middle, collect_masked):
    settings = ADAPTIVE.changed(threshold_j=middle, collect_masked=collect_masked)
    real = federation.train(small, settings).members[0]
    simulated = training.train(small, settings).members[0]
    np.testing.assert_allclose(
        real.public.item_factors, simulated.public.item_factors, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(real.user_factors, simulated.user_factors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(real.history, simulated.history, rtol=1e-4)


def test_each_party_chooses_its_group_by_its_own_j(small, middle):
    settings = ADAPTIVE.changed(threshold_j=middle)
    parties, participants = groups_of(small, settings)
    assert isinstance(participants, Adaptive)
    assert 20 < len(participants.in_clear) < 40
    for name, party in parties.items():
        assert (name in participants.in_clear) == (party.privacy_indicator <= middle)
    assert sorted(participants.in_clear + participants.summed) == sorted(parties)


def test_only_the_clear_group_is_sent_rounds_in_the_clear(small, middle):
    settings = ADAPTIVE.changed(threshold_j=middle)
    parties = make_parties(small, settings)

    asked = {}

    class Recording(InProcess):
        def exchange(self, stage, messages, timeout):
            asked.setdefault(stage, set()).update(messages)
            return super().exchange(stage, messages, timeout)

    transport = Recording(parties)
    participants = make_participants(parties, transport, settings, small.scale.span)
    coordinator.run(simulation.make_server(small, settings), participants)
    assert asked["round"] == set(participants.in_clear)
    assert asked["trip 1"] == set(participants.summed)
    assert asked["finish"] == set(parties)


def test_items_that_few_of_the_summed_group_rated_are_left_out_of_its_sum(small, middle):
    settings = ADAPTIVE.changed(threshold_j=middle, held_out=0.0, min_raters=8)
    parties, participants = groups_of(small, settings)
    sums = participants.sums(simulation.make_server(small, settings).next_message())
    in_clear = np.array([party.in_clear for party in parties.values()])
    clear = np.bincount(small.item_codes[in_clear[small.user_codes]], minlength=small.n_items)
    summed = np.bincount(small.item_codes[~in_clear[small.user_codes]], minlength=small.n_items)
    rare = summed < 8
    assert rare.any()
    assert np.array_equal(sums.n_raters, clear + np.where(rare, 0, summed))


@pytest.mark.parametrize(("threshold", "n_summed"), [(0.0, 60), (1.0, 0)])
def test_either_group_may_be_empty(small, threshold, n_summed):
    settings = ADAPTIVE.changed(threshold_j=threshold)
    _, participants = groups_of(small, settings)
    assert len(participants.summed) == n_summed
    message = simulation.make_server(small, settings).next_message()
    assert participants.sums(message).n_raters.sum() > 0


@pytest.mark.parametrize(("n_summed", "signed"), [(2, False), (3, True)])
def test_a_group_too_small_to_hide_in_is_left_out_and_still_served(small, n_summed, signed):
    indicators = [p.privacy_indicator for p in make_parties(small, ADAPTIVE).values()]
    limit = float(np.sort(indicators)[-n_summed - 1])  # so many users are above
    settings = ADAPTIVE.changed(threshold_j=limit, held_out=0.0, rounds=2, signed=signed)
    parties, participants = groups_of(small, settings)
    assert len(participants.summed) == n_summed
    assert participants.secure is None
    coordinator.run(simulation.make_server(small, settings), participants)
    left_out = parties[participants.summed[0]]
    assert np.isfinite(left_out.predict(np.arange(3))).all()


def test_a_party_says_nothing_in_the_clear_that_its_owner_did_not_allow(small):
    strict = make_parties(small, ADAPTIVE.changed(sharing="strict"))["000000"]
    message = simulation.make_server(small, ADAPTIVE).next_message().encode()
    with pytest.raises(WireError, match="only in sums"):
        strict.answer(message)
    with pytest.raises(WireError, match="only in sums"):
        strict.answer(wire.Survey(with_ratings=False).encode())
    with pytest.raises(WireError, match="does not hand over"):
        strict.answer(wire.Collect().encode())
    secure_by_j = make_parties(small, ADAPTIVE.changed(threshold_j=1.0))["000000"]
    secure_by_j.answer(message)
    with pytest.raises(WireError, match="only in sums"):  # it would carry ratings
        secure_by_j.answer(wire.Survey(with_ratings=True).encode())


@pytest.mark.parametrize("is_last", [False, True])
def test_a_context_model_gets_nothing_from_a_strict_party(small, is_last):
    strict = make_parties(small, ADAPTIVE.changed(sharing="strict"))["000000"]
    parameters = np.zeros(2 + small.features.values.shape[1])
    public = Public(1, parameters, np.zeros((0, 1), np.float32))
    with pytest.raises(WireError, match="only in sums"):
        strict.answer(wire.Round(1, 0, is_last, "context", public).encode())


def test_a_variational_update_never_leaves_in_the_clear(small):
    party = make_parties(small, ADAPTIVE.changed(threshold_j=1.0))["000000"]
    vb = Settings(mask="lr", solver="vb", factors=3)
    with pytest.raises(WireError, match="only in sums"):
        party.answer(simulation.make_server(small, vb).next_message().encode())


def test_collecting_sends_each_masked_rating_once(small):
    settings = ADAPTIVE.changed(threshold_j=1.0, collect_masked=True)
    parties = make_parties(small, settings)
    collected = Plain(InProcess(parties), sorted(parties)).collect(small.n_items)
    for name, party in parties.items():
        assert np.array_equal(collected[name].masked_ratings, party.masked_ratings)
        assert np.array_equal(collected[name].items, party.items)
