"""Whole rounds of training between the real parties of ML-100K, all summed securely.

usage: python benchmarks/secagg.py          needs ml-100k

What the sum itself costs, `fedmmf bench secagg` shows; what parties and server spend, `fedmmf
reproduce efficiency`.
"""

import time

from fedmmf import Settings, load, simulation
from fedmmf.federation import make_participants, make_parties
from fedmmf.transport import InProcess


def strict_rounds(n_rounds: int = 3) -> None:
    ratings, settings = load("ml-100k"), Settings(mask="mean", factors=20, held_out=0.0)
    parties = make_parties(ratings, settings)
    began = time.perf_counter()
    secure = make_participants(parties, InProcess(parties), settings, ratings.scale.span)
    print(f"ML-100K, set-up and survey: {time.perf_counter() - began:.1f} s")
    server = simulation.make_server(ratings, settings)
    for number in range(n_rounds):
        began = time.perf_counter()
        message = server.next_message()
        server.advance(message, secure.sums(message))
        seconds, stayed = time.perf_counter() - began, len(secure.survivors)
        print(f"ML-100K, strict round {number + 1}: {seconds:.1f} s, {stayed} parties")


if __name__ == "__main__":
    strict_rounds()
