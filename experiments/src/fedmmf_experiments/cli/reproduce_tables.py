"""`fedmmf reproduce factorial` and `all`: tables that the paper lacks, and all tables in one go."""

import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedmmf.cli.choices import JsonOption
from fedmmf.cli.files import GoingOnOption, confirm_folder
from fedmmf.cli.options import expanded
from fedmmf.cli.output import errors, plain, print_json, progress_bar, results, table
from fedmmf.data import load
from fedmmf.errors import SettingsError
from fedmmf.settings.groups import names_for
from fedmmf_experiments.paper.factorial import (
    MASKS,
    SOLVERS,
    Factorial,
    FactorialRow,
    cells,
    factorial_markdown,
)
from fedmmf_experiments.paper.splitting import Splitting
from fedmmf_experiments.result_cache import ResultCache, write_text

app = typer.Typer()


@dataclass(frozen=True)
class FactorialChoice:
    """Options for what is combined, and on which data."""

    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k"
    split: Annotated[
        Literal["random", "published", "time"],
        typer.Option(help="At random, u1 to u5 of ml-100k, or growing windows of time."),
    ] = "random"
    test: Annotated[float, typer.Option(help="Share to test on, of random splits.")] = 0.2
    splits: Annotated[int, typer.Option(min=1, help="How many.")] = 10
    mask: Annotated[list[str], typer.Option(help="Mask; may be given repeatedly.")] = field(
        default_factory=lambda: list(MASKS)
    )
    solver: Annotated[list[str], typer.Option(help="Solver; may be given repeatedly.")] = field(
        default_factory=lambda: list(SOLVERS)
    )
    factors: Annotated[list[int], typer.Option(help="Factors; may be given repeatedly.")] = field(
        default_factory=lambda: [20]
    )


@app.command(
    "factorial",
    epilog="Example: fedmmf reproduce factorial --data ml-100k --splits 10 --out factorial",
)
@expanded
def factorial(
    chosen: FactorialChoice,
    out: GoingOnOption = Path("factorial"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    json: JsonOption = False,
) -> None:
    """Mask, its fit, item prior, implicit prior and solver, all combined, with paired intervals."""
    for name, given in (("mask", chosen.mask), ("solver", chosen.solver)):
        unknown = set(given) - set(names_for(name))
        if unknown:
            raise SettingsError(
                f"--{name} must be one of {', '.join(names_for(name))}; got {sorted(unknown)[0]!r}"
            )
    ratings = load(chosen.data)
    splitting = Splitting(chosen.split, chosen.splits, chosen.test, seed)
    run = Factorial(ratings, splitting, ResultCache(out))
    wanted = cells(chosen.mask, chosen.solver, chosen.factors)
    with progress_bar(chosen.data) as progress:
        rows = list(run.rows(wanted, lambda name, n: progress(name, n, chosen.splits)))
    name = f"factorial-{chosen.data}-{chosen.split}.md"
    write_text(out / name, factorial_markdown(rows))
    if json:
        print_json({"data": chosen.data, "rows": [row.to_json_dict() for row in rows]})
        return
    results.print(_show(rows, f"{chosen.data}, {chosen.splits} splits: {chosen.split}"))
    confirm_folder(out, f"{name}, runs/")


def _show(rows: list[FactorialRow], title: str) -> Any:
    lines = [
        [
            f"{row.cell.solver} {row.cell.factors}",
            row.cell.mask if row.cell.mask == "none" else f"{row.cell.mask}, {row.cell.fit}",
            "on" if row.cell.item_prior else "off",
            row.cell.implicit_prior,
            f"{row.mean:.4f}",
            "" if row.over_mean is None else str(row.over_mean),
        ]
        for row in rows
    ]
    columns = ["solver", "mask", "item", "implicit", "RMSE", "less user mean, alone"]
    return table(title, columns, lines)


# Each line is a command; the second one of a pair is its small version.
EVERYTHING = (
    (
        "table1 --data ml-100k --data lastfm --runs 10",
        "table1 --data ml-100k --data lastfm --runs 1",
    ),
    ("table1 --data ml-1m --runs 3", ""),
    ("solver", "solver --problem ml-100k --splits 1"),
    (
        "factorial --data ml-100k --splits 10 --factors 20 --factors 8",
        "factorial --data ml-100k --splits 1 --mask none --mask mean --mask lr",
    ),
    (
        "factorial --data ml-1m --test 0.1 --splits 3 --mask none --mask mean --mask lr",
        "",
    ),
    (
        "factorial --data ml-100k --split published --splits 5 --mask none --mask mean --mask lr",
        "",
    ),
    (
        "factorial --data ml-100k --split time --splits 5 --mask none --mask mean --mask lr",
        "factorial --data ml-100k --split time --splits 1 --solver vb --mask none --mask mean",
    ),
    ("newcomers", "newcomers"),
    ("newcomers --order folds --solver vb --mask mean --mask lr", ""),
    ("newcomer-lists", ""),
    ("strengths", "strengths --users 50 --strength 60"),
    ("attacks --data ml-1m", "attacks --data ml-100k"),
    ("strict", "strict --size 12 --size 50"),
    ("rounds", "rounds --size 12 --rounds 30"),
    ("efficiency", "efficiency --rounds 1"),
    ("dp --data ml-100k --splits 10", "dp --epsilon 8 --splits 1 --rows vb-features,item-means"),
    ("dp-lists --data ml-1m --splits 3", "dp-lists --epsilon 8 --splits 1 --rows mask,popularity"),
    ("dp-users", ""),
)
# These are quick enough, and keep nothing.
WITHOUT_FOLDER = ("solver", "newcomers", "newcomer-lists")


@app.command("all", epilog="Example: fedmmf reproduce all --quick --out reproduced")
def everything(
    context: typer.Context,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version of most of them.")
    ] = False,
    out: GoingOnOption = Path("reproduced"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    json: JsonOption = False,
) -> None:
    """All tables, one command after the other, and what each took."""
    group, took = context.parent, {}
    if group is None or not isinstance(group.command, typer.core.TyperGroup):
        raise SettingsError("`fedmmf reproduce all` is a command of its own")
    for line in filter(None, (pair[quick] for pair in EVERYTHING)):
        words = [*shlex.split(line), "--seed", str(seed)]
        if words[0] not in WITHOUT_FOLDER:
            words += ["--out", str(out / "-".join(_folder_of(line)))]
        errors.print(f"fedmmf reproduce {plain(shlex.join(words))}", style="bold")
        began = time.perf_counter()
        group.command.main(args=words, prog_name="fedmmf reproduce", standalone_mode=False)
        took[line] = round(time.perf_counter() - began, 1)
    if json:
        print_json({"seconds": took})
        return
    lines = [[line, f"{seconds:.0f}"] for line, seconds in took.items()]
    results.print(table("what each took", ["command", "s"], lines))


def _folder_of(line: str) -> list[str]:
    """The command, and its words that are no options: what one writes another leaves alone."""
    return [word for word in shlex.split(line) if not word.startswith("-")]
