"""The printed tables: where each is, what prints it, and its probe.

Code changes, and a printed table does not. So `experiments/docs/probes.json` has the digits that
the probe of each table gave, and the commit at which the table was printed. Other digits mean that
the table is stale, and so do other digits of a public set that it is about.

`make tables` runs all probes, and the commands of every table that is stale.
"""

import json
import math
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fedmmf_experiments import probes
from fedmmf_experiments.result_cache import write_text

ACCURACY, SPEED = "experiments/docs/reproduction.md", "experiments/docs/benchmarks.md"
ATTACKS, AGGREGATION = "docs/attacks.md", "docs/aggregation.md"
PRIVATE = "experiments/docs/private.md"
SETS = ("ml-100k", "ml-1m", "lastfm")
# What floating point may change: tables show four digits at most, and some probes are rounded to
# five, the last of which differs between processors where there is a tie.
RELATIVE, ABSOLUTE = 1e-6, 2e-5


@dataclass(frozen=True)
class PrintedTable:
    """A printed table; its data are the public sets that it is about."""

    name: str
    page: str
    commands: tuple[str, ...]
    data: tuple[str, ...]
    probe: Callable[[], object]
    is_slow: bool = False  # its probe takes some seconds

    def __str__(self) -> str:
        return self.name

    @property
    def advice(self) -> str:
        """What to do where it is stale."""
        runs = f"`make tables NAME={self.name}` runs {'; '.join(self.commands)}"
        return f"the table {self.name} in {self.page} is stale: {runs}"

    def digits(self) -> list[float]:
        """What the probe gives now."""
        return list(probes.numbers(self.probe()))


