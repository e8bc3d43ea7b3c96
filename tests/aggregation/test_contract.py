"""What every way to sum has to do, with real parties and real messages."""

import numpy as np
import pytest

from fedmmf import coordinator, simulation, training, wire
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.aggregation.plain import Plain
from fedmmf.aggregation.secure import Secure
from fedmmf.config import Settings
from fedmmf.errors import WireError
from fedmmf.federation import make_parties
from fedmmf.secagg import BelowThresholdError, PolicyError
from fedmmf.transport import InProcess

SOLVERS = ["sgd", "vb"]


def plain(transport, names, ratings):
    return Plain(transport, names)


plain.sharing = "plain"


def secure(transport, names, ratings):
    return Secure(transport, names, ratings.scale.span)


def secure_graph(transport, names, ratings):
    return Secure(transport, names, ratings.scale.span, neighbours=20)


def signed(transport, names, ratings):
    identities = tuple(transport.parties[name].public_identity for name in names)
    return Secure(transport, names, ratings.scale.span, neighbours=20, identities=identities)


signed.signed = True
every_way = pytest.mark.parametrize("make", [plain, secure, secure_graph, signed])


def settings_of(solver, **changes):
    return Settings(mask="mean", solver=solver, factors=3, rounds=5, held_out=0.2, **changes)


def federation(ratings, settings, make, transport_class=InProcess):
    settings = settings.changed(
        sharing=getattr(make, "sharing", "strict"), signed=getattr(make, "signed", False)
    )
    parties = make_parties(ratings, settings, simulation.choose_held_out(ratings, settings))
    transport = transport_class(parties)
    return parties, make(transport, sorted(parties), ratings)


def federation_of_all(ratings, settings, make):
    """Nobody holds anything out."""
    parties = make_parties(ratings, settings)
    return parties, make(InProcess(parties), sorted(parties), ratings)


