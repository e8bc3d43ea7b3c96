"""Training on Ray's workers beside training in one process, on the same cores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf.data import load
from fedmmf.engines.kernels import threads
from fedmmf.engines.ray.cluster import WORKERS
from fedmmf.engines.ray.engine import RAY
from fedmmf.settings import Settings
from fedmmf.simulation import Trained, train
from fedmmf_experiments.bench.measuring import Progress, in_own_process, median, quiet, timed


@dataclass(frozen=True)
class RayTimes:
    """Median seconds of both, and how far their models are apart."""

    data: str
    synthetic: bool
    n_ratings: int
    solver: str
    cores: int
    workers: int
    start_s: float  # of Ray and its workers, once
    alone_mask_s: float
    ray_mask_s: float
    alone_train_s: float
    ray_train_s: float
    ratio: float  # of masks and rounds together, Ray's to one process's: median over pairs of runs
    largest_difference: float  # between factors


def difference(one: Trained, other: Trained) -> float:
    """Largest between the factors of two models."""
    (mine,), (theirs,) = one.members, other.members
    items = np.abs(mine.broadcast.item_rows - theirs.broadcast.item_rows).max()
    return max(float(items), float(np.abs(mine.user_factors - theirs.user_factors).max()))


def _seconds(run: Trained) -> float:
    return run.mask_seconds + run.train_seconds


def measure(data: str, settings: Settings, repeats: int) -> RayTimes:
    """Alternate between the two, so that a busy machine is busy for both."""
    start_seconds = timed(RAY.start)
    ratings = load(data)
    both = [settings.changed(engine=name) for name in ("numba", "ray")]
    for chosen in both:
        train(ratings, chosen.changed(rounds=1))  # compiles
    runs = [[train(ratings, chosen) for chosen in both] for _ in range(repeats)]
    alone, on_ray = zip(*runs, strict=True)
    return RayTimes(
        data=data,
        synthetic=ratings.synthetic,
        n_ratings=len(ratings),
        solver=settings.solver,
        cores=threads.n_threads(),
        workers=RAY.start(),
        start_s=start_seconds,
        alone_mask_s=median(run.mask_seconds for run in alone),
        ray_mask_s=median(run.mask_seconds for run in on_ray),
        alone_train_s=median(run.train_seconds for run in alone),
        ray_train_s=median(run.train_seconds for run in on_ray),
        ratio=median(_seconds(b) / _seconds(a) for a, b in runs),
        largest_difference=difference(alone[-1], on_ray[-1]),
    )


def measure_all(
    data: str,
    solvers: Sequence[str],
    settings: Settings,
    workers: int,
    repeats: int,
    progress: Progress = quiet,
) -> list[RayTimes]:
    """Every solver, in a process with a Ray of its own."""
    found = []
    for number, solver in enumerate(solvers, start=1):
        chosen = settings.changed(solver=solver)
        found.append(in_own_process(measure, data, chosen, repeats, **{WORKERS: str(workers)}))
        progress("solvers", number, len(solvers))
    return found
