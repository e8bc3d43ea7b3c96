"""`fedmmf reproduce`: the paper's experiments."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fedmmf.cli import options as o
from fedmmf.cli.output import errors, print_json, progress_bar, results, table
from fedmmf.config import Settings
from fedmmf.data import load
from fedmmf.errors import SettingsError
from fedmmf.paper import attack_figures, dp_curve
from fedmmf.paper import efficiency as experiment
from fedmmf.paper.hyperparameters import load_tuned, save_tuned
from fedmmf.paper.models import ROWS, Row, chosen, row_called
from fedmmf.paper.table1 import Job, run_table, write_table
from fedmmf.paper.tune import tune as search

app = typer.Typer(help="Reproduce the paper's experiments.", no_args_is_help=True)

DataList = Annotated[list[str], typer.Option("--data", help="Data set; may be given repeatedly.")]
ModelList = Annotated[
    list[str] | None,
    typer.Option("--model", help="Model, such as 'FedMF'; may be given repeatedly; else all."),
]
THRESHOLDS = [0.03, 0.05, 0.07]
EPSILONS = [1.0, 2.0, 4.0, 8.0]
TestOption = Annotated[float, typer.Option("--test", help="Share of ratings to test on.")]


@app.command(
    "table1", epilog="Example: fedmmf reproduce table1 --data ml-100k --runs 10 --test 0.2 --out t1"
)
def table1(
    data: DataList = ["ml-100k"],  # noqa: B006 - typer reads it, nobody changes it
    model: ModelList = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Random splits per model.")] = 10,
    test: TestOption = 0.2,
    solver: Annotated[
        Literal["sgd", "vb", "both"], typer.Option("--solver", help="Of the factorizations.")
    ] = "both",
    out: Annotated[
        Path, typer.Option("--out", help="Folder of results; a killed run continues.")
    ] = Path("table1"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first split.")] = 0,
    json: o.JsonOption = False,
) -> None:
    """Every model of the paper's Table 1, and some that it lacks, beside the paper's figures."""
    rows = chosen(solver) if not model else [row_called(name) for name in model]
    seeds = range(seed, seed + runs)
    jobs = [Job(name, row, number, test) for name in data for row in rows for number in seeds]
    with progress_bar("table 1") as progress:
        done = run_table(
            jobs,
            load,
            out,
            lambda n, job: progress(f"{job.data}, {job.row.name}", job.seed - seed, runs),
        )
    write_table(done, out)
    if json:
        print_json({"rows": done})
    else:
        results.print(_show(done, test))
        errors.print(f"written to {out}: table1.md, table1.csv, table1.json, runs/")


@app.command("tune", epilog="Example: fedmmf reproduce tune --data ml-100k --trials 30")
def tune(
    data: DataList = ["ml-100k"],  # noqa: B006 - typer reads it, nobody changes it
    model: ModelList = None,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Candidates per model.")] = 30,
    test: TestOption = 0.2,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Search hyperparameters on a validation part of the training data, and store them."""
    rows = ROWS if not model else [row_called(name) for name in model]
    found: dict[str, Any] = {}
    for name in data:
        training, _ = load(name).split(test, seed=seed)
        found[name] = {row.name: _tune_one(name, row, training, trials, seed) for row in rows}
    if json:
        print_json(found)
        return
    lines = [[name, model, str(best)] for name, of in found.items() for model, best in of.items()]
    results.print(table("tuned", ["data", "model", "found"], lines))


