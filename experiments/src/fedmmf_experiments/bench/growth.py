"""Seconds per round and peak memory as the ratings grow; synthetic ratings, a process per size."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmmf.data import Ratings, load
from fedmmf.data.synthetic import synthetic
from fedmmf.settings import Settings
from fedmmf_experiments.bench.measuring import (
    Progress,
    each_alone,
    median,
    peak_gigabytes,
    quiet,
    timed,
)
from fedmmf_experiments.bench.rounds import simulated

ML_10M = 10_000_054  # this many get the users and items of that set, too
SIZES = (1_000_000, 2_000_000, 4_000_000, 8_000_000, ML_10M)
RATINGS_PER_USER = 150
N_ITEMS = 10_000  # each rated at least once, so there are no fewer ratings
REPEATS = 5


@dataclass(frozen=True)
class GrowthPoint:
    """What one number of ratings takes."""

    solver: str
    n_users: int
    n_ratings: int
    round_s: float  # median, without the first
    ns_per_rating: float
    peak_gb: float


@dataclass(frozen=True)
class Shape:
    """Who rates what, whatever the number of ratings."""

    n_items: int = N_ITEMS
    per_user: int = RATINGS_PER_USER

    def ratings(self, n_ratings: int, seed: int) -> Ratings:
        """Ratings by users who give about as many each, whatever their number."""
        if n_ratings == ML_10M and self == Shape():
            return load("synthetic:ml-10m")
        return synthetic(n_ratings // self.per_user, self.n_items, n_ratings, seed=seed)


def measure(n_ratings: int, shape: Shape, settings: Settings) -> GrowthPoint:
    """Time rounds of one size in this process."""
    ratings = shape.ratings(n_ratings, settings.seed)
    one_round = simulated(ratings, settings)
    one_round()  # compiles
    seconds = median(timed(one_round) for _ in range(REPEATS))
    nanoseconds = 1e9 * seconds / n_ratings
    about = (settings.solver, ratings.n_users, n_ratings)
    return GrowthPoint(*about, seconds, nanoseconds, peak_gigabytes())


def measure_all(
    plans: Sequence[tuple[Settings, int]], shape: Shape, progress: Progress = quiet
) -> list[GrowthPoint]:
    """Settings and numbers of ratings, each in a process of its own."""
    calls = [(size, shape, chosen) for chosen, size in plans]
    return each_alone(measure, "solvers and sizes", calls, progress)
