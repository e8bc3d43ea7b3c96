"""Rounds of `vb` under noise beside rounds of strict `vb`, and what exact noise takes per entry.

Both train on the same ratings with the same mask and as many factors, turn by turn in one process,
so that a busy machine is busy for both. A simulated round is the parties' and the server's part. A
site's round is all that sites do for it, from its messages to its masked vectors, noise included:
CPU seconds of everything inside the parties, over their number.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np

from fedmmf.aggregation.dp.guarantee import discrete_gaussian, fractional_gaussian
from fedmmf.data import Ratings
from fedmmf.engines import ENGINES
from fedmmf.federation.local import Holdings, LocalFederation, make_silos, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import ROUND_STAGES
from fedmmf_experiments.bench.measuring import Progress, median, quiet, timed

SITE = 200  # users of a site, at least
SETTLING = 8  # rounds before the first that is timed: counts and means, and membership rounds
ENTRIES = 35_000  # draws of noise at once
SIGMA = 250_000  # their standard deviation in steps: a party's at epsilon 8, among 943


@dataclass(frozen=True)
class NoiseRatio:
    """A round under noise over a round without."""

    data: str
    where: str
    n_users: int  # of each party that is timed
    strict_s: float
    noisy_s: float

    @property
    def ratio(self) -> float:
        """How much longer a round under noise takes."""
        return self.noisy_s / self.strict_s


@dataclass(frozen=True)
class DrawTimes:
    """Microseconds per draw of exact noise."""

    entries: int
    ours_us: float
    opendp_us: float


Round = Callable[[], float]


def both_settings(rounds: int, mask: str, factors: int) -> tuple[Settings, Settings]:
    """Strict `vb`, and `vb` under noise, for as many rounds."""
    same = {"solver": "vb", "mask": mask, "factors": factors, "held_out": 0.0}
    strict = Settings(**same, aggregation="secure", rounds=rounds)
    return strict, Settings(**same, aggregation="dp", rounds=4 * rounds)


def compare(
    ratings: Ratings, repeats: int, mask: str, factors: int, progress: Progress = quiet
) -> list[NoiseRatio]:
    """Medians of both, in simulation and for sites."""
    found = []
    for number, (where, begin) in enumerate({"simulation": simulated, "sites": sites}.items()):
        progress("places", number, 2)
        settings = both_settings(repeats + SETTLING, mask, factors)
        lanes = [begin(ratings, one) for one in settings]
        for lane, one in zip(lanes, settings, strict=True):
            settle(lane, one)
        times = [[next(lane) for lane in lanes] for _ in range(repeats)]
        strict, noisy = (median(seconds) for seconds in zip(*times, strict=True))
        n_users = ratings.n_users // (1 if where == "simulation" else n_sites(ratings))
        found.append(NoiseRatio(ratings.name, where, n_users, strict, noisy))
    return found


def settle(lane: Iterator[float], settings: Settings) -> None:
    """Run the rounds before those that are timed: under noise, all but those of factors."""
    table = dict(getattr(settings.chosen_solver, "releases")(settings.max_rounds))
    has_budget = settings.scheme.has_budget
    n_before = settings.max_rounds - table["factors"] + 2 if has_budget else SETTLING
    for _ in range(n_before):
        next(lane)


def simulated(ratings: Ratings, settings: Settings) -> Iterator[float]:
    """Yield the seconds of each simulated round."""
    run = prepare(ratings, settings, lambda *_: None)
    coordinator, parties = run.coordinator(), run.parties()

    def one_round() -> None:
        round_ = coordinator.next_round()
        coordinator.advance(round_, parties.sums(round_))

    while not coordinator.is_finished:
        yield timed(one_round)


def n_sites(ratings: Ratings) -> int:
    """Number of sites with `SITE` users or more; three at least."""
    return max(3, ratings.n_users // SITE)


def sites(ratings: Ratings, settings: Settings) -> Iterator[float]:
    """Yield the CPU seconds of one site in each round among real sites."""
    cuts = np.linspace(0, ratings.n_users, n_sites(ratings) + 1).astype(int)
    parties = make_silos(Holdings(ratings, settings), cuts, ENGINES["numba"])
    federation = LocalFederation.among(server_plan(ratings, settings), parties)
    federation.prepare_sums()
    while True:
        before = federation.transport.of(*ROUND_STAGES, *TRIPS).inside_s
        federation.one_round()
        yield (federation.transport.of(*ROUND_STAGES, *TRIPS).inside_s - before) / len(parties)


TRIPS = ()


def draw_times(repeats: int) -> DrawTimes:
    """Time both samplers, turn by turn."""
    times = []
    for _ in range(repeats):
        turn = []
        for draw in (discrete_gaussian, fractional_gaussian):
            began = process_time()
            draw(ENTRIES, float(SIGMA))
            turn.append(1e6 * (process_time() - began) / ENTRIES)
        times.append(turn)
    ours, theirs = (median(seconds) for seconds in zip(*times, strict=True))
    return DrawTimes(ENTRIES, ours, theirs)
