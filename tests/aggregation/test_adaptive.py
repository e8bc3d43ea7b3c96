"""Algorithm 1 among real parties: two groups, each party's own choice."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from federations import believing, federation_of, settings_of

from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.engines.reference import NUMPY
from fedmmf.federation.local import Holdings, make_parties, make_silos
from fedmmf.simulation import prepare
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import (
    Adopt,
    Adopted,
    Ask,
    Joined,
    Refused,
    Round,
    Survey,
    Update,
    name_of,
    parcel,
    read,
    split_parcel,
)


def begun(ratings, settings):
    """A federation that is ready for its rounds, the server's side of it, and what passed."""
    federation = federation_of(ratings, settings, Recorded)
    federation.prepare_sums()
    return federation, federation.server.side, federation.transport.inner


def indicators(ratings, settings):
    """J of each user."""
    return prepare(ratings, settings).masks.j_train


@pytest.fixture
def middle(small):
    """A threshold that puts half of the users into either group."""
    return float(np.median(indicators(small, settings_of("adaptive"))))


def asked_in(recorded, stage):
    """Whom the server asked in a stage, over all its exchanges."""
    return {name for seen in recorded.seen if seen.stage == stage for name in seen.sent}


# The two groups


def test_each_party_chooses_its_group_by_its_own_j(small, middle):
    settings = settings_of("adaptive", threshold_j=middle)
    federation, side, _ = begun(small, settings)
    assert 20 < len(side.in_clear) < 40
    j = indicators(small, settings)
    for name, own, party in zip(
        side.context.roster.joined, j, federation.parties.values(), strict=True
    ):
        assert (name in side.in_clear) == (own <= middle)
        assert party.masks.j_train == pytest.approx([own])
    assert sorted((*side.in_clear, *side.summed)) == sorted(federation.parties)


def test_the_servers_threshold_is_not_the_partys(small):
    """Its owner has chosen one, and the server has no say in it."""
    settings = settings_of("adaptive", threshold_j=1.0)
    run = prepare(small, settings)
    party = make_parties(small, settings.changed(threshold_j=0.0), run.is_held_out)["000003"]
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    assert not adopt(party, run.layout).in_clear


def adopt(party, layout):
    """What a party says to a layout."""
    frame = layout.encode()
    return read(party.answer(parcel(Adopt(name_of(frame)), frame)), (Adopted, Refused))


def test_only_the_clear_group_is_sent_rounds_in_the_clear(small, middle):
    settings = settings_of("adaptive", threshold_j=middle)
    federation = federation_of(small, settings, Recorded)
    federation.run()
    side, recorded = federation.server.side, federation.transport.inner
    assert asked_in(recorded, "round") == set(side.in_clear)
    for stage in ("trip 1", "trip 3"):
        assert asked_in(recorded, stage) == set(side.summed)
    for stage in (
        "survey 1",
        "survey 3",
        "layout",
        "finish",
    ):  # before anybody has chosen, and last
        assert asked_in(recorded, stage) == set(federation.parties)
    assert asked_in(recorded, "survey") == set(side.in_clear)
    in_clear = {name for seen in recorded.seen for name in seen.received if is_update(seen, name)}
    assert in_clear == set(side.in_clear)


def is_update(seen, name):
    return seen.stage == "round" and isinstance(read(seen.received[name], (Update,)), Update)


def test_items_that_few_of_the_summed_group_rated_are_left_out_of_its_sum(small, middle):
    settings = settings_of("adaptive", threshold_j=middle, held_out=0.0, min_raters=8)
    federation, side, _ = begun(small, settings)
    sums = side.sums(federation.server.coordinator.next_round())
    run = prepare(small, settings)
    items = side.layout.items
    clear = run.lists.counts(small.n_items, run.in_clear)[items]
    summed = run.lists.counts(small.n_items, ~run.in_clear)[items]
    rare = summed < raters_needed(8)
    assert 0 < rare.sum() < len(rare)
    assert (clear[rare] > 0).any()
    assert np.array_equal(side.left_out, np.flatnonzero(rare))
    assert np.array_equal(sums.n_raters, clear + np.where(rare, 0, summed))


