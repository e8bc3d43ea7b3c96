"""Seconds per simulated round, loading, and peak memory; a process for each data set."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedmmf.data import Ratings, load
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf_experiments.bench.measuring import (
    Progress,
    in_own_process,
    median,
    peak_gigabytes,
    quiet,
    timed,
)

DATA = ("ml-100k", "ml-1m", "lastfm", "synthetic:ml-10m")
MANY = 5_000_000  # ratings from which on a few rounds are enough


@dataclass(frozen=True)
class RoundTimes:
    """What one data set takes."""

    data: str
    synthetic: bool
    n_ratings: int
    first_load_s: float
    second_load_s: float  # from the cache
    first_round_s: float  # compiles, or loads what was compiled
    round_s: float  # median
    ns_per_rating: float
    peak_gb: float


def simulated(ratings: Ratings, settings: Settings) -> Callable[[], None]:
    """A federation before its first round; each call is a round of it."""
    run = prepare(ratings, settings, quiet)
    coordinator = run.coordinator()
    parties = run.parties()

    def one_round() -> None:
        round_ = coordinator.next_round()
        coordinator.advance(round_, parties.sums(round_))

    return one_round


def measure(data: str, settings: Settings, repeats: int) -> RoundTimes:
    """Load twice, then time rounds, in this process."""
    first_load, second_load = (timed(lambda: load(data)) for _ in range(2))
    ratings = load(data)
    one_round = simulated(ratings, settings)
    first_round = timed(one_round)
    few = min(repeats, 5) if len(ratings) > MANY else repeats
    seconds = median(timed(one_round) for _ in range(few))
    return RoundTimes(
        data=data,
        synthetic=ratings.synthetic,
        n_ratings=len(ratings),
        first_load_s=first_load,
        second_load_s=second_load,
        first_round_s=first_round,
        round_s=seconds,
        ns_per_rating=1e9 * seconds / len(ratings),
        peak_gb=peak_gigabytes(),
    )


def measure_all(
    names: Sequence[str], settings: Settings, repeats: int, progress: Progress = quiet
) -> list[RoundTimes]:
    """Measure each set in a process of its own, with an empty cache, to time the parser."""
    found = []
    for number, name in enumerate(names, start=1):
        with tempfile.TemporaryDirectory() as cache:
            found.append(in_own_process(measure, name, settings, repeats, FEDMMF_CACHE=cache))
        progress("data sets", number, len(names))
    return found
