"""Secure sums among real parties: exact, silent about single updates, and refused where unsafe."""

from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.errors import DataError
from fedmmf.secagg import BelowThresholdError, FixedPoint, ring_named
from fedmmf.secagg.messages import Masked
from fedmmf.secagg.session import Trip, setup_of
from fedmmf.simulation import prepare
from fedmmf.simulation.features import surveyed
from fedmmf.simulation.federation import make_parties
from fedmmf.solvers import SOLVERS
from fedmmf.sums.secure.messages import SecureAgreed, SecureSetup, SecureTrip
from fedmmf.sums.secure.server import SecureOptions, SecureServer
from fedmmf.transports.wrappers import Faulty, Recorded
from fedmmf.wire import Joined, Refused, name_of, parcel, read, split_parcel

COMPLETE, SPARSE, SAFE = (59, 31), (20, 11), None


def begun(ratings, settings, wrap=lambda transport: transport, options=None):
    """A federation whose parties have joined, without a survey; and its server's side."""
    federation = federation_of(ratings, settings, wrap)
    side = federation.server.invite()
    if options is not None:
        side = federation.server._side = SecureServer(side.desk, options=options)
    return federation, side


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

    def __init__(self, ratings, settings):
        run = prepare(ratings, settings)
        self._plan, self._solver = run.plan, SOLVERS[settings.solver]
        parties = make_parties(ratings, settings, run.is_held_out, run.features)
        invitation = run.plan.invitation().encode()
        for party in parties.values():
            read(party.answer(invitation), (Joined,))
        self._runs = [party._run for party in parties.values()]

    def fixed_point_sums(self, round_, left_out):
        """The obvious way: everybody's numbers bounded, rounded, and added as integers."""
        n, ring = len(self._runs), ring_named(self._solver.ring)
        bounds = self._solver.bounds(self._plan.catalogue.scale.span)
        of_rows, of_totals = (FixedPoint(n, bound, ring) for bound in (bounds.row, bounds.total))
        rows = np.zeros(round_.item_rows.shape, np.int64)
        n_raters, totals = np.zeros(len(rows), np.int64), 0
        for run in self._runs:
            part = run.contribute(round_, None, None, n_parties=n)
            rows[part.items] += of_rows.quantize(part.rows)
            n_raters[part.items] += part.counts
            totals += of_totals.quantize(part.totals)
        rows[left_out], n_raters[left_out] = 0, 0
        return (rows / of_rows.scale).astype(np.float32), n_raters, totals / of_totals.scale


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize(
    ("variant", "graph"),
    [("secure", SAFE), ("secure", COMPLETE), ("secure", SPARSE), ("secure signed", SAFE)],
    ids=["as few neighbours as are safe", "complete", "sparse", "signed"],
)
def test_a_secure_sum_is_exactly_the_sum_of_fixed_point_updates(small, variant, graph, solver):
    settings = settings_of(variant, solver=solver)
    federation, side = begun(small, settings, options=SecureOptions(neighbours=graph))
    side.prepare()
    counts = counts_of(small, settings)
    rare = (counts > 0) & (counts < settings.min_raters)
    twins, coordinator = Twins(small, settings), federation.server.coordinator
    for _ in range(3):
        round_ = coordinator.next_round()
        sums = side.sums(round_)
        rows, n_raters, totals = twins.fixed_point_sums(round_, rare)
        assert np.array_equal(sums.rows, rows)
        assert np.array_equal(sums.n_raters, n_raters)
        assert np.array_equal(sums.totals, totals)
        coordinator.advance(round_, sums)


# Who is in it


def test_a_party_lost_while_unmasking_stays_in_the_sum(small):
    settings = settings_of("secure")
    lost = losing("trip 3", {"000003", "000041"})
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=lost))
    sums = side.sums(federation.server.coordinator.next_round())
    assert np.array_equal(sums.n_raters, counts_of(small, settings))
    assert list(side.survivors) == sorted(federation.parties)
    assert set(federation.server.roster.refused) == {"000003", "000041"}


