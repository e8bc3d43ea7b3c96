"""What a round of secure sums costs: measured between real clients, and a model of it.

A simulation makes secure sums without the protocol, so it says what the protocol would have cost:
bytes as they are, CPU seconds by a linear model fitted to measurements, in `costs.json`
(`python benchmarks/costs.py` writes it). A party's work is keys and shares, by neighbours; its own
vector, by length; masks, by both; and signatures to check. The server's work for each party is the
same but for the pairwise masks, which it needs for drop-outs alone.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from time import process_time
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import (
    RING32,
    Ring,
    SessionClient,
    SessionServer,
    Setup,
    least_threshold,
    public_identity,
)


@dataclass(frozen=True)
class Cost:
    """Of one round: CPU seconds, and the bytes of one party besides the round's own message."""

    party_s: float
    server_s: float
    up_bytes: float
    down_bytes: float


@dataclass(frozen=True)
class Size:
    """What decides a cost."""

    n_parties: int
    neighbours: int
    length: int
    ring: Ring = RING32
    signed: bool = False

    @property
    def n_signatures(self) -> int:
        """How many a party checks: of the neighbours' neighbours, as far as there are so many."""
        return min(2 * self.neighbours, self.n_parties - 1) * self.signed

    def party_features(self) -> list[float]:
        """1, neighbours, megabytes of the vector, signatures, megabytes of all masks."""
        megabytes = 1e-6 * self.length * self.ring.width
        masks = megabytes * self.neighbours
        return [1.0, self.neighbours, megabytes, self.n_signatures, masks]

    def server_features(self) -> list[float]:
        """The same without pairwise masks, for every party."""
        return [self.n_parties * feature for feature in self.party_features()[:4]]

    def byte_features(self) -> list[float]:
        """1, neighbours, signatures, and bytes of a set of parties, a bit for each."""
        return [1.0, self.neighbours, self.n_signatures, math.ceil(self.n_parties / 8)]


def secure_cost(size: Size) -> Cost:
    """Cost of one round, nobody dropping out: bytes as they are, seconds by the model."""
    model = json.loads(resources.files("fedmmf.aggregation").joinpath("costs.json").read_text())
    party_s = float(np.dot(model["party_s"], size.party_features()))
    server_s = float(np.dot(model["server_s"], size.server_features()))
    return Cost(party_s, server_s, *_bytes(size))


def fit(measured: Sequence[tuple[Size, Cost]]) -> dict[str, list[float]]:
    """Coefficients of the model: least squares of the relative errors, none of them negative."""
    from scipy.optimize import nnls

    found = {}
    for side in ("party", "server"):
        seconds = np.array([getattr(cost, f"{side}_s") for _, cost in measured])
        features = np.array([getattr(size, f"{side}_features")() for size, _ in measured])
        found[f"{side}_s"] = nnls(features / seconds[:, np.newaxis], np.ones(len(seconds)))[0]
    return {name: values.tolist() for name, values in found.items()}


def _bytes(size: Size) -> tuple[float, float]:
    """Bytes up and down: linear in a few numbers, so that some small sessions tell them all."""
    up, down = np.rint(np.array(size.byte_features()) @ _byte_coefficients(size.signed))
    return float(up) + size.length * size.ring.width, float(down)


@cache
def _byte_coefficients(signed: bool) -> Array:
    """Bytes up, without the vector, and down, by feature. (4, 2)."""
    sizes = [Size(n, k, 1, RING32, signed) for n, k in ((6, 2), (6, 4), (6, 5), (24, 2), (24, 4))]
    found = [measure(size) for size in sizes]
    sizes_up = [(cost.up_bytes - RING32.width, cost.down_bytes) for cost in found]
    features = np.array([size.byte_features() for size in sizes])
    return np.asarray(np.linalg.lstsq(features, np.array(sizes_up), rcond=None)[0])


def measure(size: Size) -> Cost:
    """Run a session of real clients until it has made one sum."""
    secrets = [os.urandom(32) if size.signed else None for _ in range(size.n_parties)]
    options: dict[str, Any] = {
        "neighbours": size.neighbours,
        "graph_seed": os.urandom(32),
        "active": size.signed,
        "identities": tuple(public_identity(secret) for secret in secrets if secret),
    }
    parties = tuple(range(size.n_parties))
    threshold = least_threshold(size.neighbours + 1, active=size.signed)
    setup = Setup(os.urandom(16), parties, threshold, size.length, size.ring, **options)
    server = SessionServer(setup)
    clients = [SessionClient(setup, party, identity=secrets[party]) for party in parties]
    values = np.zeros(size.length, size.ring.dtype)
    for _ in range(2):  # the first round only fills the pipeline
        meter = _Meter(server)
        meter.trip(server.first, [partial(client.first, values=values) for client in clients])
        if size.signed:
            meter.trip(server.check, [client.check for client in clients])
        meter.trip(server.second, [client.second for client in clients])
        began = process_time()
        server.result()
        meter.server_s += process_time() - began
    n = size.n_parties
    return Cost(meter.parties_s / n, meter.server_s, meter.up / n, meter.down / n)


class _Meter:
    """Counts CPU seconds and bytes of a round."""

    def __init__(self, server: SessionServer) -> None:
        self._server = server
        self.parties_s = self.server_s = 0.0
        self.up = self.down = 0

    def trip(
        self, ask: Callable[[], dict[int, bytes]], answer: Sequence[Callable[[bytes], bytes]]
    ) -> None:
        """Carry one trip."""
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