@app.command("efficiency", epilog="Example: fedmmf reproduce efficiency --out efficiency")
def efficiency(
    data: Annotated[str, typer.Option("--data", help="Data set.")] = "ml-100k",
    mask: o.MaskOption = o.DEFAULTS.mask,
    factors: o.FactorsOption = o.DEFAULTS.factors,
    threshold_j: Annotated[
        list[float],
        typer.Option("--threshold-j", help="Of adaptive sharing; may be given repeatedly."),
    ] = THRESHOLDS,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Rounds to measure.")] = 2,
    out: Annotated[Path, typer.Option("--out", help="Folder of results.")] = Path("efficiency"),
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Seconds and bytes per round of every way to sum, among real parties."""
    settings = Settings.checked(mask=mask, factors=factors, held_out=0.0, seed=seed)
    with progress_bar(data) as progress:
        report = experiment.run(
            load(data),
            settings,
            sorted(threshold_j),
            rounds,
            lambda done, of: progress("ways to sum", done, of),
        )
    experiment.write(report, out)
    if json:
        print_json(report)
        return
    rows = [
        [
            way["way"],
            f"{100 * way['share_in_clear']:.0f} %",
            f"{1e3 * way['party_s']:,.1f}",
            f"{way['server_s']:,.2f}",
            f"{way['up_bytes'] / 1e3:,.0f}",
            f"{way['down_bytes'] / 1e3:,.0f}",
        ]
        for way in report["ways"]
    ]
    columns = ["one round", "in the clear", "party ms", "server s", "up kB", "down kB"]
    results.print(table(f"{data}, {report['n_users']:,} parties", columns, rows))
    results.print("Homomorphic ways are extrapolated from some ciphertexts.")
    errors.print(f"written to {out}: efficiency.json, .md, .png, .svg")


@app.command("dp", epilog="Example: fedmmf reproduce dp --data ml-100k --out dp")
def dp(
    data: Annotated[str, typer.Option("--data", help="Data set.")] = "ml-100k",
    epsilon: Annotated[
        list[float], typer.Option("--epsilon", help="May be given repeatedly.")
    ] = EPSILONS,
    delta: o.DeltaOption = o.DEFAULTS.dp_delta,
    clip: o.ClipOption = o.DEFAULTS.dp_clip,
    noise: o.NoiseOption = o.DEFAULTS.dp_noise,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Random splits per point.")] = 5,
    test: TestOption = 0.2,
    out: Annotated[Path, typer.Option("--out", help="Folder of results.")] = Path("dp"),
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """RMSE against epsilon for DP-FedMF and DP-FedMMF, side by side."""
    base = Settings.checked(
        aggregation="dp", dp_delta=delta, dp_clip=clip, dp_noise=noise, seed=seed
    )
    with progress_bar(data) as progress:
        report = dp_curve.run(
            load(data),
            sorted(epsilon),
            base,
            runs,
            test,
            lambda done, of: progress("models and epsilons", done, of),
        )
    dp_curve.write(report, out)
    if json:
        print_json(report)
        return
    rows = [
        [row["model"], f"{row['epsilon']:g}", f"{row['rmse_mean']:.4f}±{row['rmse_std']:.4f}"]
        for row in report["rows"]
    ]
    title = f"{data}, delta {delta:g}, {runs} runs, whole users"
    results.print(table(title, ["model", "epsilon", "RMSE"], rows))
    errors.print(f"written to {out}: dp.json, .md, .png, .svg")


@app.command(
    "attacks", epilog="Example: fedmmf reproduce attacks --data ml-1m --mask fm --out attacks"
)
def attacks(
    data: Annotated[str, typer.Option("--data", help="Data set.")] = "ml-1m",
    mask: o.MaskOption = "fm",
    mask_strength: o.MaskStrengthOption = None,
    cross_fit: o.CrossFitOption = o.DEFAULTS.cross_fit,
    out: Annotated[Path, typer.Option("--out", help="Folder of results.")] = Path("attacks"),
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Figures 2a and 2b, and the same with stronger attacks; the paper used ml-10m."""
    settings = Settings.checked(
        mask=mask, mask_strength=mask_strength, cross_fit=cross_fit, seed=seed
    )
    with progress_bar(data) as progress:
        report = attack_figures.run(
            load(data), settings, lambda done, of: progress("attacks", done, of)
        )
    attack_figures.write(report, out)
    if json:
        print_json(report)
        return
    rows = [
        [row["attack"], f"{row['mean']:.4f}", "{:.4f} to {:.4f}".format(*row["interval"])]
        for row in report["exact"]
    ]
    results.print(table(f"{data}, mask {mask}", ["attack", "ratings exact", "95 %"], rows))
    errors.print(f"written to {out}: attacks.json, attacks.md, figure-2a and -2b as .png and .svg")


def _tune_one(name: str, row: Row, training: Any, trials: int, seed: int) -> dict[str, Any]:
    if dict(row.fixed).get("ensemble"):
        return _share_with_single_run(name, row)
    with progress_bar(name) as progress:
        best = search(row, training, trials, seed, lambda n: progress(row.name, n, trials))
    tuned = load_tuned(name)
    tuned[row.name] = best.settings
    save_tuned(name, tuned)
    return {"validation_rmse": round(best.rmse, 4), **best.settings}


def _share_with_single_run(name: str, row: Row) -> dict[str, Any]:
    """An ensemble uses the settings of its single run."""
    tuned = load_tuned(name)
    single = row.name.split(" (vb")[0] + " (vb)"
    if single not in tuned:
        raise SettingsError(f"tune {single!r} before {row.name!r}; it uses the same settings")
    tuned[row.name] = tuned[single]
    save_tuned(name, tuned)
    return dict(tuned[row.name])


def _show(rows: list[dict[str, Any]], test: float) -> Any:
    lines = [
        [
            row["model"],
            row["data"],
            f"{row['rmse_mean']:.4f}±{row['rmse_std']:.4f}",
            f"{row['mae_mean']:.4f}",
            "" if row["paper_rmse"] is None else f"{row['paper_rmse']:.4f}",
            "" if row["paper_mae"] is None else f"{row['paper_mae']:.4f}",
        ]
        for row in rows
    ]
    columns = ["model", "data", "RMSE", "MAE", "paper", "MAE"]
    return table(f"Table 1, test share {test:g}, {rows[0]['runs']} runs", columns, lines)
