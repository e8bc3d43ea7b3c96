"""`fedmmf reproduce efficiency|epsilon|attacks|strengths|strict|rounds`: costs and leaks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.cli.choices import JsonOption, SeedOption, UnusedSeedOption
from fedmmf.cli.files import FolderOption, GoingOnOption, confirm_folder
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import (
    Columns,
    FittingTable,
    print_json,
    print_markdown,
    progress_bar,
    results,
    table,
)
from fedmmf.data import load
from fedmmf.settings import Settings
from fedmmf_experiments.paper import attack_figures, many_rounds, strengths, strict_sums
from fedmmf_experiments.paper import efficiency as experiment
from fedmmf_experiments.paper import epsilon as epsilons
from fedmmf_experiments.paper import vb_rounds as vb
from fedmmf_experiments.result_cache import ResultCache

app = typer.Typer()

THRESHOLDS = [0.03, 0.05, 0.07]
SIZES = list(strict_sums.COHORTS)
SOME_SIZES, MANY_ROUNDS = list(many_rounds.SIZES), list(many_rounds.ROUNDS)
_EPSILON_COLUMNS: Columns = {
    "noise": lambda row: row.noise,
    "delta": lambda row: f"{row.delta:g}",
    "clip": lambda row: f"{row.clip:g}",
    "rounds": lambda row: f"{row.rounds}",
    "parties": lambda row: f"{row.n_parties:,}",
    "entries": lambda row: f"{row.n_entries:,}",
    "multiplier": lambda row: f"{row.multiplier:.4g}",
    "noise of a party, steps": lambda row: f"{row.steps:,.0f}",
    "epsilon": lambda row: f"{row.epsilon:.3f}",
    "continuous, analytic": lambda row: f"{row.analytic:.3f}",
    "continuous, losses": lambda row: f"{row.losses:.3f}",
}

SetOption = Annotated[str, typer.Option("--data", help="Data set.")]
_ALL_TRAIN = Settings(mask="lr", held_out=0.0)
_FM = Settings(mask="fm")
_LR = Settings(mask="lr")


@app.command("efficiency", epilog="Example: fedmmf reproduce efficiency --out efficiency")
@expanded
def efficiency(
    data: SetOption = "ml-100k",
    settings: Annotated[Settings, Only("mask", "factors", "seed")] = _ALL_TRAIN,
    threshold_j: Annotated[
        list[float], typer.Option(help="Of adaptive sharing; may be given repeatedly.")
    ] = THRESHOLDS,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds to measure.")] = 2,
    out: FolderOption = Path("efficiency"),
    json: JsonOption = False,
) -> None:
    """Seconds and bytes per round of every aggregation scheme, among real parties."""
    with progress_bar(data) as progress:
        report = experiment.run(
            load(data),
            settings,
            sorted(threshold_j),
            rounds,
            lambda done, of: progress("aggregation schemes", done, of),
        )
    experiment.write(report, out)
    if json:
        print_json(asdict(report))
        return
    columns = list(experiment.COLUMNS)[:-1]
    title = f"One round of {data}, {report.n_users:,} parties"
    results.print(_table(title, experiment.COLUMNS, columns, report.ways))
    results.print("Homomorphic ways are extrapolated from some ciphertexts.")
    confirm_folder(out, "efficiency.json, .md, .png, .svg")


@app.command("epsilon", epilog="Example: fedmmf reproduce epsilon")
def epsilon(seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Epsilon of ten configurations: as accounted for, and of a continuous Gaussian."""
    rows = epsilons.epsilon_table()
    if json:
        print_json({"rows": [asdict(row) for row in rows]})
        return
    print_markdown(_EPSILON_COLUMNS, rows)


@app.command(
    "attacks", epilog="Example: fedmmf reproduce attacks --data ml-1m --mask fm --out attacks"
)
@expanded
def attacks(
    data: SetOption = "ml-1m",
    settings: Annotated[Settings, Only("mask", "mask_strength", "cross_fit", "seed")] = _FM,
    out: FolderOption = Path("attacks"),
    json: JsonOption = False,
) -> None:
    """Figures 2a and 2b, and the same with stronger attacks; the paper used ml-10m."""
    with progress_bar(data) as progress:
        report = attack_figures.run(
            load(data), settings, lambda done, of: progress("attacks", done, of)
        )
    attack_figures.write(report, out)
    if json:
        print_json(asdict(report))
        return
    rows = [
        [row.attack, f"{row.mean:.4f}", "{:.4f} to {:.4f}".format(*row.interval)]
        for row in report.exact
    ]
    title = f"{data}, mask {settings.mask}"
    results.print(table(title, ["attack", "ratings exact", "95 %"], rows))
    confirm_folder(out, "attacks.json, attacks.md, figure-2a and -2b as .png and .svg")


@dataclass(frozen=True)
class Tried:
    """Options for the masks, their strengths and the attacked users."""

    mask: Annotated[list[str], typer.Option(help="May be given repeatedly.")] = field(
        default_factory=lambda: list(strengths.MASKS)
    )
    strength: Annotated[list[float], typer.Option(help="May be given repeatedly.")] = field(
        default_factory=lambda: list(strengths.STRENGTHS)
    )
    users: Annotated[int, typer.Option(min=1, help="Users to attack, at most.")] = strengths.N_USERS
    seed: SeedOption = 0

    def plan(self) -> strengths.StrengthPlan:
        """Make the plan of the experiment from the options."""
        return strengths.StrengthPlan(self.mask, self.strength, self.users, self.seed)


