"""Secure sums among real parties: exact, silent about single updates, and refused where unsafe."""

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from contract import Misbehaving
from federations import federation_of, settings_of

from fedmmf.aggregation.rare_items import are_rare, raters_needed
from fedmmf.aggregation.secure.messages import SecureAgreed, SecureSetup, SecureTrip, graph_of
from fedmmf.errors import DataError, WireError
from fedmmf.federation.local import make_parties
from fedmmf.secagg import BelowThresholdError, FixedPoint, ring_named
from fedmmf.secagg.keys import End, KeyPair, pair_seed
from fedmmf.secagg.messages import Masked, Survivors
from fedmmf.secagg.prg import expand
from fedmmf.secagg.ring import RING64
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.secagg.setup import SERVER
from fedmmf.simulation import prepare
from fedmmf.simulation.surveys import surveyed
from fedmmf.solvers import SOLVERS
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import (
    Adopt,
    Adopted,
    Ask,
    Finish,
    Joined,
    Layout,
    Refused,
    Survey,
    Update,
    Wanted,
    name_of,
    parcel,
    read,
    split_parcel,
)
from fedmmf.wire.frames import NO_NAME


def begun(ratings, settings, wrap=lambda transport: transport):
    """A federation whose parties have joined, without a survey; and its server's side."""
    federation = federation_of(ratings, settings, wrap)
    return federation, federation.server.invite()


def prepared(ratings, settings, wrap=lambda transport: transport):
    """The same, surveyed, with a layout that everybody has adopted."""
    federation, side = begun(ratings, settings, wrap)
    side.prepare()
    return federation, side


def adopt(party, layout):
    """What a party says to a layout."""
    frame = layout.encode()
    return read(party.answer(parcel(Adopt(name_of(frame)), frame)), (Adopted, Refused))


def counts_of(ratings, settings, without=()):
    """Raters of each item among the users who stayed, less what they hold out."""
    run = prepare(ratings, settings)
    stayed = ~np.isin(np.arange(ratings.n_users), without)
    return run.lists.counts(ratings.n_items, stayed)


def losing(stage, names):
    """A network on which some answers of one stage get lost."""
    return lambda where, name, data: None if where == stage and name in names else data


# What a sum is


class Twins:
    """The same parties again, to be asked in floating point by whoever owns the test."""

    def __init__(self, ratings, settings, layout=None):
        run = prepare(ratings, settings)
        self._plan, self._solver = run.plan, SOLVERS[settings.solver]
        parties = make_parties(ratings, settings, run.is_held_out, run.features.statistics)
        invitation = run.plan.invitation().encode()
        for party in parties.values():
            read(party.answer(invitation), (Joined,))
            assert isinstance(adopt(party, layout or run.layout), Adopted)
        self.runs = [party.run for party in parties.values()]

    def fixed_point_sums(self, round_, without=(), n_users=None, idle=()):
        """The obvious way: everybody's numbers bounded, rounded, and added as integers.

        Everybody computes but the idle ones, who were not asked; those who are lost on the way are
        not in the sum.
        """
        n, ring = n_users or len(self.runs), ring_named(self._solver.ring)
        bounds = self._solver.bounds(self._plan.catalogue.scale.span)
        of_rows, of_totals = FixedPoint(n, bounds.row, ring), FixedPoint(n, bounds.total, RING64)
        width = self._plan.update_shape.width
        rows, totals = np.zeros((len(round_.item_rows), width), np.int64), 0
        for number, run in enumerate(self.runs):
            if number in idle:
                continue
            part = run.contribute(round_, None, None, n_parties=n)
            if number not in without:
                rows[part.items] += of_rows.quantize(part.rows)
                totals += of_totals.quantize(part.totals)
        return (rows / of_rows.scale).astype(np.float32), totals / of_totals.scale


class Checked:
    """Holds sums against those of twins: who is in them shows in the rows.

    Args:
        ratings: of everybody.
        settings: of the run.
        layout: what the server found.
        unsurveyed: who was missing in the survey.
    """

    def __init__(self, ratings, settings, layout, unsurveyed=()):
        counts = counts_of(ratings, settings, unsurveyed)
        items = np.flatnonzero(~are_rare(counts, settings.min_raters, settings.batch))
        assert np.array_equal(layout.items, items)
        self._twins = Twins(ratings, settings, layout)
        self._counts = counts[items]

    def lose(self, round_):
        """A round that everybody computed, and that gave no sum."""
        self._twins.fixed_point_sums(round_)

    def require_same(self, round_, sums, **who):
        """The sum is over exactly those who are in it, to the bit."""
        rows, totals = self._twins.fixed_point_sums(round_, **who)
        assert rows.any(axis=1).sum() == np.count_nonzero(self._counts) > 0
        assert np.array_equal(sums.rows, rows)
        assert np.array_equal(sums.totals, totals)
        assert np.array_equal(sums.n_raters, self._counts)  # the survey's, whoever is in the sum


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize(
    ("variant", "chosen", "n_parties", "is_complete"),
    [
        ("secure", {}, 60, False),
        ("secure", {}, 5, True),
        ("secure", {"batch": 7}, 60, False),
        ("secure signed", {}, 60, False),
        ("secure signed", {"batch": 3}, 12, False),
    ],
    ids=["sparse", "complete", "in batches", "signed", "signed in batches"],
)
def test_a_secure_sum_is_exactly_the_sum_of_fixed_point_updates(
    small, variant, chosen, n_parties, is_complete, solver
):
    settings = settings_of(variant, solver=solver, min_raters=1 + (n_parties > 5), **chosen)
    ratings = small if n_parties == 60 else some_of(small, n_parties)
    federation, side = begun(ratings, settings)
    side.prepare()
    checked, coordinator = Checked(ratings, settings, side.layout), federation.server.coordinator
    for _ in range(3):
        round_ = coordinator.next_round()
        sums = side.sums(round_)
        checked.require_same(round_, sums)
        assert sorted(side.survivors) == sorted(federation.parties)
        coordinator.advance(round_, sums)
    setup = side.session.protocol.setup
    assert (setup.degree == n_parties - 1) == is_complete