def test_an_item_is_summed_if_both_groups_together_have_raters_enough(small, middle):
    settings = settings_of("adaptive", threshold_j=middle, held_out=0.0, min_raters=8)
    _, side, _ = begun(small, settings)
    counts = np.diff(small.by_item.indptr)
    assert np.array_equal(side.n_raters, counts)
    assert np.array_equal(side.layout.items, np.flatnonzero(counts >= raters_needed(8)))


class Silent:
    """Some parties do not answer in one stage; whom it is, is known later."""

    def __init__(self, stage):
        self.stage, self.names = stage, set()

    def __call__(self, stage, name, data):
        return None if stage == self.stage and name in self.names else data


@pytest.mark.parametrize("stage", ["survey", "layout"])
def test_who_was_counted_and_says_nothing_more_may_have_rated_anything(small, middle, stage):
    """Its part of the counts is nobody's to hide in: no item is summed that depends on it."""
    settings = settings_of("adaptive", threshold_j=middle, held_out=0.0, min_raters=6)
    _, side, _ = begun(small, settings)
    fault = Silent(stage)
    fault.names = set(side.in_clear[:2])
    federation = federation_of(small, settings, lambda inner: Faulty(inner, up=fault))
    federation.prepare_sums()
    again = federation.server.side
    run, items = prepare(small, settings), side.layout.items
    summed = run.lists.counts(small.n_items, ~run.in_clear)[items]
    silent = np.zeros(small.n_users, bool)
    silent[[int(name) for name in fault.names]] = True
    known = summed + run.lists.counts(small.n_items, silent)[items] - 2
    assert np.array_equal(again.left_out, np.flatnonzero(known < raters_needed(6)))
    is_summed = np.ones(len(items), bool)
    is_summed[again.left_out] = False
    assert is_summed.any()
    assert summed[is_summed].min() >= raters_needed(6)
    assert len(side.left_out) < len(again.left_out)


def test_a_server_that_goes_on_leaves_out_what_it_left_out_before(small, middle):
    """Who shares in the clear answers no survey once rounds have begun."""
    settings = settings_of("adaptive", threshold_j=middle, held_out=0.0, min_raters=8)
    federation, side, recorded = begun(small, settings)
    coordinator = federation.server.coordinator
    coordinator.advance(round_ := coordinator.next_round(), side.sums(round_))
    assert len(side.left_out) > 0
    again = type(side)(side.context)
    again.restore(side.state())
    n_before = len(recorded.seen)
    again.adopt()
    assert (again.in_clear, again.summed) == (side.in_clear, side.summed)
    assert np.array_equal(again.left_out, side.left_out)
    assert [seen.stage for seen in recorded.seen[n_before:]] == ["layout"]
    sums, run = again.sums(coordinator.next_round()), prepare(small, settings)
    clear, summed = (
        run.lists.counts(small.n_items, who)[side.layout.items]
        for who in (run.in_clear, ~run.in_clear)
    )
    summed[side.left_out] = 0
    assert np.array_equal(sums.n_raters, clear + summed)
    assert not federation.server.roster.incidents


def test_who_shares_in_the_clear_says_what_it_rated_and_not_how(small, middle):
    settings = settings_of("adaptive", threshold_j=middle)
    federation, side, recorded = begun(small, settings)
    received = recorded.last("survey").received
    assert set(received) == set(side.in_clear)
    for name, data in received.items():
        update = Update.decode(data)
        assert np.array_equal(update.items, federation.parties[name].users.lists.items)
        assert (update.rows == 1).all()
        assert len(update.totals) == 0  # what users have in common is not asked for again


@pytest.mark.parametrize(("threshold", "n_summed"), [(0.0, 60), (1.0, 0)])
def test_either_group_may_be_empty(small, threshold, n_summed):
    settings = settings_of("adaptive", threshold_j=threshold, min_raters=1)
    federation, side, _ = begun(small, settings)
    assert len(side.summed) == n_summed
    sums = side.sums(federation.server.coordinator.next_round())
    counts = prepare(small, settings).lists.counts(small.n_items)
    assert np.array_equal(sums.n_raters, counts[side.layout.items])
    assert list(side.survivors) == sorted(federation.parties)


