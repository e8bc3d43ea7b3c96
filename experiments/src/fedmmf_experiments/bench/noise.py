"""Rounds of `vb` under noise beside rounds of strict `vb`, and what exact noise takes per entry.

Both train on the same ratings with the same mask and as many factors, turn by turn in one process,
so that a busy machine is busy for both. Seconds are of the processor, over all threads. A simulated
round is the parties' and the server's part. A site's round is all that a site does for it, from the
server's messages to its masked vector, noise included. A round under noise is one of factors, the
longest; a round without comes after the membership rounds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time

import numpy as np

from fedmmf.aggregation.dp import releases
from fedmmf.aggregation.dp.guarantee import discrete_gaussian, fractional_gaussian
from fedmmf.data import Ratings, load
from fedmmf.engines import ENGINES
from fedmmf.federation.local import Holdings, LocalFederation, make_silos, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.real import ROUND_STAGES
from fedmmf_experiments.bench.measuring import Progress, median, quiet

SITE = 200  # users of a site, at least
SETTLING = 8  # rounds before the first that is timed: counts and means, and membership rounds
ENTRIES = 35_000  # draws of noise at once
SIGMA = 250_016  # their standard deviation in steps, about a party's at epsilon 8, among 943


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


def both_settings(rounds: int, mask: str, factors: int) -> tuple[Settings, Settings]:
    """Strict `vb`, and `vb` under noise, for as many rounds."""
    same = Settings(solver="vb", mask=mask, factors=factors, held_out=0.0)
    strict = same.changed(aggregation="secure", rounds=rounds)
    return strict, same.changed(aggregation="dp", rounds=4 * rounds)


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
    n_before = SETTLING
    if settings.scheme.has_budget:
        n_before = 2 + sum(n for name, n in releases.in_order(settings) if name != "factors")
    for _ in range(n_before):
        next(lane)


def seconds_of(function: Callable[[], object]) -> float:
    """CPU seconds of a call, of all threads: other programs take none of it."""
    began = process_time()
    function()
    return process_time() - began


def simulated(ratings: Ratings, settings: Settings) -> Iterator[float]:
    """Yield the seconds of each simulated round."""
    run = prepare(ratings, settings, lambda *_: None)
    coordinator, parties = run.coordinator(), run.parties()

    def one_round() -> None:
        round_ = coordinator.next_round()
        coordinator.advance(round_, parties.sums(round_))

    while not coordinator.is_finished:
        yield seconds_of(one_round)


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
        before = federation.transport.of(*ROUND_STAGES).inside_s
        federation.one_round()
        yield (federation.transport.of(*ROUND_STAGES).inside_s - before) / len(parties)


def measure(
    names: Sequence[str], repeats: int, mask: str, factors: int, progress: Progress
) -> list[NoiseRatio]:
    """Compare on every data set."""
    found: list[NoiseRatio] = []
    for name in names:
        progress(name, len(found), 2 * len(names))
        found += compare(load(name), repeats, mask, factors)
    return found


def draw_times(repeats: int) -> DrawTimes:
    """Time both samplers, turn by turn."""
    times = []
    for _ in range(repeats):
        samplers = (discrete_gaussian, fractional_gaussian)
        calls = [partial(draw, ENTRIES, float(SIGMA)) for draw in samplers]
        times.append([1e6 * seconds_of(call) / ENTRIES for call in calls])
    ours, theirs = (median(seconds) for seconds in zip(*times, strict=True))
    return DrawTimes(ENTRIES, ours, theirs)