def some_of(ratings, n_users):
    """The first users' ratings, as a set of its own."""
    frame = ratings.select(ratings.user_codes < n_users).to_frame()
    return type(ratings).from_frame(frame, scale=ratings.scale)


# Who is in it


def test_a_party_lost_while_unmasking_stays_in_the_sum(small):
    settings = settings_of("secure")
    lost = losing("trip 3", {"000003", "000041"})
    federation, side = prepared(small, settings, lambda inner: Faulty(inner, up=lost))
    round_ = federation.server.coordinator.next_round()
    Checked(small, settings, side.layout).require_same(round_, side.sums(round_))
    assert list(side.survivors) == sorted(federation.parties)
    assert set(federation.server.roster.refused) == {"000003", "000041"}


def test_a_party_lost_before_it_sent_its_vector_is_not_in_the_sum(small):
    settings = settings_of("secure")
    lost = losing("trip 1", {"000003", "000041"})
    federation, side = prepared(small, settings, lambda inner: Faulty(inner, up=lost))
    round_ = federation.server.coordinator.next_round()
    Checked(small, settings, side.layout).require_same(round_, side.sums(round_), without=[3, 41])
    assert sorted({*side.survivors, "000003", "000041"}) == sorted(federation.parties)


class OneBadRound:
    """In one round, the second, many answers get lost."""

    def __init__(self, n_lost):
        self._n_lost, self._seen = n_lost, 0

    def __call__(self, stage, name, data):
        self._seen += stage == "trip 1" and name == "000000"
        is_lost = stage == "trip 1" and self._seen == 2 and int(name) < self._n_lost
        return None if is_lost else data


def test_below_the_threshold_a_round_gives_nothing(small):
    settings = settings_of("secure")
    federation, side = prepared(
        small, settings, lambda inner: Faulty(Recorded(inner), up=OneBadRound(56))
    )
    coordinator, recorded = federation.server.coordinator, federation.transport.inner.inner
    checked, first = Checked(small, settings, side.layout), coordinator.next_round()
    sums = side.sums(first)
    checked.require_same(first, sums)
    coordinator.advance(first, sums)
    bad = coordinator.next_round()
    with pytest.raises(BelowThresholdError):
        side.sums(bad)
    checked.lose(bad)
    assert side.survivors == ()
    assert len(sessions(recorded)) == 1
    coordinator.lose(bad, BelowThresholdError("trip 1", 4, 8))
    last = coordinator.next_round()
    checked.require_same(last, side.sums(last))
    assert len(sessions(recorded)) == 2  # never again with the same masks


def sessions(recorded):
    """Names of the sessions that were set up for rounds."""
    sent = [exchange.sent["000000"] for exchange in recorded.seen if exchange.stage == "set-up"]
    setups = map(SecureSetup.decode, sent)
    return {setup.session for setup in setups if not setup.for_survey}


def test_training_survives_a_round_without_a_sum(small):
    settings = settings_of("secure", rounds=4)
    federation = federation_of(small, settings, lambda inner: Faulty(inner, up=OneBadRound(56)))
    member = federation.run()
    assert np.array_equal(np.isnan(member.history), [False, True, False, False, False])
    assert np.isfinite(member.broadcast.item_factors).all()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"nonsense" * 9, "malformed"),
        (lambda data: data[:-1], "malformed"),
        (lambda data: SecureTrip(1, bytes(32), b"nonsense" * 9).encode(), "party 7 refused: "),
        (lambda data: data[:60] + b"?" + data[61:], "party 7 refused: "),
        (lambda data: Refused("not today").encode(), "refused: not today"),
        (lambda data: SecureAgreed().encode(), "kind 14 is not for here"),
    ],
    ids=["no frame", "cut", "no message of the session", "another session", "refusal", "kind"],
)
def test_nonsense_counts_as_a_drop_out_and_is_named(small, damage, reason):
    def damaged(stage, name, data):
        return damage(data) if (stage, name) == ("trip 1", "000007") else data

    settings = settings_of("secure")
    federation, side = prepared(small, settings, lambda inner: Faulty(inner, up=damaged))
    round_ = federation.server.coordinator.next_round()
    Checked(small, settings, side.layout).require_same(round_, side.sums(round_), without=[7])
    assert reason in federation.server.roster.refused["000007"]
    assert set(federation.server.roster.refused) == {"000007"}
    assert sorted({*side.survivors, "000007"}) == sorted(federation.parties)
    assert len(side.survivors) == 59


class OneVectorSpoilt:
    """Once, half a ring is added to an entry of somebody's masked vector; nothing else changes."""

    def __init__(self, federation_of_one):
        self._federation, self._is_done = federation_of_one, False

    def __call__(self, stage, name, data):
        if self._is_done or (stage, name) != ("trip 1", "000007"):
            return data
        self._is_done = True
        protocol = self._federation[0].server.side.session.protocol
        trip, setup = open_trip(protocol.setup, 7, data)
        vector = Masked.decode(setup, 7, trip.current).vector.copy()
        vector[0] ^= np.uint32(1 << 31)
        spoilt = replace(trip, current=Masked(vector).encode(setup, 7))
        return replace(SecureTrip.decode(data), data=spoilt.encode(protocol.setup)).encode()


def open_trip(setup, number, data):
    """What a party's answer to a first trip holds, and the setup of its round."""
    trip = Trip.decode(setup, number, SecureTrip.decode(data).data)
    return trip, setup_of(setup, trip.number)


def test_a_sum_that_honest_parties_cannot_reach_is_given_up_with_its_session(small):
    settings, held = settings_of("secure"), []
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=OneVectorSpoilt(held)))
    held.append(federation)
    side.prepare()
    checked, coordinator = Checked(small, settings, side.layout), federation.server.coordinator
    bad = coordinator.next_round()
    with pytest.raises(DataError, match="honest users can reach"):
        side.sums(bad)
    assert side.survivors == ()
    coordinator.lose(bad, DataError("it was too large"))
    checked.lose(bad)
    good = coordinator.next_round()
    checked.require_same(good, side.sums(good))


