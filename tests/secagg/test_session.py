"""Rounds in a pipeline: two round trips each, fresh keys, parties that come and go."""

from dataclasses import replace
from functools import partial

import pytest
from fuzz import picture
from oracle import entropy_from, identity_of, make_setup, make_values, plain_sum

from fedmmf.secagg import (
    BelowThresholdError,
    PolicyError,
    Receipt,
    RoundError,
    SecAggError,
    SessionClient,
    SessionServer,
)
from fedmmf.secagg.session import Trip, setup_of


def make_session(**options):
    setup = make_setup(round_id=b"session", **options)
    clients = {
        party: SessionClient(
            setup,
            party,
            entropy=entropy_from(f"session {party}"),
            identity=identity_of(party) if setup.active else None,
        )
        for party in setup.parties
    }
    return setup, SessionServer(setup), clients


def run_round(server, clients, values, first_gone=(), second_gone=()):
    """Run one round; the parties named miss its first or its second trip."""
    trips = 0
    for trip in ("first", "check", "second"):
        if trip == "check" and not server.setup.active:
            continue
        gone = {*first_gone, *(second_gone if trip == "second" else ())}
        trips += 1
        for party, data in getattr(server, trip)().items():
            if party not in gone:
                more = (values[party],) if trip == "first" else ()
                server.receive(party, getattr(clients[party], trip)(data, *more))
    return server.result(), trips


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("neighbours", [None, 6])
def test_rounds_follow_each_other_with_parties_coming_and_going(active, neighbours):
    setup, server, clients = make_session(n=9, active=active, neighbours=neighbours)
    a, b = setup.parties[2], setup.parties[7]
    assert run_round(server, clients, make_values(setup))[0] is None  # round 0: keys only
    history = [
        ((), (), ()),
        ((a,), (), (a,)),  # drops out with its masks in use
        ((), (), (a,)),  # is invited again, and takes part in the next
        ((), (b,), ()),  # its vector counts; it did not share keys for the next
        ((), (), (b,)),
        ((), (), ()),
    ]
    for number, (first_gone, second_gone, missing) in enumerate(history, 1):
        values = make_values(setup, f"round {number}")
        total, trips = run_round(server, clients, values, first_gone, second_gone)
        alive = tuple(p for p in setup.parties if p not in missing)
        assert trips == (3 if active else 2)
        assert server.survivors == alive, number
        assert total.tolist() == plain_sum(setup, values, alive), number


def test_a_round_below_its_threshold_is_aborted_and_the_pipeline_recovers():
    setup, server, clients = make_session(n=5)
    values = make_values(setup)
    run_round(server, clients, values)
    with pytest.raises(BelowThresholdError, match="masked input"):
        run_round(server, clients, values, setup.parties[:3])
    with pytest.raises(BelowThresholdError, match="advertise"):  # two had advertised
        run_round(server, clients, values)
    total, _ = run_round(server, clients, values)
    assert total.tolist() == plain_sum(setup, values, setup.parties)


def test_replays_and_late_answers_have_a_defined_answer():
    setup, server, clients = make_session(n=5)
    values = make_values(setup)
    run_round(server, clients, values)
    sent = server.first()
    replies = {p: clients[p].first(data, values[p]) for p, data in sent.items()}
    for party in setup.parties[:4]:
        server.receive(party, replies[party])
    with pytest.raises(SecAggError, match="duplicate"):
        server.receive(setup.parties[0], replies[setup.parties[0]])
    with pytest.raises(SecAggError, match="do not follow"):
        clients[1].first(sent[1], values[1])
    with pytest.raises(SecAggError, match="trip 3 was asked for"):
        clients[1].second(sent[1])
    with pytest.raises(RoundError, match="does not follow"):
        server.result()
    second = server.second()
    assert server.receive(setup.parties[4], replies[setup.parties[4]]) is Receipt.LATE
    for party in setup.parties[:4]:
        server.receive(party, clients[party].second(second[party]))
    assert server.result().tolist() == plain_sum(setup, values, setup.parties[:4])
    server.first()
    ahead = clients[1].first(Trip(1, 9).encode(setup), values[1])
    with pytest.raises(SecAggError, match="out of turn"):
        server.receive(1, ahead)


def test_keys_are_fresh_in_every_round():
    setup, server, clients = make_session(n=4)
    values, seen = make_values(setup), set()
    for _ in range(3):
        sent = server.first()
        replies = {p: clients[p].first(data, values[p]) for p, data in sent.items()}
        advertised = {reply[-64:] for reply in replies.values()}
        assert not advertised & seen
        seen |= advertised
        for party, data in replies.items():
            server.receive(party, data)
        for party, data in server.second().items():
            server.receive(party, clients[party].second(data))
        server.result()


@pytest.mark.parametrize("part", ["current", "following"])
def test_a_message_with_one_bad_part_is_refused_whole_by_both_sides(part):
    setup, server, clients = make_session(n=5)
    values = make_values(setup)
    run_round(server, clients, values)

    def spoiled(data):
        message = Trip.decode(setup, 1, data)
        return replace(message, **{part: getattr(message, part)[:-1]}).encode(setup)

    def refused(machine, call, data):
        before = picture(machine)
        with pytest.raises(SecAggError):
            call(data)
        assert picture(machine) == before

    for party, data in server.first().items():
        server.receive(party, clients[party].first(data, values[party]))
    for party, data in server.second().items():
        refused(clients[party], clients[party].second, spoiled(data))
        reply = clients[party].second(data)
        refused(server, partial(server.receive, party), spoiled(reply))
        server.receive(party, reply)
    assert server.result().tolist() == plain_sum(setup, values, setup.parties)


def test_numbers_of_rounds_and_names_of_sessions_have_an_end():
    setup, _, clients = make_session(n=4)
    values, last = make_values(setup)[1], 2**32 - 1
    with pytest.raises(SecAggError, match=f"round {last} leaves no number"):
        clients[1].first(Trip(1, last).encode(setup), values)
    clients[1].first(Trip(1, last - 1).encode(setup), values)
    with pytest.raises(PolicyError, match=f"rounds up to {last}"):
        setup_of(setup, last + 1)
    long = make_setup(n=4, round_id=bytes(61))
    for make in (SessionServer, lambda setup: SessionClient(setup, 1)):
        with pytest.raises(PolicyError, match="at most 60 bytes; got 61"):
            make(long)
    run_round(SessionServer(make_setup(n=4, round_id=bytes(60))), {}, {}, setup.parties)


def test_parts_where_none_belong_are_refused():
    setup, server, clients = make_session(n=4)
    server.first()
    with pytest.raises(SecAggError, match="round 0 sums nothing"):
        server.receive(1, Trip(1, 0, b"something").encode(setup))
    with pytest.raises(SecAggError, match="not in the cohort"):
        server.receive(2, Trip(1, 0).encode(setup))
    with pytest.raises(SecAggError, match="only the second trip"):
        clients[1].first(Trip(1, 0, b"", b"something").encode(setup), make_values(setup)[1])
