"""Compare the speed of two revisions: their benchmarks alternate in one run.

Example: python experiments/scripts/compare_speed.py --old fb0ad55 --turns 5

Each turn runs `fedmmf bench rounds` and `fedmmf bench strict` of the old revision and of this
tree, one after the other, so that both meet the same load of the machine. A row shows the
median of the ratios new/old of all turns, and every ratio, because one alone says little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Case(NamedTuple):
    """One benchmark of one data set with one solver."""

    bench: str
    data: str
    solver: str

    def seconds(self, tree: Path, repeats: int) -> float:
        """Seconds of a round in the tree, as its own benchmark prints them."""
        command = [sys.executable, "-m", "fedmmf", "bench", self.bench, "--data", self.data]
        command += ["--solver", self.solver, "--repeats", str(repeats), "--json"]
        sources = [tree / "src", tree / "experiments" / "src"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources))}
        printed = subprocess.run(
            command, env=environment, cwd=tree, check=True, capture_output=True, text=True
        )
        (row,) = json.loads(printed.stdout)["rows"]
        return float(row["round_s" if self.bench == "rounds" else "strict_s"])


def compare(old: Path, case: Case, turns: int, repeats: int) -> list[float]:
    """Ratios new/old of the turns, which alternate in who goes first."""
    ratios = []
    for turn in range(turns):
        order = [old, ROOT] if turn % 2 == 0 else [ROOT, old]
        seconds = {tree: case.seconds(tree, repeats) for tree in order}
        ratios.append(seconds[ROOT] / seconds[old])
    return ratios


def main() -> None:
    """Check the old revision out beside this one, and print one row per case."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--old", required=True, help="revision to compare with")
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--repeats", type=int, default=20)
    options.add_argument("--data", nargs="*", default=["ml-100k", "ml-1m"])
    options.add_argument("--bench", nargs="*", default=["rounds", "strict"])
    given = options.parse_args()
    cases = [
        Case(bench, data, solver)
        for data in given.data
        for bench in given.bench
        for solver in ("sgd", "vb")
    ]
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "old")
        subprocess.run(
            ["git", "worktree", "add", "--detach", "--quiet", str(old), given.old],
            cwd=ROOT,
            check=True,
        )
        try:
            for case in cases:
                ratios = compare(old, case, given.turns, given.repeats)
                every = " ".join(f"{ratio:.3f}" for ratio in ratios)
                print(f"{' '.join(case):22} {statistics.median(ratios):.3f}  ({every})", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