_FACTORIAL = "fedmmf reproduce factorial --mask none --mask mean --mask lr"
_FOLDS = "fedmmf reproduce newcomers --order folds --solver vb"
_AUDIT = "fedmmf audit --data ml-100k --sharing adaptive --threshold-j 0.05"
_100K, _1M = SETS[:1], SETS[1:2]
TABLES = (
    PrintedTable(
        "table1",
        ACCURACY,
        ("fedmmf reproduce table1 --data ml-100k --data lastfm --runs 10 --out build/tables/1",),
        ("ml-100k", "lastfm"),
        probes.of_table1,
        is_slow=True,
    ),
    PrintedTable("solver", ACCURACY, ("fedmmf reproduce solver",), SETS, probes.of_solver),
    PrintedTable(
        "factorial",
        ACCURACY,
        (
            f"{_FACTORIAL} --splits 10 --factors 20 --factors 8 --out build/tables/factorial",
            f"{_FACTORIAL} --data ml-1m --test 0.1 --splits 3 --out build/tables/factorial-ml-1m",
        ),
        ("ml-100k", "ml-1m"),
        partial(probes.of_factorial, "random"),
    ),
    PrintedTable(
        "factorial-splits",
        ACCURACY,
        (
            f"{_FACTORIAL} --split published --splits 5 --out build/tables/published",
            f"{_FACTORIAL} --split time --splits 5 --out build/tables/time",
        ),
        _100K,
        partial(probes.of_factorial, "time"),
    ),
    PrintedTable(
        "newcomers",
        ACCURACY,
        ("fedmmf reproduce newcomers",),
        _100K,
        partial(probes.of_newcomers, "time"),
        is_slow=True,
    ),
    PrintedTable(
        "newcomers-folds",
        ACCURACY,
        (
            f"{_FOLDS} --draws 10 --mask mean --mask lr",
            f"{_FOLDS} --draws 3 --mask mean --likelihood ordinal",
            f"{_FOLDS} --data ml-1m --mask mean",
        ),
        ("ml-100k", "ml-1m"),
        partial(probes.of_newcomers, "folds"),
        is_slow=True,
    ),
    PrintedTable(
        "newcomer-lists",
        ACCURACY,
        (
            "fedmmf reproduce newcomer-lists",
            "fedmmf reproduce newcomer-lists --data lastfm --implicit",
        ),
        ("ml-100k", "lastfm"),
        probes.of_newcomer_lists,
        is_slow=True,
    ),
    PrintedTable(
        "dp",
        PRIVATE,
        (
            "fedmmf reproduce dp --data ml-1m --test 0.1 --splits 3 --out build/tables/dp-ml-1m",
            "fedmmf reproduce dp --out build/tables/dp",
        ),
        ("ml-100k", "ml-1m"),
        probes.of_dp,
        is_slow=True,
    ),
    PrintedTable(
        "dp-lists",
        PRIVATE,
        (
            "fedmmf reproduce dp-lists --data ml-1m --splits 3 --out build/tables/lists-ml-1m",
            "fedmmf reproduce dp-lists --splits 3 --out build/tables/dp-lists",
        ),
        ("ml-100k", "ml-1m"),
        probes.of_dp_lists,
        is_slow=True,
    ),
    PrintedTable(
        "dp-users",
        PRIVATE,
        (
            "fedmmf reproduce dp-users --users 943,6040,30000,100000,1000000"
            " --out build/tables/dp-users",
        ),
        (),
        probes.of_dp_users,
        is_slow=True,
    ),
    PrintedTable("training", SPEED, ("fedmmf bench training",), _1M, probes.of_training),
    PrintedTable(
        "growth",
        SPEED,
        (
            "fedmmf bench growth",
            "fedmmf bench growth --solver vb --ratings 100000000 --items 100000 --per-user 100 "
            "--sharing strict",
        ),
        (),
        partial(probes.of_rounds, "plain"),
    ),
    PrintedTable(
        "lists",
        SPEED,
        (
            "fedmmf train --data ml-100k --mask mean --solver vb --objective rating --top 10 "
            "--relevant-from 4",
        ),
        _100K,
        probes.of_lists,
    ),
    PrintedTable(
        "ranking",
        SPEED,
        (
            "fedmmf bench ranking --data ml-100k --splits 3",
            "fedmmf bench ranking --data ml-1m --splits 3",
            "fedmmf bench ranking --data lastfm --implicit --splits 3",
            "fedmmf bench ranking --data bookshop --only-summed",
            "fedmmf bench list-speed",
        ),
        SETS,
        probes.of_ranking,
        is_slow=True,
    ),
    PrintedTable(
        "first-answer",
        SPEED,
        ("fedmmf bench first-answer",),
        SETS,
        probes.of_first_answer,
    ),
    PrintedTable("card", SPEED, ("fedmmf bench engines --data ml-1m",), _1M, probes.of_card),
    PrintedTable("ray", SPEED, ("fedmmf bench ray",), (), partial(probes.of_rounds, "strict")),
    PrintedTable(
        "audit",
        ATTACKS,
        tuple(
            f"{_AUDIT} --mask {mask} --out build/tables/{mask}"
            for mask in ("mean", "lr", "fm", "nn")
        ),
        _100K,
        probes.of_audit,
    ),
    PrintedTable(
        "figures",
        ATTACKS,
        ("fedmmf reproduce attacks --out build/tables/attacks",),
        _1M,
        probes.of_attack_figures,
    ),
    PrintedTable(
        "strengths",
        ATTACKS,
        ("fedmmf reproduce strengths --out build/tables/strengths",),
        _100K,
        probes.of_strengths,
    ),
    PrintedTable(
        "strict",
        ATTACKS,
        ("fedmmf reproduce strict --out build/tables/strict",),
        _100K,
        partial(probes.of_first_sums, "sgd"),
        is_slow=True,
    ),
    PrintedTable(
        "strict-vb",
        ATTACKS,
        ("fedmmf reproduce strict --solver vb --out build/tables/strict-vb",),
        _100K,
        partial(probes.of_first_sums, "vb"),
    ),
    PrintedTable(
        "rounds",
        ATTACKS,
        ("fedmmf reproduce rounds --out build/tables/rounds",),
        _100K,
        partial(probes.of_many_sums, "sgd"),
    ),
    PrintedTable(
        "rounds-vb",
        ATTACKS,
        ("fedmmf reproduce rounds --solver vb --out build/tables/rounds-vb",),
        _100K,
        partial(probes.of_many_sums, "vb"),
    ),
    PrintedTable("epsilon", AGGREGATION, ("fedmmf reproduce epsilon",), (), probes.of_epsilon),
    PrintedTable(
        "efficiency",
        AGGREGATION,
        ("fedmmf reproduce efficiency --out build/tables/efficiency",),
        _100K,
        probes.of_efficiency,
    ),
    PrintedTable(
        "secagg",
        AGGREGATION,
        (
            "fedmmf bench secagg --clients 100 --length 100000 --neighbours 51 --drop 0.05",
            "fedmmf bench session",
        ),
        (),
        probes.of_session,
    ),
)
BY_NAME = {table.name: table for table in TABLES}
Stored = dict[str, dict[str, Any]]
"""By name of a table: the commit at which it was printed, digits of its probe and of its data."""
_NOTHING: dict[str, Any] = {"digits": [], "data": {}}


