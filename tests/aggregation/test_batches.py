"""Parties summed in batches, whole or not at all, in a whole federation."""

from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from federations import believing, federation_of, settings_of
from test_secure import Checked, adopt, begun, joined, layout_for, losing, said, setup_among

from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup
from fedmmf.errors import SettingsError
from fedmmf.federation.local import LocalFederation
from fedmmf.simulation import prepare
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Adopted, Joined, Refused, read

BATCH = 4


class Watched:
    """A network that loses what it is told to; batches are read from what passes."""

    def __init__(self):
        self.lost = lambda stage, name, data: data
        self.recorded = None

    def __call__(self, inner):
        self.recorded = Recorded(Faulty(inner, up=lambda *given: self.lost(*given)))
        return self.recorded

    def batches(self):
        """Of every session that was set up, in turn: sets of names."""
        found = []
        for seen in self.recorded.seen:
            if seen.stage == "set-up":
                setups = {name: SecureSetup.decode(data) for name, data in seen.sent.items()}
                order = sorted(setups, key=lambda name: setups[name].party)
                n_batches = len(order) // BATCH
                cuts = [*range(0, n_batches * BATCH, BATCH), len(order)]
                found.append({frozenset(order[a:b]) for a, b in pairwise(cuts)})
        return found


def test_who_is_lost_takes_its_batch_out_of_the_sum_and_no_one_else(small):
    settings, watched = settings_of("secure", batch=BATCH, rounds=6), Watched()
    federation, side = begun(small, settings, watched)
    side.prepare()
    checked, coordinator = Checked(small, settings, side.layout), federation.server.coordinator
    batches, same = watched.batches()  # of the counts, and of the moments
    assert batches == same
    assert Counter(map(len, batches)) == {4: 15}
    (mates,) = (batch for batch in batches if "000007" in batch)
    # Who misses the first trip makes no keys for the next round, who misses the last no boxes:
    # it is not asked then, and its mates are out of that sum as well.
    story = [("trip 1", True), ("", True), ("", False), ("trip 3", False), ("", True), ("", False)]
    for stage, are_out in story:
        idle = [7] if are_out and not stage else []
        watched.lost = losing(stage, {"000007"})
        gone, round_ = mates if are_out else frozenset(), coordinator.next_round()
        sums = side.sums(round_)
        assert set(side.survivors) == set(federation.parties) - gone
        checked.require_same(round_, sums, without=set(map(int, gone)), idle=idle)
        coordinator.advance(round_, sums)
    assert watched.batches() == [batches] * 3


def test_batches_stay_as_they_are_from_session_to_session(small):
    """Over the survey, the rounds, and after a round without a sum, when somebody will not come."""
    settings, watched = settings_of("secure", batch=BATCH), Watched()
    federation, side = begun(small, settings, watched)
    side.prepare()
    coordinator = federation.server.coordinator
    coordinator.advance(round_ := coordinator.next_round(), side.sums(round_))
    watched.lost = losing("trip 1", {f"{number:06}" for number in range(56)})
    with pytest.raises(Exception, match="aborted"):
        side.sums(coordinator.next_round())

    def refusing(stage, name, data):
        is_his = (stage, name) == ("set-up", "000007")
        return Refused("not today").encode() if is_his else data

    watched.lost = refusing
    round_ = replace(coordinator.next_round(), round=3)
    sums = side.sums(round_)
    survey, moments, rounds, again, last = watched.batches()
    assert survey == moments == rounds == again
    (mates,) = (batch for batch in survey if "000007" in batch)
    assert last == survey - {mates}  # nobody else is put in its place, or into another batch
    assert set(side.survivors) == set(federation.parties) - mates
    assert sums.rows.any()


def test_the_last_batch_has_the_rest(small):
    settings, watched = settings_of("secure", batch=BATCH), Watched()
    few = small.select(small.user_codes != 59)
    frame = few.to_frame()
    few = type(small).from_frame(frame, scale=small.scale)
    federation, side = begun(few, settings, watched)
    side.prepare()
    batches, _ = watched.batches()
    assert few.n_users == 59
    assert Counter(map(len, batches)) == {4: 13, 7: 1}
    (last,) = (batch for batch in batches if len(batch) == 7)
    watched.lost = losing("trip 1", {min(last)})
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert set(side.survivors) == set(federation.parties) - last
    Checked(few, settings, side.layout).require_same(round_, sums, without=set(map(int, last)))


def test_sums_of_any_two_rounds_differ_by_whole_batches(small):
    settings, watched = settings_of("secure", batch=BATCH, rounds=6), Watched()
    federation, side = begun(small, settings, watched)
    side.prepare()
    (batches, _), coordinator = watched.batches(), federation.server.coordinator
    seen, (one, two, three, *_) = [], sorted(map(min, batches))
    for names in ({one}, {one, two}, set(), {three}):
        watched.lost = losing("trip 1", names)
        coordinator.advance(round_ := coordinator.next_round(), side.sums(round_))
        seen.append(set(side.survivors))
    for first, second in combinations(seen, 2):
        left = first ^ second
        assert left == set().union(*(batch for batch in batches if batch & left))
    assert len({frozenset(survivors) for survivors in seen}) == 3