def test_a_party_lost_before_it_sent_its_vector_is_not_in_the_sum(small):
    settings = settings_of("secure")
    lost = losing("trip 1", {"000003", "000041"})
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=lost))
    sums = side.sums(federation.server.coordinator.next_round())
    assert np.array_equal(sums.n_raters, counts_of(small, settings, without=[3, 41]))
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
    federation, side = begun(
        small, settings, lambda inner: Faulty(Recorded(inner), up=OneBadRound(56))
    )
    coordinator, recorded = federation.server.coordinator, federation.transport.inner.inner
    first = coordinator.next_round()
    coordinator.advance(first, side.sums(first))
    bad = coordinator.next_round()
    with pytest.raises(BelowThresholdError):
        side.sums(bad)
    assert side.survivors == ()
    assert len(sessions(recorded)) == 1
    coordinator.lose(bad, BelowThresholdError("trip 1", 4, 8))
    sums = side.sums(coordinator.next_round())
    assert len(sessions(recorded)) == 2  # never again with the same masks
    assert np.array_equal(sums.n_raters, counts_of(small, settings))


def sessions(recorded):
    """Names of the sessions that were set up."""
    setups = [exchange.sent["000000"] for exchange in recorded.seen if exchange.stage == "set-up"]
    return {SecureSetup.decode(setup).session for setup in setups}


def test_training_survives_a_round_without_a_sum(small):
    settings = settings_of("secure", rounds=4)
    federation = federation_of(small, settings, lambda inner: Faulty(inner, up=OneBadRound(56)))
    member = federation.run()
    assert np.array_equal(np.isnan(member.history), [False, True, False, False])
    assert np.isfinite(member.public.item_factors).all()


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
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=damaged))
    sums = side.sums(federation.server.coordinator.next_round())
    assert reason in federation.server.roster.refused["000007"]
    assert set(federation.server.roster.refused) == {"000007"}
    assert "000007" not in side.survivors
    assert np.array_equal(sums.n_raters, counts_of(small, settings, without=[7]))


class OneVectorSpoilt:
    """Once, half a ring is added to an entry of somebody's masked vector; nothing else changes."""

    def __init__(self, federation_of_one):
        self._federation, self._is_done = federation_of_one, False

    def __call__(self, stage, name, data):
        if self._is_done or (stage, name) != ("trip 1", "000007"):
            return data
        self._is_done = True
        protocol = self._federation[0].server.side._session.protocol
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
    coordinator = federation.server.coordinator
    bad = coordinator.next_round()
    with pytest.raises(DataError, match="honest users can reach"):
        side.sums(bad)
    assert side.survivors == ()
    coordinator.lose(bad, DataError("it was too large"))
    assert np.array_equal(side.sums(coordinator.next_round()).n_raters, counts_of(small, settings))


class OneByOne:
    """At every set-up, one more party refuses."""

    def __init__(self, n):
        self._left = [f"{number:06}" for number in range(n)]

    def __call__(self, stage, name, data):
        if stage != "set-up" or self._left[:1] != [name]:
            return data
        self._left.pop(0)
        return Refused("not with these").encode()


def test_parties_that_refuse_one_after_the_other_keep_nobody_else_from_a_sum(small):
    settings = settings_of("secure")
    federation, side = begun(small, settings, lambda inner: Faulty(inner, up=OneByOne(5)))
    sums = side.sums(federation.server.coordinator.next_round())
    assert np.array_equal(sums.n_raters, counts_of(small, settings, without=range(5)))
    assert set(federation.server.roster.refused) == {f"{number:06}" for number in range(5)}


def test_too_few_parties_for_a_sum_are_said_to_be_so(small):
    settings = settings_of("secure")
    federation, side = begun(
        small, settings, lambda inner: Faulty(inner, up=losing("set-up", sorted_names(58)))
    )
    with pytest.raises(BelowThresholdError, match="set-up': 2 parties answered, at least 3"):
        side.sums(federation.server.coordinator.next_round())


def sorted_names(n):
    return {f"{number:06}" for number in range(n)}


# The survey, and rare items


def test_a_secure_survey_gives_the_item_statistics(small):
    _, side = begun(small, settings_of("secure", held_out=0.0))
    sums, expected = side.survey(with_ratings=True), surveyed(small)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-4)
    assert np.abs(expected.rows).max() > 1