class OneByOne:
    """At every set-up, once it begins, one more party refuses."""

    def __init__(self, n):
        self._left, self.has_begun = [f"{number:06}" for number in range(n)], False

    def __call__(self, stage, name, data):
        if not self.has_begun or stage != "set-up" or self._left[:1] != [name]:
            return data
        self._left.pop(0)
        return Refused("not with these").encode()


def test_parties_that_refuse_one_after_the_other_keep_nobody_else_from_a_sum(small):
    settings, fault = settings_of("secure"), OneByOne(5)
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=fault))
    side.prepare()
    fault.has_begun = True
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    Checked(small, settings, side.layout).require_same(round_, sums, without=range(5), n_users=55)
    assert set(federation.server.roster.refused) == {f"{number:06}" for number in range(5)}


def test_parties_that_refuse_one_after_the_other_keep_nobody_else_from_a_survey(small):
    """Those who did refuse are in the rounds again, and their items are the others'."""
    settings, fault = settings_of("secure"), OneByOne(5)
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=fault))
    fault.has_begun = True
    side.prepare()
    assert np.array_equal(side.n_raters, counts_of(small, settings, without=range(5)))
    assert set(federation.server.roster.refused) == {f"{number:06}" for number in range(5)}
    round_ = federation.server.coordinator.next_round()
    Checked(small, settings, side.layout, unsurveyed=range(5)).require_same(
        round_, side.sums(round_)
    )


def test_too_few_parties_for_a_sum_are_said_to_be_so(small):
    settings = settings_of("secure")
    federation, side = begun(
        small, settings, lambda inner: Faulty(inner, up=losing("set-up", sorted_names(58)))
    )
    with pytest.raises(BelowThresholdError, match="set-up': 2 parties answered, at least 3"):
        side.prepare()
    assert side.layout is None
    with pytest.raises(WireError, match="no round can begin before the survey"):
        _ = federation.server.coordinator


def sorted_names(n):
    return {f"{number:06}" for number in range(n)}


# The survey, and rare items


def test_a_secure_survey_gives_the_item_statistics(small):
    """Of the items that enough users rated; of the others nothing but the counts."""
    settings = settings_of("secure", held_out=0.0, item_statistics=True, min_raters=14)
    _, side = begun(small, settings)
    side.prepare()
    sums, expected = side.survey_ratings(), surveyed(small, settings)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-4)
    assert np.abs(expected.rows).max() > 1
    counts = np.diff(small.by_item.indptr)
    rare = counts < raters_needed(14)
    assert 0 < rare.sum() < len(rare)
    assert not sums.rows[rare].any()
    assert not sums.n_raters[rare].any()
    assert np.array_equal(sums.n_raters[~rare], counts[~rare])


def test_surveys_without_ratings_give_counts_and_then_how_users_differ_alone(small):
    _, side = begun(small, settings_of("secure", held_out=0.0))
    sums, counts = side.sum("survey", Survey(False)), np.diff(small.by_item.indptr)
    assert np.array_equal(sums.n_raters, counts)
    assert np.array_equal(sums.rows, counts[:, np.newaxis])
    assert len(sums.totals) == 0
    everything = np.arange(small.n_items, dtype=np.int32)
    sums = side.sum("survey", Survey(False, everything))
    assert len(sums.rows) == 0
    said = []
    for begin, end in pairwise(small.by_user.tolist()):
        y = (small.values[begin:end].astype(np.float64) - 3.0) / 4.0
        spread, n = y.var(ddof=1), end - begin
        said.append((1.0, y.mean(), y.mean() ** 2, 1.0, spread, spread / n, y.sum()))
    np.testing.assert_allclose(sums.totals, np.sum(said, axis=0), atol=1e-9)
    assert sums.totals[0] == small.n_users


def test_a_party_lets_no_ratings_into_a_survey_without_its_owners_say(small):
    """Counts it gives; a server that asks for ratings all the same gets no sum at all."""
    federation, side = begun(small, settings_of("secure"))
    side.prepare()
    assert not federation.server.roster.incidents
    with pytest.raises(BelowThresholdError):
        side.sum("survey", Survey(with_ratings=True))
    reasons = set(federation.server.roster.refused.values())
    assert reasons == {
        "refused: this party's owner lets no ratings out, not even in a survey's sums"
    }


def test_who_lets_no_ratings_out_is_missing_in_the_survey_and_not_in_the_rounds(small):
    settings = settings_of("secure", held_out=0.0, item_statistics=True)
    federation, side = begun(small, settings)
    for name in ("000003", "000041"):
        party = federation.parties[name]
        party.policy = replace(party.policy, survey_ratings=False)
        party.run.policy = party.policy
    side.prepare()
    sums = side.survey_ratings()
    assert set(federation.server.roster.refused) == {"000003", "000041"}
    others = small.select(~np.isin(small.user_codes, [3, 41]))
    kept = sums.n_raters > 0
    expected = surveyed(others, settings.changed(sharing="plain")).rows
    np.testing.assert_allclose(sums.rows[kept], expected[kept], atol=1e-4)
    side.sums(federation.server.coordinator.next_round())
    assert list(side.survivors) == sorted(federation.parties)


def test_a_second_survey_is_among_the_same_or_differs_by_a_cohort(tiny):
    """What two surveys differ by shows: nobody, or several at once."""
    settings = settings_of("secure signed", held_out=0.0, min_raters=1)
    federation, side = begun(tiny, settings)
    side.census()
    everybody = sorted(federation.parties)
    for n_missing in (0, 1, 2, 3):
        side.session, side.names = None, everybody[n_missing:]
        if 0 < n_missing < 3:
            with pytest.raises(BelowThresholdError):
                side.sum("survey", Survey(with_ratings=False))
            reasons = federation.server.roster.refused.values()
            assert any(f"differs by {n_missing} parties" in reason for reason in reasons)
            continue
        found = side.sum("survey", Survey(with_ratings=False))
        assert list(side.survivors) == everybody[n_missing:]
        assert found.rows.sum() == (tiny.user_codes >= n_missing).sum()