def test_batches_that_nobody_could_be_lost_from_are_refused_in_words(small):
    """Where one takes 19 with it, hardly a sum would be left."""
    _, side = begun(small, settings_of("secure", batch=20))
    with pytest.raises(SettingsError, match="need 31 survivors"):
        side.prepare()


# What a party agrees to


def test_a_party_is_summed_in_batches_as_large_as_its_owner_says(small):
    party = joined(small, settings_of("secure", batch=BATCH))["000000"]
    refusal = said(party, setup_among(60, batch=3))
    assert "in batches of at least 4; the server's have 3" in refusal.reason
    assert "the server's have 1" in said(party, setup_among(60)).reason
    assert isinstance(said(party, setup_among(60, batch=BATCH)), SecureAgreed)


def signed_parties(ratings, **changes):
    settings = settings_of("secure signed", batch=3, **changes)
    parties = joined(ratings, settings)
    return parties, [party.policy.public_identity for party in parties.values()], settings


def exchanged(identities, one, other):
    """The same parties in another order: two have changed places, and batches."""
    changed = list(identities)
    changed[one], changed[other] = changed[other], changed[one]
    return tuple(changed)


def test_a_party_that_signs_refuses_other_mates_than_before(tiny):
    parties, known, _ = signed_parties(tiny)
    party, fresh = parties["000000"], iter(range(99))

    def proposed(identities, **changes):
        session = bytes([next(fresh)]) * 16
        return said(
            party, setup_among(12, batch=3, **changes, session=session, identities=identities)
        )

    assert isinstance(proposed(tuple(known)), SecureAgreed)
    refusal = proposed(exchanged(known, 2, 5))
    assert "other members in an earlier session or run" in refusal.reason
    larger = said(party, setup_among(12, batch=4, session=b"l" * 16, identities=tuple(known)))
    assert "other members" in larger.reason
    smaller = said(party, setup_among(12, session=b"s" * 16, identities=tuple(known)))
    assert "at least 3; the server's have 1" in smaller.reason
    # The order within its batch, and who is in the others, are nobody's harm.
    assert isinstance(proposed(exchanged(known, 1, 2)), SecureAgreed)
    assert isinstance(proposed(exchanged(known, 5, 8)), SecureAgreed)
    fewer = setup_among(9, batch=3, session=b"f" * 16, identities=tuple(known[:9]))
    assert isinstance(said(party, fewer), SecureAgreed)


def test_a_refused_set_up_leaves_the_mates_as_they_were(tiny):
    parties, known, _ = signed_parties(tiny)
    party = parties["000000"]
    default_users = setup_among(12, batch=3, identities=(*known[:-1], b"x" * 32))
    assert isinstance(said(party, default_users), Refused)
    assert party.users.mates == ()
    good = setup_among(12, batch=3, identities=exchanged(known, 2, 5))
    assert isinstance(said(party, good), SecureAgreed)
    assert set(party.users.mates) == {known[0], known[1], known[5]}


def test_a_party_remembers_its_mates_in_a_later_run(tiny):
    """Whoever begins a new run would otherwise get sums of other batches of the same ratings."""
    parties, known, settings = signed_parties(tiny)
    party, plan = parties["000000"], prepare(tiny, settings).plan
    assert isinstance(said(party, setup_among(12, batch=3, identities=tuple(known))), SecureAgreed)
    for seed in (1, 2):
        later = replace(plan, settings=settings.changed(factors=3 + seed)).invitation()
        read(believing(party, later).answer(later.encode()), (Joined,))
        assert isinstance(adopt(party, layout_for(tiny)), Adopted)
        other = setup_among(12, batch=3, identities=exchanged(known, 2, 5))
        assert "other members in an earlier session or run" in said(party, other).reason
        same = setup_among(12, batch=3, identities=tuple(known))
        assert isinstance(said(party, same), SecureAgreed)


def test_a_party_restored_from_a_checkpoint_remembers_its_mates(tiny):
    parties, known, _ = signed_parties(tiny)
    party = parties["000000"]
    said(party, setup_among(12, batch=3, identities=tuple(known)))
    state = party.state()
    party.users.mates = ()
    party.restore(state)
    other = setup_among(12, batch=3, session=b"o" * 16, identities=exchanged(known, 2, 5))
    assert "other members" in said(party, other).reason


def test_later_runs_have_the_same_batches_and_those_who_sign_take_no_others(tiny):
    """Runs begin with the same data: what they differ by is a batch at least."""
    settings = settings_of("secure signed", batch=3, min_raters=1, rounds=1)
    federation = federation_of(tiny, settings)
    federation.run()
    before = {name: party.users.mates for name, party in federation.parties.items()}
    assert {len(mates) for mates in before.values()} == {3}
    later = prepare(tiny, settings).plan
    again = LocalFederation.among(later, federation.parties)
    again.run()
    assert set(again.server.side.survivors) == set(federation.parties)
    lying = LocalFederation.among(later, federation.parties)
    lying.server.roster.names = sorted(set(federation.parties) - {"000003"})
    with pytest.raises(Exception, match="set-up"):
        lying.run()
    assert any("other members" in reason for reason in lying.server.roster.refused.values())
    assert {name: party.users.mates for name, party in federation.parties.items()} == before
