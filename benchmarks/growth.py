"""Seconds per round and peak memory as the ratings grow; synthetic ratings, one process per size.

usage: python benchmarks/growth.py [SOLVER ...]
"""

import statistics
import subprocess
import sys
import time

from fedmmf import Settings, load, simulation
from fedmmf.bench.training import peak_gigabytes
from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf.sharing import who_shares_in_clear

SIZES = (1_000_000, 2_000_000, 4_000_000, 8_000_000, 10_000_054)
RATINGS_PER_USER = 150
N_ITEMS = 10_000


def make(n_ratings: int) -> Ratings:
    if n_ratings == SIZES[-1]:
        return load("synthetic:ml-10m")
    return synthetic(n_ratings // RATINGS_PER_USER, N_ITEMS, n_ratings, seed=1)


def measure(solver: str, n_ratings: int) -> str:
    ratings = make(n_ratings)
    settings = Settings(mask="mean", sharing="plain", solver=solver, factors=10, held_out=0.0)
    features = simulation.feature_matrix(ratings, settings)
    masks = simulation.fit_all_masks(ratings, features, settings)
    server = simulation.make_server(ratings, settings)
    in_clear = who_shares_in_clear(ratings, settings, masks)
    crowd = simulation.make_crowd(ratings, settings, masks, server.result.factors, in_clear)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        message = server.next_message()
        server.advance(message, crowd.sums(message))
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[1:])
    figures = f"{seconds:.3f} | {1e9 * seconds / n_ratings:.0f} | {peak_gigabytes():.2f}"
    return f"| {solver} | {ratings.n_users:,} | {n_ratings:,} | {figures} |"


def main() -> None:
    if len(sys.argv) == 4 and sys.argv[1] == "--one":
        print(measure(sys.argv[2], int(sys.argv[3])))
        return
    print("| solver | users | ratings (synthetic) | s per round | ns per rating | peak GB |")
    print("|---|---|---|---|---|---|", flush=True)
    for solver in sys.argv[1:] or ["sgd", "vb"]:
        for n_ratings in SIZES:
            subprocess.run([sys.executable, __file__, "--one", solver, str(n_ratings)], check=True)


if __name__ == "__main__":
    main()
