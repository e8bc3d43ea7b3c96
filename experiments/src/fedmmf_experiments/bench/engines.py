"""The engine on torch: seconds of whole trainings, and what the card could do at best.

Needs numpy and torch alone: `python -m fedmmf_experiments.bench.engines` runs on a bare machine
with a card.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fedmmf.engines.contract import Cohort
from fedmmf.engines.torch.device import found
from fedmmf.engines.torch.vb_fused import width_of
from fedmmf.engines.torch.vb_rounds import VbRounds
from fedmmf.errors import FedMMFError
from fedmmf.solvers.vb.party import starting_user
from fedmmf.solvers.vb.shapes import VbShape
from fedmmf_experiments.bench.engine_cases import (
    BILLION,
    ML_32M,
    EngineCase,
    Run,
    from_file,
    scored,
    synthetic,
)

REPEATS = 5
STRICT = Cohort(bound=32.0, scale=2.0**8, total_bound=2.0**20, total_scale=2.0**25)


@dataclass(frozen=True)
class CardFacts:
    """Name, versions and measured speeds of a device."""

    name: str
    torch: str
    clocks_and_power: str  # as the driver reports them under load; empty: not known
    copied_gb_per_s: float  # read and written
    float16_tflops: float
    float32_tflops: float


@dataclass(frozen=True)
class EngineRow:
    """A training, or several that are averaged, on a device."""

    case: str
    ratings: int
    factors: int
    sums: str
    rounds: int
    seconds: float  # of later rounds alone by the card's clock, or a training by the host's; median
    round_ms: float
    first_seconds: float  # set-up and first round, or the whole first training; may compile
    memory_gb: float
    limit_ms: float  # of a round, if memory or arithmetic were used as well as they can be
    share_of_limit: float
    limited_by: str
    rmse: float | None = None
    ndcg_at_10: float | None = None  # where items are ranked


def card_of(device: torch.device) -> CardFacts:
    """Measure a device's memory bandwidth and its matrix product rates."""
    bytes_ = torch.empty(1 << 28, device=device)
    copy = _seconds(lambda: bytes_.clone(), device)
    rates = []
    for kind in (torch.float16, torch.float32):
        matrix = torch.randn((8192, 8192), device=device, dtype=kind)
        rates.append(2 * 8192**3 / _seconds(lambda m=matrix: m @ m, device) / 1e12)  # type: ignore[misc]
    name = torch.cuda.get_device_name(device)
    moved = 2 * 4 * bytes_.numel() / copy / 1e9
    for _ in range(100):  # so that it is under load when clocks are read
        matrix @ matrix
    clocks = _smi()
    torch.cuda.synchronize(device)
    return CardFacts(name, torch.__version__, clocks, moved, *rates)


