"""Simulated rounds, plain and strict, side by side: the ratio of their times.

usage: python benchmarks/strict.py [NAME ...]          ml-1m unless named
"""

import statistics
import sys
import time

from fedmmf import Settings, load, simulation
from fedmmf.sharing import who_shares_in_clear


def crowd_of(name: str, settings: Settings):
    ratings = load(name)
    features = simulation.feature_matrix(ratings, settings)
    masks = simulation.fit_all_masks(ratings, features, settings)
    server = simulation.make_server(ratings, settings)
    in_clear = who_shares_in_clear(ratings, settings, masks)
    crowd = simulation.make_crowd(ratings, settings, masks, server.result.factors, in_clear)
    message = server.next_message()
    crowd.sums(message)  # compiles
    return crowd, message


def measure(name: str, solver: str, repeats: int = 15) -> None:
    both = [
        crowd_of(name, Settings(mask="mean", solver=solver, sharing=sharing, held_out=0.0))
        for sharing in ("plain", "strict")
    ]
    times: list[list[float]] = [[], []]
    for _ in range(repeats):
        for (crowd, message), seconds in zip(both, times, strict=True):
            began = time.perf_counter()
            crowd.sums(message)
            seconds.append(time.perf_counter() - began)
    plain, strict = (1e3 * statistics.median(seconds) for seconds in times)
    print(f"| {name} | {solver} | {plain:.1f} | {strict:.1f} | {strict / plain:.2f} |")


if __name__ == "__main__":
    print("| data | solver | plain ms | strict ms | ratio |\n|---|---|---|---|---|")
    for chosen in sys.argv[1:] or ["ml-1m"]:
        for solver in ("sgd", "vb"):
            measure(chosen, solver)
