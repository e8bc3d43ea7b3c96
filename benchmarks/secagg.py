"""Whole rounds of training between the real parties of ML-100K, all summed securely.

usage: python benchmarks/secagg.py          needs ml-100k

What the sum itself costs, `fedmmf bench secagg` shows.
"""

import time

from fedmmf import Settings, load, simulation
from fedmmf.aggregation.secure import Secure
from fedmmf.federation import make_parties
from fedmmf.secagg import parameters
from fedmmf.transport import InProcess

CORRUPT, DROPOUT = 0.05, 0.05  # shares of the parties that the graph of ML-100K is made for


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
    strict_rounds()
