"""Training beside peers: their time and error, and the time that we need to reach that error."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import evaluation
from fedmmf.arrays import Array
from fedmmf.bench import peers
from fedmmf.bench.measuring import Progress, in_own_process, median, quiet, timed
from fedmmf.config import Settings
from fedmmf.data import Ratings, load
from fedmmf.engines.kernels import threads
from fedmmf.lists import UserLists
from fedmmf.simulation import Prepared, prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import whole_factors

_PASSES = {"sgd": 3, "vb": 2}  # over a user's items: to read them, and to add to their sums


@dataclass(frozen=True, eq=False)
class Curve:
    """Test error after each round, against seconds of work, masks included."""

    seconds: Array  # (rounds,)
    rmse: Array  # (rounds,)
    mask_seconds: float

    def seconds_to(self, rmse: float) -> float | None:
        """When the error was first at or below `rmse`."""
        reached = np.flatnonzero(self.rmse <= rmse)
        return float(self.seconds[reached[0]]) if len(reached) else None


@dataclass(frozen=True)
class OwnTimes:
    """What ours takes; medians."""

    rmse: float
    seconds: float
    mask_seconds: float
    round_seconds: float
    settings: dict[str, Any]
    cold_seconds: float | None = None  # with nothing compiled yet


@dataclass(frozen=True)
class PeerTimes:
    """What a peer takes, and when ours is as good; medians."""

    peer: str
    configuration: str
    rmse: float
    fit_seconds: float
    our_seconds_to_that_rmse: float | None
    times_faster: float | None


@dataclass(frozen=True)
class MemorySpeed:
    """What a round reads from memory at least, against what the machine can read."""

    machine_gb_per_s: float
    round_gb: float
    round_gb_per_s: float
    share_of_bandwidth: float


@dataclass(frozen=True)
class Comparison:
    """Ours beside its peers."""

    ours: OwnTimes
    peers: list[PeerTimes]
    memory: MemorySpeed


def learning_curve(train: Ratings, test: Ratings, settings: Settings) -> Curve:
    """Train while watching the test error; the watching is not counted."""
    began = time.perf_counter()
    run = prepare(train, settings, quiet)
    coordinator = run.coordinator()
    crowd = run.crowd()
    mask_seconds = spent = time.perf_counter() - began
    mask = _test_mask(run, test)
    seconds, errors = [], []
    for _ in range(settings.max_rounds):
        began = time.perf_counter()
        round_ = coordinator.next_round()
        coordinator.advance(round_, crowd.sums(round_))
        spent += time.perf_counter() - began
        p = crowd.user_factors
        q = whole_factors(run.plan.form, coordinator.result, run.design)
        scores = run.engine.pair_scores(test.user_codes, test.item_codes, p, q)
        seconds.append(spent)
        errors.append(evaluation.rmse(test.values, test.scale.clip(scores + mask)))
    return Curve(np.array(seconds), np.array(errors), mask_seconds)


def _test_mask(run: Prepared, test: Ratings) -> Array:
    """f_u(i) of the test ratings. (n,)."""
    lists = UserLists(test.by_user, test.item_codes)
    return run.masks.predict(lists, run.features, run.engine.mask_runner())


def compare(
    train: Ratings, test: Ratings, settings: Settings, repeats: int, progress: Progress = quiet
) -> Comparison:
    """Alternate between the peers and ourselves; medians over the repeats."""
    tools = peers.installed()
    fits: dict[str, list[peers.PeerFit]] = {peer.name: [] for peer in tools}
    curves = []
    learning_curve(train, test, settings)  # compiles, or loads what was compiled
    for number in range(repeats):
        curves.append(learning_curve(train, test, settings))
        for peer in tools:
            fits[peer.name].append(peers.measure(peer, train, test))
        progress("repeats", number + 1, repeats)
    ours = _own_times(curves, settings)
    rows = [_peer_times(peer, fits[peer.name], curves) for peer in tools]
    return Comparison(ours, rows, memory_speed(train, settings, ours.round_seconds))


def _own_times(curves: Sequence[Curve], settings: Settings) -> OwnTimes:
    return OwnTimes(
        rmse=median(curve.rmse[-1] for curve in curves),
        seconds=median(curve.seconds[-1] for curve in curves),
        mask_seconds=median(curve.mask_seconds for curve in curves),
        round_seconds=median(np.diff(curve.seconds).mean() for curve in curves),
        settings=settings.model_dump(),
    )


def _peer_times(
    peer: peers.Peer, fits: Sequence[peers.PeerFit], curves: Sequence[Curve]
) -> PeerTimes:
    rmse, seconds = median(fit.rmse for fit in fits), median(fit.seconds for fit in fits)
    reached = [curve.seconds_to(rmse) for curve in curves]
    ours = None if None in reached else median(reached)
    times = None if ours is None else seconds / ours
    return PeerTimes(peer.name, peer.configuration, rmse, seconds, ours, times)


def memory_speed(train: Ratings, settings: Settings, round_seconds: float) -> MemorySpeed:
    """How near a round comes to what the machine's memory allows."""
    rank = SOLVERS[settings.solver].rank(settings)
    bytes_read = _PASSES.get(settings.solver, 2) * len(train) * 4.0 * rank
    speed = read_speed()
    return MemorySpeed(
        machine_gb_per_s=speed / 1e9,
        round_gb=bytes_read / 1e9,
        round_gb_per_s=bytes_read / round_seconds / 1e9,
        share_of_bandwidth=bytes_read / round_seconds / speed,
    )


def read_speed(megabytes: int = 256) -> float:
    """Bytes per second that all threads together read from memory; the best of five."""
    n = threads.n_threads()
    blocks = [np.ones(megabytes * 2**20 // 8 // n) for _ in range(n)]
    parts = [(number, number + 1) for number in range(len(blocks))]
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        threads.run(lambda begin, end: blocks[begin].sum(), parts)
        best = max(best, sum(block.nbytes for block in blocks) / (time.perf_counter() - began))
    return best


def cold_seconds(data: str, test: float, settings: Settings) -> float:
    """Seconds of fitting in a fresh process with nothing compiled."""
    home, arguments = f"{__name__}:{fit_seconds.__name__}", [data, test, settings.model_dump()]
    with tempfile.TemporaryDirectory() as folder:
        return float(in_own_process(home, arguments, {"NUMBA_CACHE_DIR": folder}))


def fit_seconds(data: str, test: float, settings: dict[str, Any]) -> float:
    """Seconds of fitting in this process."""
    from fedmmf.model import FedMMF  # needed by the fresh process alone

    train, _ = load(data).split(test, seed=settings["seed"])
    return timed(lambda: FedMMF(**settings).fit(train))