def test_a_survey_without_ratings_gives_the_counts_alone(small):
    _, side = begun(small, settings_of("secure", held_out=0.0))
    sums = side.survey(with_ratings=False)
    assert np.array_equal(sums.n_raters, surveyed(small).n_raters)
    assert not sums.rows.any()


def test_items_with_too_few_raters_are_left_out_after_a_survey(small):
    counts = np.diff(small.by_item.indptr)
    limit = int(np.sort(counts)[5]) + 1  # some items fall below
    settings = settings_of("secure", held_out=0.0, min_raters=limit)
    federation, side = begun(small, settings)
    coordinator = federation.server.coordinator
    assert np.array_equal(side.survey(with_ratings=True).n_raters, counts)
    sums = side.sums(coordinator.next_round())
    rare = counts < limit
    assert rare.sum() >= 6
    assert not sums.n_raters[rare].any()
    assert not sums.rows[rare].any()
    assert np.array_equal(sums.n_raters[~rare], counts[~rare])
    assert sums.rows[~rare].any(axis=1).all()


# What a party agrees to


def joined(ratings, settings, minimum=3):
    """Parties that have joined a run, and want at least so many in a sum."""
    run = prepare(ratings, settings)
    parties = make_parties(ratings, settings, run.is_held_out, run.features)
    invitation = replace(run.plan.invitation(), minimum=minimum).encode()
    for party in parties.values():
        party.policy = replace(party.policy, smallest_cohort=minimum)
        read(party.answer(invitation), (Joined,))
    return parties


def setup_among(n, **changes):
    """A set-up of n parties in which nothing is wrong, but for the changes."""
    values = {
        "session": b"s" * 16,
        "graph_seed": b"g" * 32,
        "for_survey": False,
        "party": 0,
        "n_parties": n,
        "n_users": n,
        "threshold": 2 * n // 3 + 1,
        "neighbours": 0,
        "minimum": 3,
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
        ({"threshold": 30}, "threshold must exceed 1/2 of the 60 holders"),
        ({"threshold": 61}, "threshold must be in"),
        ({"neighbours": 20, "threshold": 10}, "threshold must exceed 1/2 of the 21 holders"),
        ({"neighbours": 1}, "neighbours must be in"),
        ({"neighbours": 60}, "neighbours must be in"),
        ({"n_parties": 59, "neighbours": 19, "threshold": 18}, "neighbours must be even"),
        ({"n_parties": 2, "threshold": 2}, "at least 3 parties; the server sums 2"),
        ({"minimum": 2}, "at least 3 parties; the server sums 60, and as few as 2"),
        ({"minimum": 61}, "must have at least 61 parties"),
        ({"party": 60}, "party 60 is not one of 60"),
        ({"n_users": 59}, "60 parties have 59 users"),
        ({"n_users": 2**31}, "60 parties have 2147483648 users"),
        ({"left_out": np.array([90])}, "items must increase within"),
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
        "exceed 2/3 (active) of the 12 holders": {"identities": known, "threshold": 8},
    }
    for reason, changes in wrong.items():
        assert reason in said(parties["000000"], setup_among(12, **changes)).reason
    assert isinstance(said(parties["000000"], setup_among(12, identities=known)), SecureAgreed)
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
    settings, identities = settings_of("secure signed"), {}

    def claiming(stage, name, data):
        if stage != "invite":
            return data
        identities[name] = Joined.decode(data).identity
        wrong = identities["000000"] if claimed else b""
        return replace(Joined.decode(data), identity=wrong).encode() if name == "000005" else data

    federation, side = begun(tiny, settings, lambda inner: Faulty(inner, up=claiming))
    sums = side.sums(federation.server.coordinator.next_round())
    assert "identity of its own" in federation.server.roster.refused["000005"]
    assert np.array_equal(sums.n_raters, counts_of(tiny, settings, without=[5]))


