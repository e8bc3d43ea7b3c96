"""Bytes of a session by arithmetic are those of real sessions, to the byte."""

import pytest
from oracle import identity_of, make_setup, make_values

from fedmmf.secagg import (
    RING32,
    RING64,
    PolicyError,
    SessionClient,
    SessionServer,
    SessionSize,
    session_bytes,
)
from fedmmf.secagg.sizes import check_trip, first_trip, second_trip, signatures_down

SHAPES = [
    (4, 3), (5, 4), (7, 2), (8, 2), (8, 3), (9, 4), (9, 6), (10, 3), (12, 5), (14, 5), (16, 4),
    (17, 4), (20, 7), (21, 4), (26, 3), (30, 6),
]  # fmt: skip


def run_sessions(setup):
    """Return, per trip of round 2, the bytes up and down of each party."""
    server, trips = SessionServer(setup), ("first", "check", "second")
    clients = {
        party: SessionClient(setup, party, identity=identity_of(party) if setup.active else None)
        for party in setup.parties
    }
    values, found = make_values(setup), {}
    for _ in range(3):
        for trip in trips if setup.active else trips[::2]:
            found[trip] = {}
            for party, data in getattr(server, trip)().items():
                more = (values[party],) if trip == "first" else ()
                reply = getattr(clients[party], trip)(data, *more)
                found[trip][party] = len(reply), len(data)
                server.receive(party, reply)
        server.result()
    return found


@pytest.mark.parametrize("active", [False, True], ids=["passive", "active"])
@pytest.mark.parametrize("ring", [RING32, RING64], ids=lambda ring: ring.name)
@pytest.mark.parametrize(("n", "degree"), SHAPES)
def test_sizes_are_those_of_real_sessions_for_every_party(n, degree, ring, active):
    length = n + degree
    neighbours = None if degree == n - 1 else degree
    setup = make_setup(
        n, length=length, ring=ring, active=active, neighbours=neighbours, graph_seed=b"sizes"
    )
    size = SessionSize(n, degree, length, ring, active)
    expected = {"first": first_trip(size), "second": second_trip(size)}
    if active:
        expected["check"] = check_trip(size)
    found = run_sessions(setup)
    for trip, by_party in found.items():
        assert set(by_party) == set(setup.parties)
        assert set(by_party.values()) == {expected[trip]}, trip
    one = [by_party[setup.parties[0]] for by_party in found.values()]
    assert session_bytes(size) == tuple(map(sum, zip(*one, strict=True)))


def test_signatures_come_from_everybody_at_most_two_edges_away():
    for n in range(3, 60):
        for degree in range(2, n):
            if n * degree % 2:
                continue
            half, odd = divmod(degree, 2)
            one = {*range(-half, half + 1)} | ({n // 2} if odd else set())
            reached = {(a + b) % n for a in one for b in one}
            assert signatures_down(SessionSize(n, degree, 1, active=True)) == len(reached) - 1
            assert signatures_down(SessionSize(n, degree, 1)) == 0


def test_sizes_that_no_session_has_are_refused():
    for wrong, reason in (
        ((5, 1, 3), r"degree must be in \[2, 4\]; got 1"),
        ((5, 5, 3), "degree must be in"),
        ((5, 3, 3), "even"),
        ((5, 4, 0), "length must be at least 1; got 0"),
    ):
        with pytest.raises(PolicyError, match=reason):
            SessionSize(*wrong)