def test_a_survey_that_nobody_unmasked_is_made_anew(small):
    settings = settings_of("secure")
    lost = Misbehaving("survey 1", 1, dict.fromkeys(sorted_names(56)))
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=lost))
    side.prepare()
    assert lost.happened
    assert np.array_equal(side.n_raters, counts_of(small, settings))
    assert list(side.survivors) == sorted(federation.parties)


def test_a_survey_that_failed_before_it_was_unmasked_is_made_anew_among_those_who_sign(tiny):
    """The third trip still brings keys of the next round, and that is no unmasking."""
    settings = settings_of("secure signed")
    lost = Misbehaving("survey 2", 1, dict.fromkeys(sorted_names(7)))
    federation, side = begun(tiny, settings, lambda inner: Faulty(inner, up=lost))
    side.prepare()
    assert lost.happened
    missing = set(federation.parties) - set(side.counted)
    assert len(missing) == 3
    assert list(side.survivors) == sorted(federation.parties)  # of the moments
    without = sorted(map(int, missing))
    assert np.array_equal(side.n_raters, counts_of(tiny, settings, without=without))


def test_a_survey_that_was_unmasked_unheard_is_made_anew_without_several(tiny):
    """The server may have heard all the same: what the two differ by is three parties' part."""
    lost = Misbehaving("survey 3", 1, dict.fromkeys(sorted_names(8)))
    settings = settings_of("secure signed")
    federation, side = begun(tiny, settings, lambda inner: Faulty(inner, up=lost))
    side.prepare()
    assert lost.happened
    assert len(side.counted) == tiny.n_users - 3
    round_ = federation.server.coordinator.next_round()
    side.sums(round_)
    assert list(side.survivors) == sorted(federation.parties)  # all are back


def test_items_with_too_few_raters_are_left_out_after_a_survey(small):
    counts = np.diff(small.by_item.indptr)
    limit = int(np.sort(counts)[5]) + 1  # some items fall below
    settings = settings_of("secure", held_out=0.0, min_raters=limit)
    federation, side = begun(small, settings)
    side.prepare()
    assert np.array_equal(side.n_raters, counts)
    sums = side.sums(federation.server.coordinator.next_round())
    rare = counts < raters_needed(limit)
    assert (counts < limit).sum() >= 6
    assert np.array_equal(side.layout.items, np.flatnonzero(~rare))
    assert np.array_equal(sums.n_raters, counts[~rare])
    assert sums.rows.any(axis=1).all()


def rated_by(ratings, item, n_raters):
    """The same ratings, but only so many users have rated an item; and who they are."""
    users = ratings.user_codes[ratings.item_codes == item][:n_raters]
    is_kept = (ratings.item_codes != item) | np.isin(ratings.user_codes, users)
    assert len(users) == n_raters
    return ratings.select(is_kept), users.tolist()


@pytest.mark.parametrize("min_raters", [1, 3])
def test_an_item_whose_only_rater_missed_the_survey_is_not_summed_when_it_returns(
    small, min_raters
):
    ratings, (user,) = rated_by(small, item=4, n_raters=1)
    settings = settings_of("secure", held_out=0.0, min_raters=min_raters)
    lost = losing("survey 1", {f"{user:06}"})
    federation, side = begun(ratings, settings, lambda inner: Faulty(inner, up=lost))
    side.prepare()
    assert side.n_raters[4] == 0
    assert set(federation.server.roster.refused) == {f"{user:06}"}
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert f"{user:06}" in side.survivors
    assert 4 not in side.layout.items
    Checked(ratings, settings, side.layout, unsurveyed=[user]).require_same(round_, sums)
    assert 4 in Twins(ratings, settings).runs[user].users.lists.items  # it is not said at all


@pytest.mark.parametrize("n_raters", [3, 5])
def test_two_of_three_raters_that_drop_out_do_not_show_the_third(small, n_raters):
    """With three raters an item is not summed at all; of five, three are left."""
    ratings, users = rated_by(small, item=4, n_raters=n_raters)
    settings = settings_of("secure", held_out=0.0, min_raters=3)
    lost = losing("trip 1", {f"{user:06}" for user in users[:2]})
    federation, side = begun(ratings, settings, lambda inner: Faulty(inner, up=lost))
    side.prepare()
    assert side.n_raters[4] == n_raters
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert len(side.survivors) == 58
    assert (4 in side.layout.items) == (n_raters == 5)
    Checked(ratings, settings, side.layout).require_same(round_, sums, without=users[:2])
    if n_raters == 5:
        place = np.searchsorted(side.layout.items, 4)
        for run in [Twins(ratings, settings).runs[user] for user in users]:
            own = run.contribute(round_, None, None, n_parties=60)
            assert not np.allclose(own.rows[own.items == place], sums.rows[place], atol=1e-3)


# What a party agrees to


def joined(ratings, settings, minimum=3):
    """Parties that have joined a run, and want at least so many in a sum."""
    settings = settings.changed(smallest_cohort=minimum)
    run = prepare(ratings, settings)
    parties = make_parties(ratings, settings, run.is_held_out, run.features.statistics)
    invitation = run.plan.invitation().encode()
    for party in parties.values():
        read(party.answer(invitation), (Joined,))
        assert isinstance(adopt(party, layout_for(ratings)), Adopted)
    return parties


def layout_for(ratings):
    """Every second item, and the middle of the scale."""
    items = np.arange(0, ratings.n_items, 2, dtype=np.int32)
    return Layout(items, np.array([ratings.scale.midpoint]), 1.0)


LAYOUTS = [  # of `tiny` and of `small`, as `layout_for` makes them
    Layout(np.arange(0, n_items, 2, dtype=np.int32), np.array([3.0]), 1.0) for n_items in (15, 90)
]


def setup_among(n, **changes):
    """A set-up of n parties in which nothing is wrong, but for the changes."""
    values = {
        "session": b"s" * 16,
        "for_survey": False,
        "layout": name_of(LAYOUTS[n > 12].encode()),
        "party": 0,
        "n_parties": n,
        "n_users": n,
        "minimum": 3,
        "batch": 1,
        "left_out": np.zeros(0, np.int32),
        "identities": (),
    }
    return SecureSetup(**{**values, **changes})