@every_way
@pytest.mark.parametrize("solver", SOLVERS)
def test_training_ends_where_the_simulation_ends(small, make, solver):
    settings = settings_of(solver, min_raters=1)  # nothing is suppressed without a survey
    _, participants = federation(small, settings, make)
    server = simulation.make_server(small, settings)
    coordinator.run(server, participants)
    (member,) = training.train(small, settings).members
    np.testing.assert_allclose(
        server.result.item_factors, member.public.item_factors, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(server.history, member.history, rtol=1e-4)


@pytest.mark.parametrize("make", [secure, secure_graph, signed])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_secure_sum_is_exactly_the_sum_of_fixed_point_updates(small, make, solver):
    settings = settings_of(solver)
    _, participants = federation(small, settings, make)
    in_clear = settings.changed(sharing="plain")
    twins = make_parties(small, in_clear, simulation.choose_held_out(small, settings))
    server = simulation.make_server(small, settings)
    for _ in range(3):
        message = server.next_message()
        sums = participants.sums(message)
        n_items, width = message.public.item_rows.shape
        n_totals = coordinator.n_update_totals(solver, message.public)
        layout = Layout(n_items, width, n_totals)
        codec = Bounds.of(solver, small.scale.span).codec(layout, solver, len(twins))
        total = np.zeros(layout.length, np.int64)
        for party in twins.values():
            answer = party.answer(message.encode())
            update = wire.Update.decode(answer, n_items=n_items, width=width, n_totals=n_totals)
            total += codec.quantize(layout.pack(update.items, update.rows, update.totals))
        expected = layout.unpack(total / codec.scale)
        assert np.array_equal(sums.rows, expected.rows)
        assert np.array_equal(sums.n_raters, expected.n_raters)
        assert np.array_equal(sums.totals, expected.totals)
        server.advance(message, sums)


class Lossy(InProcess):
    """Loses what some parties answer, by stage."""

    lost: dict[str, set[str]]

    def exchange(self, stage, messages, timeout):
        replies = super().exchange(stage, messages, timeout)
        for name in self.lost.get(stage, ()):
            replies.pop(name, None)
        return replies


@every_way
def test_who_does_not_answer_is_left_out_and_the_others_are_summed(small, make):
    gone = {"000003", "000041"}
    settings = settings_of("sgd")
    _, participants = federation(small, settings, make, Lossy)
    transport = participants.transport
    transport.lost = {}
    message = simulation.make_server(small, settings).next_message()
    if make is not plain:
        participants.sums(message)  # fills the pipeline with everybody
    transport.lost = {"round": gone, "trip 1": gone}
    sums = participants.sums(message)
    held_out = simulation.choose_held_out(small, settings)
    stayed = ~held_out & ~np.isin(small.user_codes, [3, 41])
    expected = np.bincount(small.item_codes[stayed], minlength=small.n_items)
    assert np.array_equal(sums.n_raters, expected)


def test_a_party_lost_while_unmasking_stays_in_the_sum(small):
    settings = settings_of("sgd")
    _, participants = federation(small, settings, secure, Lossy)
    participants.transport.lost = {}
    message = simulation.make_server(small, settings).next_message()
    everybody = participants.sums(message).n_raters
    participants.transport.lost = {"trip 3": {"000003"}}
    assert np.array_equal(participants.sums(message).n_raters, everybody)
    assert len(participants.survivors) == small.n_users


def test_below_the_threshold_a_round_gives_nothing(small):
    settings = settings_of("sgd")
    parties, participants = federation(small, settings, secure, Lossy)
    participants.transport.lost = {}
    message = simulation.make_server(small, settings).next_message()
    participants.sums(message)
    participants.transport.lost = {"trip 1": set(sorted(parties)[:35])}
    with pytest.raises(BelowThresholdError):
        participants.sums(message)


class Garbling(InProcess):
    """One party answers nonsense."""

    def exchange(self, stage, messages, timeout):
        replies = super().exchange(stage, messages, timeout)
        if stage == "trip 1" and "000007" in replies:
            replies["000007"] = b"nonsense" * 9
        return replies


def test_nonsense_counts_as_a_drop_out_and_is_named(small):
    settings = settings_of("sgd")
    _, participants = federation(small, settings, secure, Garbling)
    message = simulation.make_server(small, settings).next_message()
    sums = participants.sums(message)
    assert "malformed" in participants.refused["000007"]
    assert "000007" not in participants.survivors
    assert sums.n_raters.sum() > 0


def test_a_secure_survey_gives_the_item_statistics(small):
    settings = settings_of("sgd").changed(held_out=0.0)
    _, participants = federation_of_all(small, settings, secure)
    sums = participants.survey(small.n_items, with_ratings=True)
    expected = simulation.survey(small)
    assert np.array_equal(sums.n_raters, expected.n_raters)
    np.testing.assert_allclose(sums.rows, expected.rows, atol=1e-4)


def test_items_with_too_few_raters_are_left_out_after_a_survey(small):
    settings = settings_of("sgd").changed(held_out=0.0)
    counts = np.diff(small.by_item.indptr)
    limit = int(np.sort(counts)[5]) + 1  # some items fall below
    _, participants = federation_of_all(
        small, settings, lambda t, n, r: Secure(t, n, r.scale.span, min_raters=limit)
    )
    message = simulation.make_server(small, settings).next_message()
    assert np.array_equal(participants.sums(message).n_raters, counts)
    participants.survey(small.n_items, with_ratings=True)
    sums = participants.sums(message)
    rare = counts < limit
    assert rare.sum() >= 6
    assert not sums.n_raters[rare].any()
    assert not sums.rows[rare].any()
    assert np.array_equal(sums.n_raters[~rare], counts[~rare])


def test_a_party_refuses_a_setup_that_breaks_the_protocols_conditions(small):
    party = make_parties(small, settings_of("sgd"))["000000"]
    weak = wire.SecureSetup(b"s" * 16, b"g" * 32, 0, 60, 20, 0, "sgd", 90, 3, 2, 16.0, 1e4, 3)
    with pytest.raises(PolicyError, match="threshold"):
        party.answer(weak.encode())


def test_the_server_sees_no_number_of_an_update(small):
    """The masked vector, without the headers around it, is noise: mostly zeros would show."""
    settings = settings_of("sgd")

    class Recording(InProcess):
        seen: list[bytes]

        def exchange(self, stage, messages, timeout):
            replies = super().exchange(stage, messages, timeout)
            if stage == "trip 1":
                self.seen.append(replies["000005"])
            return replies

    _, participants = federation(small, settings, secure, Recording)
    participants.transport.seen = []
    message = simulation.make_server(small, settings).next_message()
    participants.sums(message)
    masked = np.frombuffer(participants.transport.seen[-1][-1300:-200], np.uint8)
    counts = np.bincount(masked, minlength=256)
    expected = len(masked) / 256
    assert np.sum((counts - expected) ** 2 / expected) < 360  # chi-square, 255 degrees, p ~ 1e-5


def signing_parties(small):
    return make_parties(small, settings_of("sgd", signed=True))


def setup_with(parties, identities, number=0):
    sizes = (60, 42, 0, "sgd", 90, 3, 2, 16.0, 1e4, 3)
    return wire.SecureSetup(b"s" * 16, b"g" * 32, number, *sizes, identities=identities).encode()


def test_a_party_that_signs_refuses_strangers_and_sums_without_signatures(small):
    parties = signing_parties(small)
    party = parties["000000"]
    known = tuple(parties[name].public_identity for name in sorted(parties))
    party.answer(setup_with(parties, known))
    with pytest.raises(WireError, match="only in sums whose parties all sign"):
        party.answer(setup_with(parties, ()))
    with pytest.raises(WireError, match="1 of the identities belong to nobody"):
        party.answer(setup_with(parties, (*known[:-1], b"x" * 32)))
    with pytest.raises(WireError, match="gives this party's number another identity"):
        party.answer(setup_with(parties, known, number=1))
    with pytest.raises(WireError, match="no identity to sign with"):
        make_parties(small, settings_of("sgd"))["000000"].answer(setup_with(parties, known))


class Tampering(InProcess):
    """Somebody on the way tells one party about fewer survivors than the others."""

    def exchange(self, stage, messages, timeout):
        if stage == "trip 2" and messages:
            data = bytearray(messages["000007"])
            data[-8] ^= 1  # the bit map of survivors
            messages = {**messages, "000007": bytes(data)}
        return super().exchange(stage, messages, timeout)


def test_who_was_told_of_other_survivors_has_no_say_in_unmasking(small):
    settings = settings_of("sgd")
    _, participants = federation(small, settings, signed, Tampering)
    sums = participants.sums(simulation.make_server(small, settings).next_message())
    assert "signature" in participants.refused["000007"]
    held_out = simulation.choose_held_out(small, settings)
    assert np.array_equal(
        sums.n_raters, np.bincount(small.item_codes[~held_out], minlength=small.n_items)
    )