@pytest.mark.parametrize(("n_summed", "signed"), [(2, False), (2, True)])
def test_a_group_too_small_to_hide_in_is_left_out_and_still_served(small, n_summed, signed):
    j = np.sort(indicators(small, settings_of("adaptive", held_out=0.0)))
    limit = float(j[-n_summed - 1 : -n_summed + 1].mean())  # so many users are above
    settings = settings_of("adaptive", threshold_j=limit, held_out=0.0, signed=signed)
    federation = federation_of(small, settings, Recorded)
    federation.run()
    side, recorded = federation.server.side, federation.transport.inner
    assert len(side.summed) == n_summed
    assert list(side.survivors) == side.in_clear
    for stage in ("trip 1", "round"):
        assert not asked_in(recorded, stage) & set(side.summed)
    for name in side.summed:
        party = federation.parties[name]
        assert np.isfinite(party.predict(np.arange(3))).all()
        assert party.user_factors.any()


class GoneForGood:
    """One party is gone after the layout; in two rounds so many are lost that there is no sum."""

    def __init__(self, gone, lost):
        self._gone, self._lost, self._n_rounds = gone, lost, Counter()
        self._has_adopted = False

    def __call__(self, stage, name, data):
        self._n_rounds[name] += stage == "trip 1"
        is_lost = stage == "trip 1" and name in self._lost and self._n_rounds[name] <= 2
        self._has_adopted = self._has_adopted or (name == self._gone and stage == "layout")
        is_gone = name == self._gone and self._has_adopted and stage != "layout"
        return None if is_gone or is_lost else data


def test_who_is_gone_for_good_is_not_in_the_next_session(small, middle):
    settings = settings_of("adaptive", threshold_j=middle, rounds=4)
    _, quiet, _ = begun(small, settings)
    gone, *lost, _, _ = quiet.summed
    fault = GoneForGood(gone, lost)
    federation = federation_of(small, settings, lambda inner: Faulty(inner, up=fault))
    member = federation.run()
    assert np.array_equal(np.isnan(member.history), [True, True, False, False, False, False])
    assert "counts as gone" in federation.server.roster.refused[gone]
    assert sorted((*federation.server.side.survivors, gone)) == sorted(federation.parties)


# What leaves in the clear


def joined(ratings, settings, **invited):
    """A party that was invited to a run and told its layout; the run; and what it said."""
    run = prepare(ratings, settings)
    party = make_parties(ratings, settings, run.is_held_out, run.features.statistics)["000000"]
    invitation = replace(run.plan.invitation(), **invited)
    answer = read(believing(party, invitation).answer(invitation.encode()), (Joined, Refused))
    return party, run, answer if isinstance(answer, Refused) else adopt(party, run.layout)


def said(party, message, *broadcasts):
    answers = (Update, Collected, Refused)
    return read(party.answer(parcel(message, *broadcasts)), answers)


def first_round(run):
    return run.coordinator().next_round().encode()


def test_a_party_says_nothing_in_the_clear_that_its_owner_did_not_allow(small):
    settings = settings_of("adaptive", sharing="strict")
    survey = Survey(with_ratings=True).encode()
    for sums in ("adaptive", "secure"):
        party, run, answer = joined(small, settings, sums=sums)
        assert not answer.in_clear
        for frame in (first_round(run), Survey(with_ratings=False).encode(), survey):
            reason = {"adaptive": "only in sums; its policy", "secure": "kind 7 is not for here"}
            assert reason[sums] in said(party, Ask(name_of(frame)), frame).reason
        assert isinstance(said(party, Collect()), Refused)
    _, _, answer = joined(small, settings, sums="plain")
    assert "only in sums" in answer.reason
    party, run, answer = joined(small, settings_of("adaptive", threshold_j=1.0))
    assert answer.in_clear
    # A survey would carry ratings themselves, which J says nothing of.
    assert "lets no ratings out" in said(party, Ask(name_of(survey)), survey).reason
    frame = first_round(run)
    assert isinstance(said(party, Ask(name_of(frame)), frame), Update)


def test_a_party_with_a_large_j_says_nothing_in_the_clear_whatever_the_way_is_called(small):
    settings = settings_of("adaptive", threshold_j=0.0)
    party, run, answer = joined(small, settings, sums="plain")
    assert not answer.in_clear
    frame = first_round(run)
    assert "only in sums" in said(party, Ask(name_of(frame)), frame).reason


@pytest.mark.parametrize("sums", ["secure", "plain", "adaptive"])
def test_a_context_model_gets_nothing_from_a_strict_party(small, sums):
    """The paper's FedLR would be one more solver; a party does not train what it does not know."""
    _, _, answer = joined(small, settings_of("secure"), solver="context", sums=sums)
    assert isinstance(answer, Refused)
    assert "knows no solver 'context'" in answer.reason


