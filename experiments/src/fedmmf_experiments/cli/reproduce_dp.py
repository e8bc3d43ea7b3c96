"""`fedmmf reproduce dp|dp-lists|dp-users`: recommenders under user-level differential privacy."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.cli.choices import JsonOption, SeedOption, parse_names
from fedmmf.cli.files import GoingOnOption, confirm_folder
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.data import load
from fedmmf.settings import Settings
from fedmmf_experiments.private import curve
from fedmmf_experiments.private import users as by_users
from fedmmf_experiments.private.lists import LIST_ROWS
from fedmmf_experiments.private.rows import ROWS, DpRow, rows_called
from fedmmf_experiments.result_cache import ResultCache

app = typer.Typer()


def parse_epsilons(text: str) -> tuple[float, ...]:
    """Read epsilons such as 1,2,4,8, and put them in order."""
    try:
        found = {float(part) for part in text.split(",")}
    except ValueError:
        found = set()
    if not found or not all(0.0 < epsilon <= 100.0 for epsilon in found):
        raise typer.BadParameter(
            f"must be numbers in (0, 100] with commas between, such as 1,2,4,8; got {text!r}"
        )
    return tuple(sorted(found))


EpsilonsOption = Annotated[
    Any, typer.Option(help="Of whole trainings.", metavar="E,E,...", parser=parse_epsilons)
]
EPSILONS = "1,2,4,8"
_NOISY = Settings(aggregation="dp")


@dataclass(frozen=True)
class DpChoice:
    """Options for what is compared, and on which splits."""

    data: Annotated[str, typer.Option(help="Data set.")] = "ml-100k"
    epsilon: EpsilonsOption = EPSILONS
    rows: Annotated[
        Any,
        typer.Option(
            help="Rows to compute, such as vb,dpals-features; else all.",
            metavar="NAME,...",
            parser=parse_names,
        ),
    ] = None
    splits: Annotated[int, typer.Option(min=1, help="Random splits, from --seed on.")] = 10
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2

    def plan(self, settings: Settings, known: tuple[DpRow, ...]) -> curve.DpPlan:
        """Make the plan of the experiment from the options and the rows there are."""
        return curve.DpPlan(
            epsilons=list(self.epsilon),
            rows=rows_called(self.rows, known),
            splits=self.splits,
            test=self.test,
            delta=settings.dp_delta,
            base={"dp_clip": settings.dp_clip, "dp_noise": settings.dp_noise},
            seed=settings.seed,
        )


@app.command("dp", epilog="Example: fedmmf reproduce dp --data ml-1m --test 0.1 --splits 3")
@expanded
def dp(
    chosen: DpChoice,
    settings: Annotated[Settings, Only("dp_delta", "dp_clip", "dp_noise", "seed")] = _NOISY,
    out: GoingOnOption = Path("dp"),
    json: JsonOption = False,
) -> None:
    """RMSE against epsilon: vb and sgd with and without masks, DPALS, means, and no noise."""
    _compare(chosen.plan(settings, ROWS), chosen.data, out, json)


@app.command("dp-lists", epilog="Example: fedmmf reproduce dp-lists --data ml-1m --splits 3")
@expanded
def dp_lists(
    chosen: DpChoice,
    settings: Annotated[Settings, Only("dp_delta", "dp_clip", "dp_noise", "seed")] = _NOISY,
    out: GoingOnOption = Path("dp-lists"),
    json: JsonOption = False,
) -> None:
    """Lists (nDCG@10) against epsilon: vb, the mask alone, popularity, and no noise."""
    plan = replace(chosen.plan(settings, LIST_ROWS), metric=curve.NDCG)
    _compare(plan, chosen.data, out, json)


def _compare(plan: curve.DpPlan, data: str, out: Path, json: bool) -> None:
    """Compute, write and print a table."""
    with progress_bar(data) as progress:
        report = curve.run(
            load(data),
            plan,
            ResultCache(out),
            lambda done, of: progress("rows and epsilons", done, of),
        )
    name = "dp" if plan.metric is curve.RMSE else "dp-lists"
    curve.write(report, out, name)
    if json:
        print_json(asdict(report))
        return
    rows = [
        [
            point.model,
            point.free or f"{point.epsilon:g}",
            f"{point.mean:.4f}±{point.std:.4f}",
            f"{point.n_tried}",
        ]
        for point in report.rows
    ]
    title = f"{report.data}, delta {report.delta:g}, {report.splits} splits, whole users"
    results.print(table(title, ["model", "epsilon", report.metric, "settings tried"], rows))
    confirm_folder(out, f"{name}.json, .md, .png, .svg, runs/")


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read numbers of users such as 943,6040, and put them in order."""
    try:
        found = {int(part) for part in text.split(",")}
    except ValueError:
        found = set()
    if not found or min(found) < 2:
        raise typer.BadParameter(
            f"must be whole numbers from 2 on with commas between, such as 943,6040; got {text!r}"
        )
    return tuple(sorted(found))


@dataclass(frozen=True)
class UsersChoice:
    """Options for the sizes of synthetic sets."""

    users: Annotated[
        Any, typer.Option(help="Numbers of users.", metavar="N,N,...", parser=parse_sizes)
    ] = "943,6040,30000,100000"
    epsilon: EpsilonsOption = "1"
    items: Annotated[int, typer.Option(min=50, help="Items of each set.")] = 500
    per_user: Annotated[
        int, typer.Option(min=by_users.MIN_PER_USER, help="Ratings per user, on average.")
    ] = 25
    delta: Annotated[float, typer.Option(help="Of whole trainings.")] = 1e-7
    splits: Annotated[int, typer.Option(min=1, help="Sets and splits, from --seed on.")] = 1

    def plan(self, seed: int) -> by_users.UsersPlan:
        """Make the plan of the experiment from the options."""
        return by_users.UsersPlan(
            users=list(self.users),
            epsilons=list(self.epsilon),
            items=self.items,
            per_user=self.per_user,
            splits=self.splits,
            delta=self.delta,
            seed=seed,
        )


@app.command("dp-users", epilog="Example: fedmmf reproduce dp-users --users 943,6040,30000")
@expanded
def dp_users(
    chosen: UsersChoice,
    out: GoingOnOption = Path("dp-users"),
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """What a budget costs vb against the number of users, on synthetic ratings."""
    with progress_bar("synthetic") as progress:
        report = by_users.run(
            chosen.plan(seed),
            ResultCache(out),
            lambda done, of: progress("numbers of users", done, of),
        )
    by_users.write(report, out)
    if json:
        print_json(asdict(report))
        return
    cells = [[show(row) for show in by_users.COLUMNS.values()] for row in report.rows]
    title = f"synthetic, {report.items:,} items, delta {report.delta:g}, {report.splits} split(s)"
    results.print(table(title, list(by_users.COLUMNS), cells))
    confirm_folder(out, "dp-users.json, .md, .png, .svg, runs/")
