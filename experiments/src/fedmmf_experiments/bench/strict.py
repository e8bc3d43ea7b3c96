"""Simulated rounds, plain and strict, side by side: the ratio of their times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmmf.data import Ratings, load
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.bench.measuring import Progress, median, quiet, timed


@dataclass(frozen=True)
class StrictRatio:
    """What it takes to sum as secure sums do, in fixed point, instead of plainly."""

    data: str
    solver: str
    plain_s: float
    strict_s: float
    ratio: float


def user_sums(ratings: Ratings, settings: Settings) -> Callable[[], object]:
    """The parties' part of a first round, compiled; each call does it again."""
    run = prepare(ratings, settings, quiet)
    coordinator = run.coordinator()
    parties, round_ = run.parties(), coordinator.next_round()
    parties.sums(round_)  # compiles
    return lambda: parties.sums(round_)


def measure(ratings: Ratings, settings: Settings, repeats: int) -> StrictRatio:
    """Alternate between the two, so that a busy machine is busy for both."""
    both = [
        user_sums(ratings, settings.changed(sharing=sharing)) for sharing in ("plain", "strict")
    ]
    times = [[timed(sums) for sums in both] for _ in range(repeats)]
    plain, strict = (median(seconds) for seconds in zip(*times, strict=True))
    return StrictRatio(ratings.name, settings.solver, plain, strict, strict / plain)


def measure_all(
    names: Sequence[str],
    solvers: Sequence[str],
    settings: Settings,
    repeats: int,
    progress: Progress = quiet,
) -> list[StrictRatio]:
    """Every solver on every data set."""
    found: list[StrictRatio] = []
    for name in names:
        ratings = load(name)
        for solver in solvers:
            found.append(measure(ratings, settings.changed(solver=solver), repeats))
            progress("data sets and solvers", len(found), len(names) * len(solvers))
    return found