def test_a_variational_update_never_leaves_in_the_clear(small):
    """Settings refuse such a run; a server might ask for it all the same."""
    vb = prepare(small, settings_of("secure vb", mask_fit="alone"))
    party = make_parties(small, settings_of("adaptive", threshold_j=1.0), vb.is_held_out)["000000"]
    for sums in ("adaptive", "plain"):
        invitation = replace(vb.plan.invitation(), sums=sums)
        read(believing(party, invitation).answer(invitation.encode()), (Joined,))
        assert adopt(party, vb.layout).in_clear
        frame = first_round(vb)
        refusal = said(party, Ask(name_of(frame)), frame)
        assert "updates of 'vb' hold masked ratings: only in sums" in refusal.reason


# Collected masked ratings

# Everybody is counted in one secure sum, and then chooses; the clear group says what it rated.
BEFORE_ROUNDS = {"invite", "set-up", "fill 1", "fill 3", "survey 1", "survey 3", "layout", "survey"}


def test_collecting_sends_each_masked_rating_once(small, middle):
    settings = settings_of("adaptive collecting", threshold_j=middle)
    federation = federation_of(small, settings, Recorded)
    federation.run()
    side, recorded = federation.server.side, federation.transport.inner
    collected = [seen for seen in recorded.seen if seen.stage == "collect"]
    assert len(collected) == 1
    assert set(collected[0].received) == set(side.in_clear)
    for name, data in collected[0].received.items():
        users = federation.parties[name].users
        found = read(data, (Collected,))
        is_summed = np.isin(users.lists.items, side.layout.items)
        assert np.array_equal(side.layout.items[found.items], users.lists.items[is_summed])
        assert np.array_equal(found.masked_ratings, users.masks.masked_ratings[is_summed])
    assert not asked_in(recorded, "round")
    stages = {seen.stage for seen in recorded.seen if set(seen.sent) & set(side.in_clear)}
    assert stages == BEFORE_ROUNDS | {"collect", "finish"}  # no round goes down to them


def test_collected_ratings_give_the_sums_that_updates_would(small, middle):
    """Over several rounds: the server computes what the parties would have sent."""
    settings = settings_of("adaptive", threshold_j=middle)
    sending, theirs, _ = begun(small, settings)
    _, collected, _ = begun(small, settings.changed(collect_masked=True))
    coordinator = sending.server.coordinator
    for _ in range(3):
        round_ = coordinator.next_round()
        sums, same = theirs.sums(round_), collected.sums(round_)
        np.testing.assert_allclose(same.rows, sums.rows, rtol=1e-5, atol=1e-5)
        assert np.array_equal(same.n_raters, sums.n_raters)
        assert same.totals[0] < sums.totals[0]  # the clear group's held-out ratings stay home
        coordinator.advance(round_, sums)


def test_who_is_asked_too_late_hands_nothing_over_twice(small):
    """The same masked ratings again, never others: there is one mask."""
    party, _, _ = joined(small, settings_of("adaptive collecting", threshold_j=1.0))
    first = party.answer(Collect().encode())
    assert party.answer(Collect().encode()) == first


def test_only_single_users_hand_masked_ratings_over(small):
    settings = settings_of("adaptive collecting", threshold_j=1.0, held_out=0.0)
    run = prepare(small, settings)
    silo = make_silos(Holdings(small, settings), np.array([0, 30, 60]), NUMPY)["000000"]
    read(silo.answer(run.plan.invitation().encode()), (Joined,))
    assert "its policy says so" in said(silo, Collect()).reason  # before it has masks
    assert adopt(silo, run.layout).in_clear
    assert "only a single user" in said(silo, Collect()).reason


def test_rounds_go_down_as_one_publication_for_both_groups(small, middle):
    federation, side, recorded = begun(small, settings_of("adaptive", threshold_j=middle))
    side.sums(federation.server.coordinator.next_round())
    published = set()
    for stage in ("round", "trip 1"):
        for parcel_ in recorded.last(stage).sent.values():
            (frame,), _ = split_parcel(parcel_)
            published.add(frame)
    assert len(published) == 1
    assert Round.decode(published.pop()).round == 1
