"""Training beside peers, all by one rule: whole fits, warm, in turn, and the error after them."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf.data import Ratings, load
from fedmmf.engines.kernels import threads
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf.solvers import SOLVERS
from fedmmf_experiments.bench.measuring import Progress, in_own_process, median, quiet, timed
from fedmmf_experiments.bench.peers import PEERS, Fit, Fitted, Predictor, Tool, measure, require
from fedmmf_experiments.bench.rounds import simulated

# Plain sums, since peers have no fixed point. So the mask is fitted alone: not quite our defaults.
OURS = Settings(mask="mean", solver="vb", sharing="plain")
_QUICK = {"factors": 10, "rounds": 8}
_PASSES = {"sgd": 3, "vb": 2}  # over a user's items: to read them, and to add to their sums
_ROUNDS = 9  # that are timed


@dataclass(frozen=True)
class TrainingRow:
    """What a tool takes and reaches, medians; and a peer beside the first of ours."""

    tool: str
    setting: str
    configuration: str
    rmse: float
    fit_seconds: float
    seconds_over_ours: float | None  # its seconds divided by ours; None for ours
    rmse_minus_ours: float | None


@dataclass(frozen=True)
class MemorySpeed:
    """What a round reads from memory at least, against what the machine can read."""

    machine_gb_per_s: float
    round_seconds: float
    round_gb: float
    round_gb_per_s: float
    share_of_bandwidth: float


def all_tools(settings: Settings) -> list[Tool]:
    """Ours with these settings, the same with fewer factors and rounds, and every peer."""
    return [own("plain sums", settings), own("quick", settings.changed(**_QUICK)), *PEERS]


def own(setting: str, settings: Settings) -> Tool:
    """Our training as a tool: masks and all rounds; it ends by its own rule, as with anybody."""

    def prepare(train: Ratings) -> Fit:
        model = FedMMF(**settings.model_dump())

        def fit() -> Predictor:
            learned = model.fit(train).learned
            return lambda test: learned.predict(test.user_codes, test.item_codes)

        return fit

    sizes = f"{settings.factors} factors, {settings.max_rounds} rounds"
    words = f"{settings.solver}, mask {settings.mask}, {sizes}"
    return Tool("fedmmf", "fedmmf", setting, words, prepare)


def compare(
    tools: Sequence[Tool], train: Ratings, test: Ratings, repeats: int, progress: Progress = quiet
) -> list[TrainingRow]:
    """Fit every tool once unwatched, then all of them in turn; medians over the repeats.

    The first fit is not counted for anybody: it compiles, imports and fills caches.

    Returns:
        A row per tool, in the order of `tools`. The first is the one that peers stand beside.
    """
    require(tools)
    for tool in tools:
        tool.prepare(train)()
    fits: list[list[Fitted]] = []
    for number in range(repeats):
        fits.append([measure(tool, train, test) for tool in tools])
        progress("repeats", number + 1, repeats)
    middles = [_middle(of_tool) for of_tool in zip(*fits, strict=True)]
    ours = (tools[0].name, middles[0])
    return [_row(tool, found, *ours) for tool, found in zip(tools, middles, strict=True)]


def _middle(fits: Sequence[Fitted]) -> Fitted:
    return Fitted(median(fit.seconds for fit in fits), median(fit.rmse for fit in fits))


def _row(tool: Tool, found: Fitted, our_name: str, ours: Fitted) -> TrainingRow:
    is_peer = tool.name != our_name
    return TrainingRow(
        tool=tool.name,
        setting=tool.setting,
        configuration=tool.configuration,
        rmse=found.rmse,
        fit_seconds=found.seconds,
        seconds_over_ours=found.seconds / ours.seconds if is_peer else None,
        rmse_minus_ours=found.rmse - ours.rmse if is_peer else None,
    )


def memory_speed(train: Ratings, settings: Settings) -> MemorySpeed:
    """How near a round of ours comes to what the machine's memory allows."""
    one_round = simulated(train, settings)
    one_round()  # compiles, or loads what was compiled
    seconds = median(timed(one_round) for _ in range(_ROUNDS))
    rank = SOLVERS[settings.solver].rank(settings)
    bytes_read = _PASSES.get(settings.solver, 2) * len(train) * 4.0 * rank
    speed = read_speed()
    return MemorySpeed(
        machine_gb_per_s=speed / 1e9,
        round_seconds=seconds,
        round_gb=bytes_read / 1e9,
        round_gb_per_s=bytes_read / seconds / 1e9,
        share_of_bandwidth=bytes_read / seconds / speed,
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
    with tempfile.TemporaryDirectory() as folder:
        return float(in_own_process(fit_seconds, data, test, settings, NUMBA_CACHE_DIR=folder))


def fit_seconds(data: str, test: float, settings: Settings) -> float:
    """Seconds of fitting in this process."""
    train, _ = load(data).split(test, seed=settings.seed)
    return timed(lambda: FedMMF(**settings.model_dump()).fit(train))
