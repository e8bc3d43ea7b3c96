"""`fedmmf bench`: measurements beside other tools."""

from typing import Annotated, Any

import typer

from fedmmf.bench import training as bench
from fedmmf.cli import options as o
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.config import Settings
from fedmmf.data import load

app = typer.Typer(help="Measure beside other tools.", no_args_is_help=True)


@app.command("training", epilog="Example: fedmmf bench training --data ml-1m --json")
def training(
    data: o.DataOption = "ml-1m",
    test: Annotated[float, typer.Option("--test", help="Share of ratings to test on.")] = 0.1,
    mask: o.MaskOption = "mean",
    factors: o.FactorsOption = 12,
    rounds: Annotated[int, typer.Option("--rounds", help="Rounds of ours.")] = 30,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Times each is run.")] = 3,
    seed: o.SeedOption = 0,
    json: o.JsonOption = False,
) -> None:
    """Time and error of centralised tools, and the time ours needs to reach their error."""
    ratings = load(data)
    train, held_back = ratings.split(test, seed=seed)
    settings = Settings.checked(
        mask=mask, solver="vb", factors=factors, rounds=rounds, held_out=0.0, seed=seed
    )
    with progress_bar(data) as progress:
        report = bench.compare(
            train, held_back, settings, repeats, lambda done: progress("repeats", done, repeats)
        )
    report["ours"]["cold_seconds"] = bench.cold_seconds(data, test, settings)
    report |= {"data": data, "synthetic": ratings.synthetic, "test": test, "repeats": repeats}
    report["peak_gb"] = bench.peak_gigabytes()
    if json:
        print_json(report)
    else:
        _show(report)


def _show(report: dict[str, Any]) -> None:
    ours, memory = report["ours"], report["memory"]
    rows = [
        [
            peer["peer"],
            f"{peer['rmse']:.4f}",
            f"{peer['fit_seconds']:.2f}",
            _seconds(peer["our_seconds_to_that_rmse"]),
            _seconds(peer["times_faster"]),
        ]
        for peer in report["peers"]
    ]
    rows.append(["fedmmf, vb", f"{ours['rmse']:.4f}", f"{ours['seconds']:.2f}", "", ""])
    title = f"{report['data']}, test share {report['test']:g}, medians of {report['repeats']}"
    results.print(table(title, ["tool", "RMSE", "fit s", "ours to it s", "times faster"], rows))
    cost = f"{1e3 * ours['round_seconds']:.0f} ms, {memory['round_gb_per_s']:.1f} GB/s"
    results.print(
        f"A round of ours: {cost} of the {memory['machine_gb_per_s']:.1f} GB/s that this machine "
        f"reads.\nWith nothing compiled yet: {ours['cold_seconds']:.1f} s for everything."
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
