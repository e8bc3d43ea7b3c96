"""`fedmmf reproduce newcomers` and `newcomer-lists`: users whom training did not know."""

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

import typer

from fedmmf.cli.choices import JsonOption, SeedOption
from fedmmf.cli.options import expanded
from fedmmf.cli.output import errors, plain, print_json, results, table
from fedmmf.data import load
from fedmmf.errors import SettingsError
from fedmmf.settings.groups import names_for
from fedmmf_experiments.paired import Gain
from fedmmf_experiments.paper.newcomer_lists import FACTORS, LENGTH, list_rows, n_judged
from fedmmf_experiments.paper.newcomers import (
    FOLDS,
    KNOWN,
    Likelihood,
    NewcomerRow,
    Situation,
    counts_of,
    newcomer_rows,
    situations_of,
)

app = typer.Typer()
FoldsOption = Annotated[
    int, typer.Option(min=1, max=FOLDS, help=f"How many of the {FOLDS} folds over users.")
]


@dataclass(frozen=True)
class NewcomerChoice:
    """Options for who is new, and which models they meet."""

    data: Annotated[str, typer.Option(help="Data set; with timestamps, but for folds.")] = "ml-100k"
    order: Annotated[
        Literal["time", "folds"],
        typer.Option(
            help="Newcomers of the latest fifth, by time; or folds over users, in random order."
        ),
    ] = "time"
    folds: FoldsOption = FOLDS
    draws: Annotated[
        int, typer.Option(min=1, help="Random orders of newcomers' ratings, of each fold.")
    ] = 1
    likelihood: Annotated[Likelihood, typer.Option(help="What ratings are; ordinal: levels.")] = (
        "gaussian"
    )
    mask: Annotated[list[str], typer.Option(help="Mask; may be given repeatedly; else all.")] = (
        field(default_factory=list)
    )
    solver: Annotated[
        list[str], typer.Option(help="Solver; may be given repeatedly; else all.")
    ] = field(default_factory=list)

    @property
    def models(self) -> list[tuple[str, str]]:
        """Masks with solvers, by solver."""
        masks, solvers = (_named(name, getattr(self, name)) for name in ("mask", "solver"))
        return [(mask, solver) for solver in solvers for mask in masks]

    @property
    def title(self) -> str:
        """Who the newcomers are."""
        if self.order == "folds":
            orders = "in random order" if self.draws == 1 else f"{self.draws} random orders of each"
            return f"{self.data}, {self.folds} of {FOLDS} folds over users, {orders}"
        return f"{self.data}, latest fifth, users without an earlier rating"


def _named(kind: str, given: list[str]) -> list[str]:
    known = names_for(kind)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise SettingsError(f"--{kind} must be one of {', '.join(known)}; got {unknown[0]!r}")
    return given or list(known)


@app.command("newcomers", epilog="Example: fedmmf reproduce newcomers --data ml-100k")
@expanded
def newcomers(chosen: NewcomerChoice, seed: SeedOption = 0, json: JsonOption = False) -> None:
    """Errors of users whom training did not know, for every mask and solver."""
    models = chosen.models
    about = (chosen.order, chosen.folds, seed, chosen.draws)
    found = situations_of(load(chosen.data), *about)
    rows = list(newcomer_rows(found, seed, _tell, models, chosen.likelihood))
    counts = counts_of(found)
    if json:
        print_json({"data": chosen.data, "tests": counts, "rows": [asdict(row) for row in rows]})
        return
    for made in _show_newcomers(chosen.title, counts, rows):
        results.print(made)


def _tell(name: str) -> None:
    errors.print(f"{plain(name)} ...")


def _show_newcomers(
    title: str, counts: dict[str, dict[str, int]], rows: list[NewcomerRow]
) -> tuple[Any, Any]:
    """Two tables, since they are of different ratings."""
    names = [[row.name] for row in rows]
    first = [[f"{error:.4f}" for error in (row.unseen, row.joined)] for row in rows]
    by_known = [
        [f"{e:.4f}{_mark(row.by_known_differences.get(n))}" for n, e in row.by_known.items()]
        for row in rows
    ]
    columns = ["model", "nothing known", "ten ratings known"]
    shared = counts["by_known"]
    title_by_known = (
        f"By known ratings: {shared['newcomers']:,} newcomers, "
        f"{shared['ratings']:,} ratings after their first {max(KNOWN)}"
    )
    by_known_columns = ["model", *map(str, KNOWN)]
    counted = [a + b for a, b in zip(names, by_known, strict=True)]
    caption = (
        "< better, > worse than item and user bias: the 95 % interval of the mean over\n"
        "newcomers of each one's mean squared error. Columns are RMSE over ratings"
    )
    second = replace(table(title_by_known, by_known_columns, counted), caption=caption)
    return table(title, columns, [a + b for a, b in zip(names, first, strict=True)]), second


def _mark(difference: Gain | None) -> str:
    """Which side of 0 all of an interval is on."""
    if difference is None or difference.low <= 0 <= difference.high:
        return ""
    return " <" if difference.high < 0 else " >"


@app.command(
    "newcomer-lists", epilog="Example: fedmmf reproduce newcomer-lists --data lastfm --implicit"
)
def newcomer_lists(
    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k",
    implicit: Annotated[
        bool, typer.Option("--implicit", help="Without ratings: all that somebody has counts.")
    ] = False,
    folds: FoldsOption = FOLDS,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Lists of users whom training did not know, beside the most popular items."""
    ratings = load(data).as_implicit() if implicit else load(data)
    found = Situation.folds(ratings, folds, seed)
    rows, n_users = list(list_rows(found, seed, _tell)), n_judged(found)
    if json:
        print_json({"data": data, "newcomers": n_users, "rows": [asdict(row) for row in rows]})
        return
    lines = [[row.model, *(f"{value:.4f}" for value in row.by_known.values())] for row in rows]
    title = (
        f"{data}, {folds} of {FOLDS} folds over users: nDCG@{LENGTH} of {n_users:,} newcomers, by "
        f"known items; {FACTORS} factors"
    )
    results.print(table(title, ["model", *map(str, KNOWN)], lines))
