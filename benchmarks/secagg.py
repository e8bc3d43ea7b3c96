"""Secure aggregation: CPU of parties and server, and whole rounds between real parties.

usage: python benchmarks/secagg.py          needs ml-100k for the last part
"""

import os
import statistics
import time

from fedmmf import Settings, load, simulation
from fedmmf.aggregation.secure import Secure
from fedmmf.federation import make_parties
from fedmmf.secagg import RING32, measure, parameters, shamir
from fedmmf.transport import InProcess

CORRUPT, DROPOUT = 0.05, 0.05  # shares of the parties that the graph of ML-100K is made for


def protocol() -> None:
    print("| parties | length | neighbours | dropped | server CPU s | party CPU s | exact |")
    print("|---|---|---|---|---|---|---|")
    for n, length, k, drop in ((100, 100_000, 51, 0.05), (943, 33_640, 60, 0.05)):
        found = measure.measure(n, length, k, drop, RING32)
        costs = f"{found['server_cpu_s']:.3f} | {found['client_cpu_s']:.4f}"
        print(f"| {n} | {length:,} | {k} | {found['dropped']} | {costs} | {found['exact']} |")


def primitives() -> None:
    ratios = [
        measure.masking_seconds(10**6, 100) / measure.keystream_seconds(100 * 4 * 10**6)
        for _ in range(3)
    ]
    print(f"masking 1e6 entries for 100 neighbours: {statistics.median(ratios):.2f} keystreams")
    points = tuple(range(1, 101))
    began = time.process_time()
    shares = shamir.share([os.urandom(32)], 51, points, os.urandom)
    middle = time.process_time()
    shamir.combine([shamir.from_bytes(shares[p]) for p in points[:51]], points[:51])
    ended = time.process_time()
    share_ms, combine_ms = 1e3 * (middle - began), 1e3 * (ended - middle)
    print(f"Shamir, n=100: share {share_ms:.2f} ms, combine {combine_ms:.2f} ms")


def strict_rounds(n_rounds: int = 3) -> None:
    ratings, settings = load("ml-100k"), Settings(mask="mean", factors=20, held_out=0.0)
    parties = make_parties(ratings, settings)
    k, threshold = parameters(len(parties), CORRUPT, DROPOUT)
    secure = Secure(
        InProcess(parties), sorted(parties), ratings.scale.span, neighbours=k, threshold=threshold
    )
    server = simulation.make_server(ratings, settings)
    for number in range(n_rounds):
        began = time.perf_counter()
        message = server.next_message()
        server.advance(message, secure.sums(message))
        seconds, stayed = time.perf_counter() - began, len(secure.survivors)
        print(f"ML-100K, strict round {number + 1}: {seconds:.1f} s, {stayed} parties, k={k}")


if __name__ == "__main__":
    protocol()
    primitives()
    strict_rounds()