def read(path: Path) -> Stored:
    """Read the stored digits."""
    stored: Stored = json.loads(path.read_text())
    return stored


def write(path: Path, stored: Stored) -> None:
    """Store digits, a line for each table."""
    lines = [f"  {json.dumps(name)}: {json.dumps(stored[name])}" for name in sorted(stored)]
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def are_equal(found: Sequence[float], stored: Sequence[float]) -> bool:
    """Whether two probes gave the same digits."""
    if len(found) != len(stored):
        return False
    pairs = zip(found, stored, strict=True)
    near = partial(math.isclose, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return all(near(a, b) or (math.isnan(a) and math.isnan(b)) for a, b in pairs)


def is_stale(table: PrintedTable, known: dict[str, Any]) -> bool:
    """Whether the probe, or a public set that the table is about, has other digits than stored."""
    sets = (are_equal(probes.data_digits(name), known["data"].get(name, ())) for name in table.data)
    return not (all(sets) and are_equal(table.digits(), known["digits"]))


def print_again(table: PrintedTable, path: Path) -> None:
    """Run the commands of a table; then store its digits and the commit."""
    _say(f"{table.name} in {table.page}:")
    for command in table.commands:
        _say(command)
        subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True)  # noqa: S603
    commit = commit_of_tree()
    write(path, read(path) | {table.name: {"commit": commit, **digits_of(table)}})
    _say(f"Now put it into {table.page}, and below it: {stamp(table.name, commit)}")


def digits_of(table: PrintedTable) -> dict[str, Any]:
    """Digits of a table's probe and of its data, as they are stored."""
    data = {name: _rounded(probes.data_digits(name)) for name in table.data}
    return {"digits": _rounded(table.digits()), "data": data}


def stamp(name: str, commit: str) -> str:
    """The line below a table."""
    return f"Table `{name}`, printed at commit `{commit}`."


def _rounded(digits: Sequence[float]) -> list[float]:
    return [float(f"{digit:.9g}") for digit in digits]


def commit_of_tree() -> str:
    """The commit that is checked out; `-dirty` if files have changed since."""
    order = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(order, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Print again what is stale, or what is named after the file of digits."""
    path, names = Path(sys.argv[1]), sys.argv[2:]
    if unknown := set(names) - set(BY_NAME):
        sys.exit(f"the tables are {', '.join(BY_NAME)}; got {', '.join(sorted(unknown))}")
    stored, wanted = read(path), [BY_NAME[name] for name in names]
    if not names:
        wanted = [table for table in TABLES if is_stale(table, stored.get(table.name, _NOTHING))]
        _say(f"stale: {', '.join(table.name for table in wanted) or 'none'}")
    for table in wanted:
        print_again(table, path)


if __name__ == "__main__":
    main()
