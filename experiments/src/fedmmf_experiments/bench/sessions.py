"""One round of a session of secure sums among real clients: CPU seconds and bytes."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from fedmmf.aggregation.secure.messages import graph_of
from fedmmf.arrays import Array
from fedmmf.secagg import (
    SessionClient,
    SessionServer,
    SessionSize,
    Setup,
    least_threshold,
    public_identity,
)


@dataclass(frozen=True)
class SessionCost:
    """CPU seconds and bytes of a round; those of a party are a mean."""

    party_s: float
    server_s: float
    up_bytes: float
    down_bytes: float


def measure(size: SessionSize, threshold: int | None = None) -> SessionCost:
    """Run a session until it has made one sum; without a threshold, by the least that is safe."""
    secrets = [os.urandom(32) if size.active else None for _ in range(size.n)]
    setup = _setup(size, [secret for secret in secrets if secret], threshold)
    server = SessionServer(setup)
    clients = {
        party: SessionClient(setup, party, identity=secrets[party]) for party in range(size.n)
    }
    values = np.zeros(size.length, size.ring.dtype)
    for _ in range(2):  # the first round only fills the pipeline
        meter = SessionMeter(server)
        meter.round(clients, values)
    return SessionCost(
        meter.parties_s / size.n, meter.server_s, meter.up / size.n, meter.down / size.n
    )


@dataclass(frozen=True)
class SessionRow(SessionCost):
    """The cost of a session's round, with the graph that parties agree on."""

    signed: bool
    neighbours: int
    threshold: int


def both(parties: int, length: int, progress: Callable[[str, int, int], None]) -> list[SessionRow]:
    """Measure a round without signatures, and one with them."""
    rows = []
    for done, signed in enumerate((False, True)):
        progress("rounds", done, 2)
        degree, threshold = graph_of(parties, active=signed)
        cost = measure(SessionSize(parties, degree, length, active=signed), threshold)
        rows.append(
            SessionRow(**asdict(cost), signed=signed, neighbours=degree, threshold=threshold)
        )
    progress("rounds", 2, 2)
    return rows


def _setup(size: SessionSize, secrets: list[bytes], threshold: int | None) -> Setup:
    options: dict[str, Any] = {
        "neighbours": size.degree,
        "graph_seed": os.urandom(32),
        "active": size.active,
        "identities": tuple(map(public_identity, secrets)),
    }
    threshold = threshold or least_threshold(size.degree + 1, active=size.active)
    parties = tuple(range(size.n))
    return Setup(os.urandom(16), parties, threshold, size.length, size.ring, **options)


class SessionMeter:
    """Counts CPU seconds and bytes of a round."""

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self.parties_s = self.server_s = 0.0
        self.up = self.down = 0

    def round(self, clients: Mapping[int, SessionClient], values: Array) -> None:
        """Carry all trips of a round, in which every party has the same values."""
        server = self._server
        first = {party: partial(client.first, values=values) for party, client in clients.items()}
        self.trip(server.first, first)
        if server.setup.active:
            self.trip(server.check, {party: client.check for party, client in clients.items()})
        self.trip(server.second, {party: client.second for party, client in clients.items()})
        began = process_time()
        server.result()
        self.server_s += process_time() - began

    def trip(
        self, ask: Callable[[], dict[int, bytes]], answer: Mapping[int, Callable[[bytes], bytes]]
    ) -> None:
        """Carry one trip of messages to all parties and back, and count its cost."""
        began = process_time()
        messages = ask()
        asked = process_time()
        replies = {party: answer[party](data) for party, data in messages.items()}
        answered = process_time()
        for party, data in replies.items():
            self._server.receive(party, data)
        self.server_s += asked - began + process_time() - answered
        self.parties_s += answered - asked
        self.up += sum(map(len, replies.values()))
        self.down += sum(map(len, messages.values()))