def said(party, message):
    return read(party.answer(message.encode()), (SecureAgreed, SecureTrip, Refused))


def test_a_party_agrees_to_a_setup_in_which_nothing_is_wrong(small):
    party = joined(small, settings_of("secure"))["000000"]
    assert isinstance(said(party, setup_among(60)), SecureAgreed)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_parties": 2}, "at least 3 parties; the server sums 2"),
        ({"batch": 0}, "a batch has 1 to 60 parties; got 0"),
        ({"batch": 61}, "a batch has 1 to 60 parties; got 61"),
        ({"batch": 20}, "60 parties need 31 survivors"),  # one that is lost takes 19 with it
        ({"minimum": 2}, "at least 3 parties; the server sums 60, and as few as 2"),
        ({"minimum": 61}, "must have at least 61 parties"),
        ({"party": 60}, "party 60 is not one of 60"),
        ({"n_users": 59}, "60 parties have 59 users"),
        ({"n_users": 2**31}, "60 parties have 2147483648 users"),
        ({"left_out": np.array([45])}, "items must increase within"),
        ({"layout": b"l" * 32}, "a layout that this party has not adopted"),
        ({"layout": bytes(32)}, "a layout that this party has not adopted"),
        ({"identities": (b"i" * 32,)}, "an identity for each party"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_party_refuses_a_setup_that_breaks_the_protocols_conditions(small, changes, reason):
    party = joined(small, settings_of("secure"))["000000"]
    answer = said(party, setup_among(60, **changes))
    assert isinstance(answer, Refused)
    assert reason in answer.reason
    trip = said(party, SecureTrip(1, bytes(32), b""))
    assert "needs a SecureSetup first" in trip.reason  # nothing was agreed on


def test_nobody_chooses_threshold_neighbours_or_graph(small):
    """They follow from what was agreed on; who is told something else has another graph."""
    assert not {"threshold", "neighbours", "graph_seed"} & set(SecureSetup.fields())
    seeds = set()
    changes = [{}, {"session": b"t" * 16}, {"minimum": 4}, {"batch": 2}]
    changes += [{"left_out": np.array([3], np.int32)}, {"for_survey": True}]
    changes += [{"for_survey": True, "layout": bytes(32)}]
    for change in changes:
        party = joined(small, settings_of("secure"))["000000"]
        assert isinstance(said(party, setup_among(60, **change)), SecureAgreed)
        setup = party.run.side.agreed.session.setup
        chosen = graph_of(60, active=False, batch=change.get("batch", 1))
        assert (setup.degree, setup.threshold) == chosen
        assert 2 * setup.threshold > setup.degree + 1
        seeds.add(setup.graph_seed)
    assert len(seeds) == len(changes)


def test_a_party_hides_among_as_many_as_its_owner_says(small):
    party = joined(small, settings_of("secure"), minimum=50)["000000"]
    refusal = said(party, setup_among(49, minimum=49))
    assert "at least 50 parties; the server sums 49" in refusal.reason
    assert "as few as 49" in said(party, setup_among(60, minimum=49)).reason
    assert isinstance(said(party, setup_among(60, minimum=50)), SecureAgreed)


def test_a_party_that_signs_refuses_strangers_and_sums_without_signatures(tiny):
    parties = joined(tiny, settings_of("secure signed"))
    known = tuple(party.policy.public_identity for party in parties.values())
    wrong = {
        "only in sums whose parties all sign": {"identities": ()},
        "1 of the identities belong to nobody": {"identities": (*known[:-1], b"x" * 32)},
        "gives this party's number another identity": {"identities": known, "party": 1},
        "one distinct Ed25519 public key per party": {"identities": (*known[:-1], known[0])},
    }
    for reason, changes in wrong.items():
        assert reason in said(parties["000000"], setup_among(12, **changes)).reason
    assert isinstance(said(parties["000000"], setup_among(12, identities=known)), SecureAgreed)
    agreed = parties["000000"].run.side.agreed.session.setup
    assert 3 * agreed.threshold > 2 * (agreed.degree + 1)  # a liar cannot have two sums of it
    unsigned = joined(tiny, settings_of("secure"))["000000"]
    refusal = said(unsigned, setup_among(12, identities=known))
    assert "no identity to sign with" in refusal.reason


def test_a_party_that_signs_agrees_to_nothing_among_those_it_does_not_know(tiny):
    """A server that makes up everybody else is on its own."""
    party = joined(tiny, settings_of("secure signed"))["000000"]
    made_up = tuple(bytes([number]) * 32 for number in range(1, 12))
    setup = setup_among(12, identities=(party.policy.public_identity, *made_up))
    assert "11 of the identities belong to nobody" in said(party, setup).reason


@pytest.mark.parametrize("claimed", ["", "of another"])
def test_who_joins_without_an_identity_of_its_own_is_left_out_of_signed_sums(tiny, claimed):
    settings, identities = settings_of("secure signed", min_raters=2), {}

    def claiming(stage, name, data):
        if stage != "invite":
            return data
        identities[name] = Joined.decode(data).identity
        wrong = identities["000000"] if claimed else b""
        return replace(Joined.decode(data), identity=wrong).encode() if name == "000005" else data

    federation, side = prepared(tiny, settings, lambda inner: Faulty(inner, up=claiming))
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert "identity of its own" in federation.server.roster.refused["000005"]
    assert set(federation.parties) - set(side.survivors) == {"000005"}
    Checked(tiny, settings, side.layout, unsurveyed=[5]).require_same(
        round_, sums, without=[5], n_users=11
    )


def without_somebody(setup, name, data):
    """The second trip, as a server would write it that had not heard of the last party."""
    message = SecureTrip.decode(data)
    trip = Trip.decode(setup, SERVER, message.data)
    inner = setup_of(setup, trip.number)
    shown = Survivors.decode(inner, SERVER, trip.current).members
    left = shown - {max(shown - {int(name)})}
    lie = replace(trip, current=Survivors(left).encode(inner, SERVER))
    return replace(message, data=lie.encode(setup)).encode()


def test_who_was_told_of_other_survivors_has_no_say_in_unmasking(small):
    """Somebody on the way tells one party of fewer survivors than the others."""
    held = []

    def tampered(stage, name, data):
        if (stage, name) != ("trip 2", "000007"):
            return data
        return without_somebody(held[0].server.side.session.protocol.setup, name, data)

    settings = settings_of("secure signed")
    federation, side = begun(small, settings, lambda inner: Faulty(inner, down=tampered))
    held.append(federation)
    side.prepare()
    round_ = federation.server.coordinator.next_round()
    sums = side.sums(round_)
    assert set(federation.server.roster.refused) == {"000007"}
    assert "signature" in federation.server.roster.refused["000007"]
    assert list(side.survivors) == sorted(federation.parties)
    Checked(small, settings, side.layout).require_same(round_, sums)


def test_survivors_damaged_on_the_way_are_not_taken_for_others(small):
    """Without intention: the check shows it, before anybody signs."""

    def damaged(stage, name, data):
        if (stage, name) != ("trip 2", "000007"):
            return data
        return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]  # in the bit map of survivors

    settings = settings_of("secure signed")
    federation, side = prepared(small, settings, lambda inner: Faulty(inner, down=damaged))
    round_ = federation.server.coordinator.next_round()
    Checked(small, settings, side.layout).require_same(round_, side.sums(round_))
    assert set(federation.server.roster.refused) == {"000007"}
    assert "its check does not fit" in federation.server.roster.refused["000007"]


