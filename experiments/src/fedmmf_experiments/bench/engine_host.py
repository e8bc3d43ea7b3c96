"""The same rounds by numba, on the cores of the machine that has the card."""

import platform
import sys
import time

import numba
import numpy as np

from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.engine import NUMBA
from fedmmf.solvers.contract import ItemSums
from fedmmf_experiments.bench.engine_cases import EngineCase

ROUNDS = 3  # that are timed, after one that compiles


def host_round_seconds(case: EngineCase) -> tuple[float, int]:
    """Median seconds of a round, both halves, and how many threads took part."""
    crowd, half = NUMBA.crowd(case.given), case.halves[0]
    (cohort,), start, times = case.given.cohorts, half.state(), []
    for t in range(1, ROUNDS + 2):
        began = time.perf_counter()
        found = crowd.update(half.public(), t)
        rows = found.rows[0] / cohort.scale if cohort.is_fixed else found.rows[0]
        totals = found.totals[0] / (cohort.total_scale or 1.0)
        half.advance(ItemSums(rows, case.n_raters, totals), t)
        times.append(time.perf_counter() - began)
    half.restore(start)
    return sorted(times[1:])[ROUNDS // 2], threads.n_threads()


def main() -> None:
    """Print seconds of rounds of the shape of ML-32M."""
    import torch

    from fedmmf_experiments.bench.engine_cases import ML_32M, synthetic

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for factors in (10, 20):
        seconds, n_threads = host_round_seconds(synthetic(ML_32M, factors, device))
        told = f"numba {numba.__version__}, numpy {np.__version__}, {n_threads} threads of "
        told += f"{platform.processor() or platform.machine()}, k={factors}"
        sys.stdout.write(f"{told}: {1000 * seconds:.0f} ms\n")


if __name__ == "__main__":
    main()
