"""Seconds per federated round, loading, and peak memory; one process per data set.

usage: python benchmarks/rounds.py [NAME ...]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from fedmmf import Settings, load, simulation
from fedmmf.bench.training import peak_gigabytes
from fedmmf.sharing import who_shares_in_clear

DEFAULT = ["ml-100k", "ml-1m", "lastfm", "synthetic:ml-10m"]


def timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure(name: str) -> str:
    first, second = timed(lambda: load(name)), timed(lambda: load(name))
    ratings = load(name)
    settings = Settings(mask="mean", sharing="plain", factors=20, held_out=0.0)
    features = simulation.feature_matrix(ratings, settings)
    masks = simulation.fit_all_masks(ratings, features, settings)
    server = simulation.make_server(ratings, settings)
    in_clear = who_shares_in_clear(ratings, settings, masks)
    crowd = simulation.make_crowd(ratings, settings, masks, server.result.factors, in_clear)

    def one_round() -> None:
        message = server.next_message()
        server.advance(message, crowd.sums(message))

    cold = timed(one_round)
    warm = statistics.median(timed(one_round) for _ in range(5 if len(ratings) > 5e6 else 50))
    label = f"{name} (synthetic)" if ratings.synthetic and "synthetic" not in name else name
    return (
        f"| {label} | {len(ratings):,} | {first:.2f} | {second:.2f} | {1e3 * cold:.0f} "
        f"| {1e3 * warm:.2f} | {1e9 * warm / len(ratings):.1f} | {peak_gigabytes():.2f} |"
    )


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--one":
        print(measure(sys.argv[2]))
        return
    print(
        "| data | ratings | first load s | second load s | first round ms | round ms "
        "| ns per rating | peak GB |\n|---|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in sys.argv[1:] or DEFAULT:
        # A process each, so that the peak of memory is its own; an empty cache, to time the parser.
        with tempfile.TemporaryDirectory() as cache:
            subprocess.run(
                [sys.executable, __file__, "--one", name],
                check=True,
                env={**os.environ, "FEDMMF_CACHE": cache},
            )


if __name__ == "__main__":
    main()