def test_a_server_that_shows_two_sets_of_survivors_gets_no_sum(tiny):
    """To half of the parties it says that somebody dropped out who did not."""
    held = []

    def tampered(stage, name, data):
        if stage != "trip 2" or int(name) < 6:
            return data
        return without_somebody(held[0].server.side.session.protocol.setup, name, data)

    settings = settings_of("secure signed")
    federation, side = begun(tiny, settings, lambda inner: Faulty(inner, down=tampered))
    held.append(federation)
    side.prepare()
    with pytest.raises(BelowThresholdError):
        side.sums(federation.server.coordinator.next_round())
    assert "signature" in " ".join(federation.server.roster.refused.values())


# What the server sees


def chi_square(vector):
    """Of the bytes, which in noise are all equally frequent; 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(vector.tobytes(), np.uint8), minlength=256)
    expected = counts.sum() / 256
    return np.sum((counts - expected) ** 2 / expected)


def test_the_server_sees_no_number_of_an_update(small):
    """The masked vector is noise; without masks the same test would show its many zeros."""
    settings = settings_of("secure")
    federation, side = prepared(small, settings, Recorded)
    round_ = federation.server.coordinator.next_round()
    side.sums(round_)
    session = side.session
    reply = federation.transport.inner.last("trip 1").received["000005"]
    trip, setup = open_trip(session.protocol.setup, 5, reply)
    masked = Masked.decode(setup, 5, trip.current).vector
    assert chi_square(masked) < 360  # p ~ 1e-5
    twin = Twins(small, settings).runs[5]
    bare = session.codec.ring.lower(
        session.codec.vector(twin.contribute(round_, session.codec, None, n_parties=60))
    )
    assert len(bare) == len(masked)
    assert chi_square(bare) > 10_000
    assert not np.isin(masked, bare[bare != 0]).any()


def test_all_vectors_have_one_length_whatever_their_parties_rated(small):
    federation, side = prepared(small, settings_of("secure"), Recorded)
    side.sums(federation.server.coordinator.next_round())
    for stage in ("trip 1", "trip 3"):
        received = federation.transport.inner.last(stage).received
        assert len({len(data) for data in received.values()}) == 1
    assert len(set(np.diff(small.by_user))) > 5


# Replays


def test_a_setup_replayed_is_refused(small):
    federation, side = begun(small, settings_of("secure"), Recorded)
    side.prepare()
    coordinator, recorded = federation.server.coordinator, federation.transport.inner
    round_ = coordinator.next_round()
    coordinator.advance(round_, side.sums(round_))
    setups = [seen.sent["000003"] for seen in recorded.seen if seen.stage == "set-up"]
    assert len(setups) == 3  # of the counts, of the moments, and of the rounds
    for setup in setups:
        refusal = read(federation.parties["000003"].answer(setup), (Refused,))
        assert "has begun before" in refusal.reason
    side.sums(coordinator.next_round())
    assert "000003" in side.survivors  # the session at hand goes on


def test_a_trip_replayed_is_refused_and_the_rounds_go_on(small):
    """Every message of two surveys and two rounds, once more: not even keys are made anew."""
    settings = settings_of("secure")
    federation, side = prepared(small, settings, Recorded)
    checked, coordinator = Checked(small, settings, side.layout), federation.server.coordinator
    for _ in range(2):
        round_ = coordinator.next_round()
        sums = side.sums(round_)
        checked.require_same(round_, sums)
        coordinator.advance(round_, sums)
    party, recorded = federation.parties["000003"], federation.transport.inner
    factors, n_refused = party.user_factors.copy(), 0
    replayed = [seen for seen in recorded.seen if seen.stage.startswith(("survey", "fill", "trip"))]
    for seen in replayed:
        again = read(party.answer(seen.sent["000003"]), (SecureTrip, Refused))
        is_cached = again.encode() == seen.received["000003"]  # the last messages may be repeated
        n_refused += isinstance(again, Refused)
        assert is_cached or isinstance(again, Refused)
    assert len(replayed) == 14
    assert n_refused >= 12
    assert np.array_equal(party.user_factors, factors)
    round_ = coordinator.next_round()
    checked.require_same(round_, side.sums(round_))
    assert list(side.survivors) == sorted(federation.parties)


def test_a_trip_with_something_else_to_sum_is_refused_once_it_was_answered(small):
    """A second answer under the same masks would show the difference of two updates."""
    federation, side = prepared(small, settings_of("secure"), Recorded)
    coordinator = federation.server.coordinator
    round_ = coordinator.next_round()
    side.sums(round_)
    party, recorded = federation.parties["000003"], federation.transport.inner
    (_,), frame = split_parcel(recorded.last("trip 1").sent["000003"])
    other = replace(round_, round=2).encode()
    trip = replace(SecureTrip.decode(frame), about=name_of(other))
    factors = party.user_factors.copy()
    answer = read(party.answer(parcel(trip, other)), (SecureTrip, Refused))
    assert "do not follow" in answer.reason
    assert np.array_equal(party.user_factors, factors)


# Layouts


def fresh(ratings, settings, **policy):
    """A party that has joined a run and adopted nothing; and the run."""
    run = prepare(ratings, settings)
    party = make_parties(ratings, settings, run.is_held_out, run.features.statistics)["000000"]
    party.policy = replace(party.policy, **policy)
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    return party, run


@pytest.mark.parametrize("variant", ["plain", "secure", "adaptive", "dp local"])
def test_a_party_refuses_a_second_and_different_layout_in_a_run(small, variant):
    party, run = fresh(small, settings_of(variant))
    layout = layout_for(small)
    assert isinstance(adopt(party, layout), Adopted)
    masks, factors = party.masks, party.user_factors.copy()
    others = [
        replace(layout, line=np.array([layout.line[0] + 0.5])),
        replace(layout, shrinkage=layout.shrinkage + 0.5),
        replace(layout, items=layout.items[:-1]),
        replace(layout, items=np.arange(small.n_items, dtype=np.int32)),
    ]
    for other in others:
        assert "has adopted another layout for this run" in adopt(party, other).reason
        assert party.run.layout.encode() == layout.encode()
        assert party.masks is masks
        assert np.array_equal(party.user_factors, factors)
    assert isinstance(adopt(party, layout), Adopted)  # the same again changes nothing
    assert party.masks is masks
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    assert isinstance(adopt(party, others[0]), Adopted)  # another run has another


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"line": np.zeros(0)}, "what users have in common has a level at least"),
        ({"line": np.array([3.0, 0.0])}, "what users have in common has 1 columns; got 2"),
        ({"line": np.array([np.nan])}, "all numbers must be finite"),
        ({"line": np.array([np.inf])}, "all numbers must be finite"),
        ({"shrinkage": 0.49}, "a shrinkage is in [0.5, 50]; got 0.49"),
        ({"shrinkage": 50.1}, "a shrinkage is in [0.5, 50]; got 50.1"),
        ({"shrinkage": 0.0}, "a shrinkage is in [0.5, 50]; got 0"),
        ({"shrinkage": np.nan}, "all numbers must be finite"),
        ({"items": np.array([0, 90])}, r"items must increase within [0, 90)"),
        ({"items": np.array([2**31 - 1])}, r"items must increase within [0, 90)"),
        ({"items": np.array([5, 3])}, "items must increase strictly"),
        ({"items": np.array([3, 3])}, "items must increase strictly"),
        ({"items": np.array([-1, 3])}, "items must increase strictly"),
        ({"items": np.zeros(0, np.int32)}, "at least one item is summed"),
    ],
)
def test_a_party_refuses_a_layout_off_the_limits_or_the_catalogue(small, changes, reason):
    party, _ = fresh(small, settings_of("secure"))
    answer = adopt(party, replace(layout_for(small), **changes))
    assert isinstance(answer, Refused)
    assert reason in answer.reason
    assert party.run.layout is None


@pytest.mark.parametrize(("level", "end"), [(1.0, 1.0), (0.99, 1.0), (5.01, 5.0), (1e6, 5.0)])
@pytest.mark.parametrize("shrinkage", [0.5, 50.0])
def test_a_line_off_the_scale_is_taken_for_the_end_of_the_scale(small, level, end, shrinkage):
    """By hand: masks `mean` are (y + shrinkage * end) / (n + shrinkage), y the sum of ratings."""
    party, run = fresh(small, settings_of("secure"))
    layout = replace(layout_for(small), line=np.array([level]), shrinkage=shrinkage)
    assert isinstance(adopt(party, layout), Adopted)
    mine = run.training.values[run.lists.of(0)]
    mask = (mine.sum() + shrinkage * end) / (len(mine) + shrinkage)
    np.testing.assert_allclose(party.masks.masked_ratings, mine - mask, atol=1e-5)


@pytest.mark.parametrize(
    ("columns", "is_agreed"), [(1, False), (17, True), (2, False), (18, False)]
)
def test_a_party_agrees_to_the_columns_of_its_charter_in_common(small, columns, is_agreed):
    """Else a server could choose whose sums of features it gets."""
    run = prepare(small, settings_of("secure", mask="lr"))
    assert run.plan.invitation().columns == 17
    party = make_parties(small, run.settings, run.is_held_out, run.features.statistics)["000000"]
    invitation = replace(run.plan.invitation(), columns=columns)
    answer = read(party.answer(invitation.encode()), (Joined, Refused))
    assert isinstance(answer, Joined) == is_agreed
    if not is_agreed:
        assert f"in common 17 by its charter; the server's invitation says {columns}." in (
            answer.reason
        )


def test_only_a_layout_is_adopted_and_a_layout_is_nothing_to_sum(small):
    party, _ = fresh(small, settings_of("plain"))
    survey, layout = Survey(False).encode(), layout_for(small).encode()
    answer = read(party.answer(parcel(Adopt(name_of(survey)), survey)), (Refused,))
    assert "is no layout" in answer.reason
    answer = read(party.answer(parcel(Ask(name_of(layout)), layout)), (Refused,))
    assert "a layout is nothing to sum" in answer.reason
    answer = read(party.answer(parcel(Finish(name_of(layout)), layout)), (Refused,))
    assert "a layout is nothing to sum" in answer.reason
    unknown = read(party.answer(Adopt(b"n" * 32).encode()), (Wanted,))
    assert unknown.name == b"n" * 32


@pytest.mark.parametrize("variant", ["plain", "secure", "adaptive", "dp local"])
def test_a_party_refuses_rounds_before_a_layout(small, variant):
    party, run = fresh(small, settings_of(variant))
    round_ = run.coordinator().next_round()
    last = run.coordinator().next_round(is_last=True)
    messages = [Finish] if variant == "secure" else [Ask, Finish]
    for message in messages:
        for work in (round_, last):
            frame = work.encode()
            answer = read(party.answer(parcel(message(name_of(frame)), frame)), (Refused,))
            assert answer.reason
            assert not party.is_finished
    if variant == "secure":
        setup = setup_among(60, layout=name_of(run.layout.encode()))
        assert "a layout that this party has not adopted" in said(party, setup).reason
    assert party.run.place == (0, 0, False)
    assert isinstance(adopt(party, run.layout), Adopted)
    if variant == "plain":
        frame = round_.encode()
        assert isinstance(read(party.answer(parcel(Ask(name_of(frame)), frame)), (Update,)), Update)


def test_a_party_refuses_a_survey_of_ratings_before_the_layout_of_that_run(small):
    """Also in a later run: the layout of the run before says nothing of this one."""
    settings = settings_of("plain", item_statistics=True, held_out=0.0)
    party, run = fresh(small, settings)
    frame = Survey(with_ratings=True).encode()
    question = parcel(Ask(name_of(frame)), frame)
    assert "needs a layout first" in read(party.answer(question), (Refused,)).reason
    adopt(party, layout_for(small))
    found = read(party.answer(question), (Update,))
    assert len(found.items) == np.isin(party.users.lists.items, layout_for(small).items).sum()
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    assert "needs a layout first" in read(party.answer(question), (Refused,)).reason


def test_a_setup_names_the_layout_that_was_adopted_and_no_other(small):
    party = joined(small, settings_of("secure"))["000000"]
    others = [
        name_of(replace(layout_for(small), line=np.array([3.5])).encode()),
        name_of(LAYOUTS[0].encode()),
        bytes(32),
    ]
    for other in others:
        for_rounds = said(party, setup_among(60, layout=other))
        assert "a layout that this party has not adopted" in for_rounds.reason
        if any(other):
            ratings = said(party, setup_among(60, layout=other, for_survey=True))
            assert "a layout that this party has not adopted" in ratings.reason
    assert isinstance(said(party, setup_among(60)), SecureAgreed)


def test_a_first_survey_has_no_layout_and_a_survey_of_ratings_has_one(small):
    """What is published has to be what the session was agreed on for."""
    settings = settings_of("secure", item_statistics=True, held_out=0.0, min_raters=1)
    for layout_first in (True, False):
        federation, side = begun(small, settings)
        if layout_first:
            side.prepare()
        lying = NO_NAME if layout_first else None

        def name(work, lying=lying, side=side):
            return NO_NAME if lying is not None else name_of(layout_for(small).encode())

        side._layout_name = name
        with pytest.raises(WireError):
            side.sum("survey", Survey(with_ratings=layout_first))
        reasons = set(federation.server.roster.refused.values())
        due = "something else than what is published" if layout_first else "another session"
        assert len(reasons) == 1
        assert due in reasons.pop()


def telling_two(stories, names):
    """A server that tells some parties of another layout, and agrees on the sums with them too.

    Each party is shown its own story in every message: layout, adoption and set-up.
    """
    first, second = (story.encode() for story in stories)

    def down(stage, name, data):
        if name not in names:
            return data
        if stage == "layout":
            return parcel(Adopt(name_of(second)), second)
        if stage == "set-up":
            setup = SecureSetup.decode(data)
            if setup.layout == name_of(first):
                return replace(setup, layout=name_of(second)).encode()
        return data

    return down


@pytest.mark.parametrize("change", ["line", "shrinkage"])
def test_parties_that_were_told_different_layouts_have_no_sum_in_common(tiny, change):
    """Their keys, masks and checks are bound to what they were told: the server gets noise.

    Not even messages of the two kinds of parties fit each other.
    """
    settings = settings_of("secure", min_raters=2)
    _, quiet = prepared(tiny, settings)
    layout = quiet.layout
    changes = {"line": np.array([3.0]), "shrinkage": 0.75}
    other = replace(layout, **{change: changes[change]})
    assert other.encode() != layout.encode()
    told = {f"{number:06}" for number in range(0, 12, 2)}
    down = telling_two((layout, other), told)
    federation, side = prepared(tiny, settings, lambda inner: Faulty(inner, down=down))
    for name, party in federation.parties.items():
        expected = (other if name in told else layout).encode()
        assert party.run.layout.encode() == expected
    with suppress(WireError):  # those who are left may be too few
        side.sums(federation.server.coordinator.next_round())
    assert not told & set(side.survivors)
    assert told <= set(federation.server.roster.refused)
    reasons = [federation.server.roster.refused[name] for name in told]
    assert all("another session" in reason or "refused" in reason for reason in reasons)


def test_masks_of_parties_that_were_told_different_layouts_do_not_cancel(tiny):
    """The binding itself, beneath all checks: a server that passed them on would get noise."""
    layouts = [replace(layout_for(tiny), line=np.array([level])) for level in (3.0, 3.0, 3.25)]
    pairs = [KeyPair.from_secret(bytes([number]) * 32) for number in (1, 2)]
    secret, ends = pairs[0].agree(pairs[1].public), [End(n, pairs[n].public) for n in (0, 1)]
    invitation, masks, bindings = prepare(tiny, settings_of("secure")).plan.invitation(), [], []
    for layout in layouts:
        party = make_parties(tiny, settings_of("secure"))["000000"]
        read(party.answer(invitation.encode()), (Joined,))
        adopt(party, layout)
        setup = setup_among(12, layout=name_of(layout.encode()))
        assert isinstance(said(party, setup), SecureAgreed)
        agreed = party.run.side.agreed.session.setup
        bindings.append((agreed.binding, agreed.graph_seed, agreed.context))
        seed = pair_seed(secret, agreed.context, *ends, b"a" * 32)
        masks.append(expand(seed, agreed.ring, 5000))
    assert bindings[0] == bindings[1]
    assert all(a != b for a, b in zip(bindings[0], bindings[2], strict=True))
    same, different = masks[0] - masks[1], masks[0] - masks[2]  # one adds, the other takes away
    assert not same.any()
    assert chi_square(different) < 360  # p ~ 1e-5