def _smi() -> str:
    """Clocks and power, of a program that comes with the driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    asked = "driver_version,clocks.sm,clocks.mem,power.draw,power.limit"
    order = [program, f"--query-gpu={asked}", "--format=csv,noheader"]
    told = subprocess.run(order, capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    return told.stdout.strip()


def _seconds(act: Callable[[], Any], device: torch.device, repeats: int = REPEATS) -> float:
    """Median seconds, by the card's own clock."""
    act()
    found: list[float] = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        act()
        end.record()
        torch.cuda.synchronize(device)
        found.append(begin.elapsed_time(end) / 1000)
    return sorted(found)[len(found) // 2]


def _rounds(case: EngineCase, device: torch.device, number: int = 0) -> VbRounds:
    """A run from its start."""
    update_shape, n_users = case.given.update_shape, case.given.lists.n_users
    start = np.tile(starting_user(cast(VbShape, update_shape)), (n_users, 1))
    parties = {"value": start, "looks": np.zeros(n_users, np.int64)}
    return VbRounds.of(case.given, device, 1).begin(case.halves[number], case.n_raters, parties)


def measured(
    case: EngineCase, device: torch.device, card: CardFacts, sums: str = "plain"
) -> EngineRow:
    """Rounds of a case, cold and warm."""
    torch.cuda.reset_peak_memory_stats(device)
    began = time.perf_counter()
    rounds = _rounds(case, device)
    rounds.one_round(1)
    torch.cuda.synchronize(device)
    first = time.perf_counter() - began
    done = 16
    for t in range(2, done + 1):  # until all kinds of rounds have been done, or recorded
        rounds.one_round(t)

    def again() -> None:
        nonlocal done
        for _ in range(case.rounds):
            done += 1
            rounds.one_round(done)

    seconds = _seconds(again, device, 3)
    rounds.state()  # checks that numbers stayed finite
    return told(_row(case, card, sums, (case.rounds, seconds, first)))


def told(row: EngineRow) -> EngineRow:
    """Print a row for people who wait, and return it."""
    sys.stderr.write(f"{row.case}, k={row.factors}, {row.sums}: {row.round_ms:.2f} ms a round\n")
    return row


def whole(case: EngineCase, device: torch.device, card: CardFacts) -> EngineRow:
    """All runs of a packed case, averaged, from ratings on the host to factors on the host."""
    torch.cuda.reset_peak_memory_stats(device)
    times = []
    for _ in range(4):  # the first compiles
        fresh = replace(case, given=replace(case.given))  # nothing is known of it
        began = time.perf_counter()
        runs = _trained(fresh, device)
        times.append(time.perf_counter() - began)
    rounds = case.rounds * len(case.halves)
    sums = "fixed" if case.given.cohorts[0].is_fixed else "plain"
    row = _row(case, card, sums, (rounds, sorted(times[1:])[1], times[0]))
    return told(row if case.tested is None else _with_score(row, *scored(case, case.tested, runs)))


def _trained(case: EngineCase, device: torch.device) -> list[Run]:
    """Train all runs, and copy what they found to the host."""
    known, runs = case.given.design[:, : case.given.update_shape.n_joint], []
    for number in range(len(case.halves)):
        rounds = _rounds(case, device, number)
        for t in range(1, case.rounds + 1):
            rounds.one_round(t)
        mean = rounds.state()["mean"]
        runs.append((np.hstack((mean, known)), rounds.parties()["value"]))
    return runs


def _with_score(row: EngineRow, name: str, value: float) -> EngineRow:
    return replace(row, rmse=value) if name == "rmse" else replace(row, ndcg_at_10=value)


def _row(
    case: EngineCase, card: CardFacts, sums: str, about: tuple[int, float, float]
) -> EngineRow:
    (rounds, seconds, first), (limit, by) = about, limit_of(case, card)
    return EngineRow(
        case=case.name,
        ratings=len(case.given.lists.items),
        factors=case.given.update_shape.rank - 1,
        sums=sums,
        rounds=rounds,
        seconds=seconds,
        round_ms=1000 * seconds / rounds,
        first_seconds=first,
        memory_gb=torch.cuda.max_memory_allocated() / 1e9,
        limit_ms=1000 * limit,
        share_of_limit=limit * rounds / seconds,
        limited_by=by,
    )


def limit_of(case: EngineCase, card: CardFacts) -> tuple[float, str]:
    """Return the shortest possible seconds of a round, and what limits them.

    Memory: items and ratings are read twice, places once, a row of each rating written and read.
    Arithmetic: products of tiles by tensor cores, inverses by the other units.
    """
    n, update_shape = len(case.given.lists.items), case.given.update_shape
    width, stride = width_of(update_shape.n_own), -(-update_shape.rank // 8) * 8
    moved = n * (2 * 8 + 4 + 2 * 4 * stride) + case.given.lists.n_users * 2 * 12 * width
    products = 10.0 * n * width**2
    inverses = 2.0 * case.given.lists.n_users * update_shape.n_own**3
    memory = moved / card.copied_gb_per_s / 1e9
    arithmetic = products / card.float16_tflops / 1e12 + inverses / card.float32_tflops / 1e12
    return (memory, "memory") if memory >= arithmetic else (arithmetic, "arithmetic")


def synthetic_rows(device: torch.device, card: CardFacts, *, is_quick: bool) -> list[EngineRow]:
    """The shapes that are always measured."""
    rows = []
    for factors in (10, 20):
        for implicit in ("both", "none"):
            case = synthetic(ML_32M, factors, device, implicit)
            case = replace(case, name=f"ml-32m, {implicit}")
            rows.append(measured(case, device, card))
        case = case.summed(STRICT)  # the other one goes, and with it what is on the card
        rows.append(measured(case, device, card, "fixed"))
    if not is_quick:
        del case
        torch.cuda.empty_cache()
        billion = synthetic(BILLION, 10, device, rounds=5)
        rows.append(measured(replace(billion, name="a billion"), device, card))
    return rows


def packed_rows(case: EngineCase, device: torch.device, card: CardFacts) -> list[EngineRow]:
    """A packed case as a whole, and its rounds alone."""
    row = whole(case, device, card)
    alone = replace(case, name=f"{case.name}, rounds alone")
    return [row, measured(alone, device, card, row.sums)]


def main() -> None:
    """Measure synthetic shapes and packed cases, and print JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m fedmmf_experiments.bench.engines", description=main.__doc__
    )
    parser.add_argument(
        "files", nargs="*", type=Path, help="what fedmmf bench engines --pack wrote"
    )
    parser.add_argument("--quick", action="store_true", help="without a billion ratings")
    parser.add_argument("--only-files", action="store_true", help="without synthetic shapes")
    asked = parser.parse_args()
    try:
        cases, device = [from_file(path) for path in asked.files], found("cuda")
        card = card_of(device)
        rows = [row for case in cases for row in packed_rows(case, device, card)]
        if not asked.only_files:
            rows += synthetic_rows(device, card, is_quick=asked.quick)
    except FedMMFError as error:
        sys.exit(f"error: {error}")
    told_all = {"card": asdict(card), "rows": [asdict(row) for row in rows]}
    sys.stdout.write(json.dumps(told_all, indent=2) + "\n")


if __name__ == "__main__":
    main()
