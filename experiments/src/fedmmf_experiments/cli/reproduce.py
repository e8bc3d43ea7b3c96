"""`fedmmf reproduce`: the paper's experiments; here its Table 1, and the settings behind it."""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedmmf.cli.choices import JsonOption, SeedOption, Splits
from fedmmf.cli.files import GoingOnOption, confirm_folder
from fedmmf.cli.options import expanded
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.data import Ratings, load
from fedmmf.errors import SettingsError
from fedmmf_experiments.cli import reproduce_dp as dp
from fedmmf_experiments.cli import reproduce_newcomers as newcomers
from fedmmf_experiments.cli import reproduce_noise as noise
from fedmmf_experiments.cli import reproduce_privacy as privacy
from fedmmf_experiments.cli import reproduce_tables as tables
from fedmmf_experiments.paper.hyperparameters import load_tuned, save_tuned
from fedmmf_experiments.paper.models import ROWS, Row, chosen, row_called
from fedmmf_experiments.paper.solver_table import PROBLEMS, run_row
from fedmmf_experiments.paper.table1 import Job, TableRow, run_table, write_table
from fedmmf_experiments.paper.tune import tune as search
from fedmmf_experiments.result_cache import ResultCache

app = typer.Typer(help="Reproduce the paper's experiments.", no_args_is_help=True)


@dataclass(frozen=True)
class TableChoice:
    """Options for the rows of the table."""

    data: Annotated[list[str], typer.Option(help="Data set; may be given repeatedly.")] = field(
        default_factory=lambda: ["ml-100k"]
    )
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, such as 'FedMF'; may be given repeatedly; else all."),
    ] = None

    def rows(self, otherwise: list[Row]) -> list[Row]:
        """The models that were named, if any."""
        return [row_called(name) for name in self.model] if self.model else otherwise


@app.command(
    "table1", epilog="Example: fedmmf reproduce table1 --data ml-100k --runs 10 --test 0.2 --out t1"
)
@expanded
def table1(
    content: TableChoice,
    splits: Splits,
    solver: Annotated[
        Literal["sgd", "vb", "both"], typer.Option(help="Of the factorizations.")
    ] = "both",
    out: GoingOnOption = Path("table1"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    json: JsonOption = False,
) -> None:
    """Every model of the paper's Table 1, and some that it lacks, beside the paper's figures."""
    seeds = range(seed, seed + splits.runs)
    lines = [(name, row) for name in content.data for row in content.rows(chosen(solver))]
    jobs = [Job(name, row, number, splits.test) for name, row in lines for number in seeds]
    with progress_bar("table 1") as progress:
        done = run_table(
            jobs,
            load,
            ResultCache(out),
            lambda n, job: progress(f"{job.data}, {job.row.name}", job.seed - seed, splits.runs),
        )
    write_table(done, out)
    if json:
        print_json({"rows": [asdict(row) for row in done]})
    else:
        results.print(_show(done, splits.test))
        confirm_folder(out, "table1.md, table1.csv, table1.json, runs/")


def _show(rows: list[TableRow], test: float) -> Any:
    lines = [
        [
            row.model,
            row.data,
            f"{row.rmse_mean:.4f}±{row.rmse_std:.4f}",
            f"{row.mae_mean:.4f}",
            "" if row.paper_rmse is None else f"{row.paper_rmse:.4f}",
            "" if row.over_fedmf is None else str(row.over_fedmf),
        ]
        for row in rows
    ]
    columns = ["model", "data", "RMSE", "MAE", "paper", "less FedMF"]
    return table(f"Table 1, test share {test:g}, {rows[0].runs} runs", columns, lines)


@dataclass(frozen=True)
class TuningBudget:
    """Options for the size of the search, and its data."""

    trials: Annotated[int, typer.Option(min=1, help="Candidates per model.")] = 30
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2
    seed: SeedOption = 0


@app.command("tune", epilog="Example: fedmmf reproduce tune --data ml-100k --trials 30")
@expanded
def tune(content: TableChoice, budget: TuningBudget, json: JsonOption = False) -> None:
    """Search hyperparameters on a validation part of the training data, and store them."""
    found: dict[str, Any] = {}
    for name in content.data:
        training, _ = load(name).split(budget.test, seed=budget.seed)
        rows = [row for row in content.rows(ROWS) if row.suits(training)]
        found[name] = {row.name: _tune_one(name, row, training, budget) for row in rows}
    if json:
        print_json(found)
        return
    lines = [[name, model, str(best)] for name, of in found.items() for model, best in of.items()]
    results.print(table("tuned", ["data", "model", "found"], lines))


def _tune_one(name: str, row: Row, training: Ratings, budget: TuningBudget) -> dict[str, Any]:
    trials, seed = budget.trials, budget.seed
    with progress_bar(name) as progress:
        best = search(row, training, trials, seed, lambda n: progress(row.name, n, trials))
    tuned = load_tuned(name)
    tuned[row.name] = best.settings
    save_tuned(name, tuned)
    return {"validation_rmse": round(best.rmse, 4), **best.settings}


@app.command("solver", epilog="Example: fedmmf reproduce solver --problem ml-100k --splits 2")
def solver(
    problem: Annotated[
        list[str] | None, typer.Option(help="Data set; may be given repeatedly; else all.")
    ] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Fewer splits than usual.")] = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """What the variational solver gives: errors of one run and of five, and traffic."""
    chosen = problem or list(PROBLEMS)
    unknown = [name for name in chosen if name not in PROBLEMS]
    if unknown:
        raise SettingsError(f"--problem must be one of {', '.join(PROBLEMS)}; got {unknown[0]!r}")
    found = []
    for tried in (PROBLEMS[name] for name in chosen):
        n = min(splits or tried.splitting.count, tried.splitting.count)
        for row in tried.rows:
            with progress_bar(tried.name) as progress:
                done = run_row(tried, row, n, seed, partial(_tell_split, progress, row, n))
            found.append(done.to_json_dict())
    if json:
        print_json({"rows": found})
    else:
        results.print(_show_solver(found))


def _show_solver(found: list[dict[str, Any]]) -> Any:
    columns = ["problem", "row", "one run", "five runs", "MB up, down"]
    lines = [
        [
            row["problem"],
            row["row"],
            f"{row['single_mean']:.4f}±{row['single_std']:.4f}",
            f"{row['averaged_mean']:.4f}±{row['averaged_std']:.4f}",
            f"{row['up_mb']:.1f}, {row['down_mb']:.1f}",
        ]
        for row in found
    ]
    return table("vb, strict, RMSE on test ratings", columns, lines)


def _tell_split(progress: Any, row: str, n: int, done: int) -> None:
    progress(row, done, n)


app.add_typer(newcomers.app)
app.add_typer(tables.app)
app.add_typer(privacy.app)
app.add_typer(dp.app)
app.add_typer(noise.app)
