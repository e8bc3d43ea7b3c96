"""One whole round in one process among real clients, with its cost and whether it was exact."""

import os
from collections.abc import Collection
from time import perf_counter, process_time
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import RING32, Ring, RoundClient, RoundServer, Setup, Stage, policy, prg, shamir
from fedmmf.secagg.graph import circle


class _RoundMeter:
    """Counts seconds of the server and of a mean client, and bytes, while a round runs."""

    def __init__(self, setup: Setup, values: dict[int, Array]) -> None:
        self.server, self.values = RoundServer(setup), values
        self.clients = {party: RoundClient(setup, party) for party in setup.parties}
        self.server_s = self.client_s = 0.0
        self.up: dict[str, float] = {}
        self.down: dict[str, float] = {}

    def run(self, gone: Collection[int]) -> Array:
        """Run the round; the parties in `gone` drop out after sharing their keys."""
        sent = dict.fromkeys(self.clients, b"")
        while True:
            stage = self.server.stage
            alive = {p: d for p, d in sent.items() if stage < Stage.MASKED_INPUT or p not in gone}
            start = process_time()
            answers = {party: self._answer(stage, party, data) for party, data in alive.items()}
            middle = process_time()
            for party, data in answers.items():
                self.server.receive(party, data)
            done = stage is Stage.UNMASK
            total = self.server.result() if done else np.zeros(0)
            sent = {} if done else self.server.next_messages()
            self.client_s += (middle - start) / len(answers)
            self.server_s += process_time() - middle
            self.up[stage.title] = _mean_size(answers)
            self.down[stage.title] = _mean_size(alive)
            if done:
                return total

    def _answer(self, stage: Stage, party: int, data: bytes) -> bytes:
        client = self.clients[party]
        if stage is Stage.ADVERTISE:
            return client.advertise()
        if stage is Stage.SHARE_KEYS:
            return client.share_keys(data)
        if stage is Stage.MASKED_INPUT:
            return client.masked_input(data, self.values[party])
        return client.unmask(data)


def measure(
    n: int,
    length: int,
    neighbours: int | None = None,
    drop: float = 0.0,
    ring: Ring = RING32,
    threshold: int | None = None,
) -> dict[str, Any]:
    """Run a passive round and return its cost.

    The process keeps one ring of the graph for all; the server and every client are each charged
    for making it.

    Args:
        n: parties.
        length: entries of a vector.
        neighbours: of each party; None: everybody.
        drop: share of the parties that drop out after sharing their keys, the dearest moment.
        ring: where vectors are summed.
        threshold: how many holders recover a secret; None: the fewest that are safe.
    """
    holders = n if neighbours is None else neighbours + 1
    threshold = policy.least_threshold(holders) if threshold is None else threshold
    name, seed, parties = os.urandom(16), os.urandom(32), tuple(range(n))
    setup = Setup(name, parties, threshold, length, ring, neighbours, seed)
    values = {party: _values(setup) for party in parties}
    gone = dropouts(n, round(drop * n))
    graph_s = _graph_seconds(setup)
    began, start = perf_counter(), process_time()
    meter = _RoundMeter(setup, values)
    meter.client_s += (process_time() - start) / n + graph_s  # making the keys
    meter.server_s += graph_s
    total = meter.run(gone)
    return {
        **_shape(setup, len(gone)),
        "seconds": perf_counter() - began,
        "server_cpu_s": meter.server_s,
        "client_cpu_s": meter.client_s,
        "up_bytes": meter.up,
        "down_bytes": meter.down,
        "exact": _is_sum(total, values, meter.server.survivors, ring),
    }


def dropouts(n: int, n_gone: int) -> frozenset[int]:
    """Return which of n parties drop out: every so many."""
    return frozenset(i * n // n_gone for i in range(n_gone))


def keystream_seconds(n_bytes: int) -> float:
    """Return the CPU seconds AES-256-CTR needs for a keystream, and nothing but that."""
    buffer = bytearray(prg.CHUNK_BYTES + 16)
    words = prg.keystream(os.urandom(prg.SEED_BYTES), RING32, buffer)
    full, rest = divmod(n_bytes // RING32.width, prg.CHUNK_BYTES // RING32.width)
    start = process_time()
    for _ in range(full):
        words(prg.CHUNK_BYTES // RING32.width)
    words(rest)
    return process_time() - start


def masking_seconds(length: int, n_masks: int, ring: Ring = RING32) -> float:
    """Return the CPU seconds of adding that many masks to a vector."""
    vector = np.zeros(length, ring.dtype)
    seeds = [os.urandom(prg.SEED_BYTES) for _ in range(n_masks)]
    start = process_time()
    prg.apply_masks(vector, ring, seeds[::2], seeds[1::2])
    return process_time() - start


def shamir_seconds(n: int, threshold: int) -> tuple[float, float]:
    """Return the CPU seconds of sharing a secret among n and of combining it; nothing is cached."""
    shamir.weights.cache_clear()
    points = tuple(range(1, n + 1))
    start = process_time()
    shares = shamir.share([os.urandom(shamir.SECRET_BYTES)], threshold, points, os.urandom)
    middle = process_time()
    chosen = points[:threshold]
    shamir.combine([shamir.from_bytes(shares[point]) for point in chosen], chosen)
    return middle - start, process_time() - middle


def _shape(setup: Setup, n_gone: int) -> dict[str, Any]:
    """Return what was asked for, as reports name it."""
    return {
        "clients": setup.n,
        "length": setup.length,
        "neighbours": setup.degree,
        "threshold": setup.threshold,
        "dropped": n_gone,
        "ring": setup.ring.name,
    }


def _graph_seconds(setup: Setup) -> float:
    """Return the CPU seconds of making the ring and finding neighbours on it; nothing is kept."""
    circle.cache_clear()
    start = process_time()
    setup.peers(setup.parties[0])
    return process_time() - start


def _values(setup: Setup) -> Array:
    # small, so that their plain sum fits an int64 in every ring
    return np.frombuffer(os.urandom(setup.length), np.uint8).astype(setup.ring.dtype)


def _is_sum(total: Array, values: dict[int, Array], survivors: tuple[int, ...], ring: Ring) -> bool:
    plain = sum((values[party].astype(np.int64) for party in survivors), np.int64(0))
    return bool(np.array_equal(ring.lift(total), plain))


def _mean_size(sent: dict[int, bytes]) -> float:
    return sum(map(len, sent.values())) / max(len(sent), 1)