def test_who_was_told_of_other_survivors_has_no_say_in_unmasking(small):
    """Somebody on the way tells one party of fewer survivors than the others."""

    def tampered(stage, name, data):
        if (stage, name) != ("trip 2", "000007"):
            return data
        return data[:-8] + bytes([data[-8] ^ 1]) + data[-7:]  # in the bit map of survivors

    settings = settings_of("secure signed")
    federation, side = begun(small, settings, lambda inner: Faulty(inner, down=tampered))
    sums = side.sums(federation.server.coordinator.next_round())
    assert set(federation.server.roster.refused) == {"000007"}
    assert "signature" in federation.server.roster.refused["000007"]
    assert np.array_equal(sums.n_raters, counts_of(small, settings))


def test_a_server_that_shows_two_sets_of_survivors_gets_no_sum(tiny):
    """To half of the parties it says that somebody dropped out who did not."""

    def tampered(stage, name, data):
        if stage != "trip 2" or int(name) < 6:
            return data
        return data[:-2] + bytes([data[-2] ^ 1]) + data[-1:]

    settings = settings_of("secure signed")
    federation, side = begun(tiny, settings, lambda inner: Faulty(inner, down=tampered))
    with pytest.raises(BelowThresholdError):
        side.sums(federation.server.coordinator.next_round())


# What the server sees


def chi_square(vector):
    """Of the bytes, which in noise are all equally frequent; 255 degrees of freedom."""
    counts = np.bincount(np.frombuffer(vector.tobytes(), np.uint8), minlength=256)
    expected = counts.sum() / 256
    return np.sum((counts - expected) ** 2 / expected)


def test_the_server_sees_no_number_of_an_update(small):
    """The masked vector is noise; without masks the same test would show its many zeros."""
    settings = settings_of("secure")
    federation, side = begun(small, settings, Recorded)
    round_ = federation.server.coordinator.next_round()
    side.sums(round_)
    session = side._session
    reply = federation.transport.inner.last("trip 1").received["000005"]
    trip, setup = open_trip(session.protocol.setup, 5, reply)
    masked = Masked.decode(setup, 5, trip.current).vector
    assert chi_square(masked) < 360  # p ~ 1e-5
    twin = Twins(small, settings)._runs[5]
    bare = session.codec.ring.lower(
        session.codec.vector(twin.contribute(round_, session.codec, None, n_parties=60))
    )
    assert len(bare) == len(masked)
    assert chi_square(bare) > 10_000
    assert not np.isin(masked, bare[bare != 0]).any()


def test_all_vectors_have_one_length_whatever_their_parties_rated(small):
    federation, side = begun(small, settings_of("secure"), Recorded)
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
    assert len(setups) == 2  # of the survey, and of the rounds
    for setup in setups:
        refusal = read(federation.parties["000003"].answer(setup), (Refused,))
        assert "has begun before" in refusal.reason
    side.sums(coordinator.next_round())
    assert "000003" in side.survivors  # the session at hand goes on


def test_a_trip_replayed_is_refused_and_the_rounds_go_on(small):
    """Every message of two rounds, once more, after both: not even keys are made anew."""
    settings = settings_of("secure")
    federation, side = begun(small, settings, Recorded)
    coordinator = federation.server.coordinator
    for _ in range(2):
        round_ = coordinator.next_round()
        coordinator.advance(round_, side.sums(round_))
    party, recorded = federation.parties["000003"], federation.transport.inner
    factors, n_refused = party.user_factors.copy(), 0
    replayed = [seen for seen in recorded.seen if seen.stage.startswith(("fill", "trip"))]
    for seen in replayed:
        again = read(party.answer(seen.sent["000003"]), (SecureTrip, Refused))
        is_cached = again.encode() == seen.received["000003"]  # the last messages may be repeated
        n_refused += isinstance(again, Refused)
        assert is_cached or isinstance(again, Refused)
    assert len(replayed) == 6
    assert n_refused >= 4
    assert np.array_equal(party.user_factors, factors)
    sums = side.sums(coordinator.next_round())
    assert list(side.survivors) == sorted(federation.parties)
    assert np.array_equal(sums.n_raters, counts_of(small, settings))


def test_a_trip_with_something_else_to_sum_is_refused_once_it_was_answered(small):
    """A second answer under the same masks would show the difference of two updates."""
    federation, side = begun(small, settings_of("secure"), Recorded)
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