@app.command(
    "strengths", epilog="Example: fedmmf reproduce strengths --data ml-100k --out strengths"
)
@expanded
def by_strength(
    tried: Tried,
    data: SetOption = "ml-100k",
    out: GoingOnOption = Path("strengths"),
    json: JsonOption = False,
) -> None:
    """What attacks find, J and accuracy of masks, by the strength of their regularisation."""
    with progress_bar(data) as progress:
        report = strengths.run(
            load(data),
            tried.plan(),
            ResultCache(out),
            lambda done, of: progress("masks and strengths", done, of),
        )
    strengths.write(report, out)
    if json:
        print_json(asdict(report))
        return
    title = f"{data}, best attack on the masked ratings of {report.n_users:,} users"
    results.print(_table(title, strengths.COLUMNS, _FOUND, report.rows))
    title = f"{data}, J, shares that bend, and errors on {report.test:.0%} of the ratings"
    results.print(_table(title, strengths.COLUMNS, _COSTS, report.rows))
    confirm_folder(out, "strengths.json, .md, .png, .svg, runs/")


_FOUND = ["mask", "strength", "found", "95 %", "public", "recovered", "verdict"]
_COSTS = ["mask", "strength", "J", "J out of fold", "bent", "private", "LocalX RMSE", "FedMMF RMSE"]


def _table(title: str, known: Columns, shown: list[str], rows: Sequence[Any]) -> FittingTable:
    """Some of the columns: all of them are too wide for a terminal."""
    return table(title, shown, [[known[name](row) for name in shown] for row in rows])


@app.command("strict", epilog="Example: fedmmf reproduce strict --data ml-100k --out strict")
@expanded
def strict(
    data: SetOption = "ml-100k",
    settings: Annotated[
        Settings, Only("solver", "mask", "mask_strength", "factors", "min_raters", "seed")
    ] = _LR,
    size: Annotated[
        list[int], typer.Option(min=3, help="Of cohorts; may be given repeatedly.")
    ] = SIZES,
    out: FolderOption = Path("strict"),
    json: JsonOption = False,
) -> None:
    """What the secure sums of one round say beyond public knowledge, by size of the cohort."""
    ratings = load(data)
    with progress_bar(data) as progress:
        told = partial(progress, "sizes")
        if settings.solver == "vb":
            report = vb.run(ratings, settings, size, [1], told)
        else:
            report = strict_sums.run(ratings, settings, size, told)
    _tell_sums(report, out, json, "strict")


def _tell_sums(report: strict_sums.StrictSums, out: Path, json: bool, name: str) -> None:
    """Write what sums say, and print it."""
    strict_sums.write(report, out, name)
    if json:
        print_json(asdict(report))
        return
    columns = ["attack", *(name for name in strict_sums.COLUMNS if name != "attack")]
    title = f"{report.data}, {report.solver}, mask {report.mask}, {report.factors} factors"
    results.print(_table(title, strict_sums.COLUMNS, columns, report.rows))
    confirm_folder(out, f"{name}.json, {name}.md, {name}-sums.png and .svg")


@app.command("rounds", epilog="Example: fedmmf reproduce rounds --data ml-100k --out rounds")
@expanded
def rounds(
    data: SetOption = "ml-100k",
    settings: Annotated[Settings, Only("solver", "mask", "factors", "min_raters", "seed")] = _LR,
    size: Annotated[
        list[int], typer.Option(min=3, help="Of cohorts; may be given repeatedly.")
    ] = SOME_SIZES,
    rounds: Annotated[
        list[int] | None,
        typer.Option(min=2, help="Rounds seen; may be given repeatedly. [30 100 200; vb: 5 8 22]"),
    ] = None,
    out: FolderOption = Path("rounds"),
    json: JsonOption = False,
) -> None:
    """What the secure sums of many rounds say: of sgd when parties stay away, of vb anyway."""
    ratings = load(data)
    with progress_bar(data) as progress:
        told = partial(progress, "cohorts")
        if settings.solver == "vb":
            sums = vb.run(ratings, settings, size, rounds or vb.ROUNDS, told)
        else:
            report = many_rounds.run(ratings, settings, size, rounds or MANY_ROUNDS, told)
    if settings.solver == "vb":
        _tell_sums(sums, out, json, "rounds")
        return
    many_rounds.write(report, out)
    if json:
        print_json(asdict(report))
        return
    rows = [
        [f"{row.size:,}", str(row.batch), str(row.rounds), str(row.items), str(row.ratings)]
        for row in report.rows
    ]
    title = f"{data}, mask {settings.mask}, {report.away:.0%} stay away; gain and its 95 % interval"
    results.print(table(title, ["cohort", "batch", "rounds", "items", "ratings"], rows))
    confirm_folder(out, "rounds.json, rounds.md, many-rounds.png and .svg")
