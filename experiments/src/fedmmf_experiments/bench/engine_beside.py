"""The engine numba beside torch: whole runs as cases for both, and rounds on the host."""

import platform
import sys
import time

import numba
import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.engine import NUMBA
from fedmmf.federation.local import Member
from fedmmf.settings import Settings
from fedmmf.simulation.prepared import Prepared, prepare
from fedmmf.simulation.training import Trained
from fedmmf.simulation.training import train as trained_by
from fedmmf.solvers.contract import ItemSums
from fedmmf.solvers.vb.server import VbServer
from fedmmf_experiments.bench.engine_cases import EngineCase, TestedPairs, scored

ROUNDS = 3  # that are timed, after one that compiles


def case_of(train: Ratings, test: Ratings, settings: Settings) -> EngineCase:
    """Make the case of a run: masks are fitted, and servers are before their first rounds."""
    run = prepare(train, settings)
    halves = [_half(run, number) for number in range(run.settings.ensemble)]
    group, rounds = run.groups[0], run.settings.max_rounds
    tested = tested_pairs(run, test)
    return EngineCase(train.name, run.training_input, halves, group.counts, rounds, tested)


def _half(run: Prepared, number: int) -> VbServer:
    half = run.coordinator(number).half
    if not isinstance(half, VbServer):
        raise TypeError("cases are of vb")
    return half


def tested_pairs(run: Prepared, test: Ratings) -> TestedPairs:
    """The tested ratings of items that are summed."""
    lists = test.rated_items
    places, is_summed = lists.within(run.layout.items, test.n_items)
    mask = run.masks.predict(lists, run.features.seen, run.engine.mask_runner())
    scale = np.array((test.scale.min, test.scale.max))
    ratings = test.values[is_summed]
    return TestedPairs(places.users, places.items, ratings, mask[is_summed], scale)


def trained_beside(train: Ratings, settings: Settings, case: EngineCase) -> dict[str, float]:
    """Seconds of a whole fit with the settings' engine, warm, preparation included.

    And how good it is on the same tested ratings: those of items that are summed.
    """
    trained_by(train, settings)
    began = time.perf_counter()
    found = trained_by(train, settings)
    seconds = time.perf_counter() - began
    runs = [run_of(member, found, case) for member in found.members]
    if case.tested is None:
        return {"seconds": seconds}
    name, value = scored(case, case.tested, runs)
    return {"seconds": seconds, name: value}


def run_of(member: Member, found: Trained, case: EngineCase) -> tuple[Array, Array]:
    """q_i of the items that are summed, with what is known of them, and p_u."""
    q = member.broadcast.item_factors[found.layout.items]
    return np.hstack(
        (q, case.given.design[:, : case.given.update_shape.n_joint])
    ), member.user_factors


def host_round_seconds(case: EngineCase) -> tuple[float, int]:
    """Median seconds of a round, both halves, and how many threads took part."""
    parties, half = NUMBA.halves(case.given), case.halves[0]
    (cohort,), start, times = case.given.cohorts, half.state(), []
    for t in range(1, ROUNDS + 2):
        began = time.perf_counter()
        found = parties.update(half.broadcast(), t)
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
