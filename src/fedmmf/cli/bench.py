"""`fedmmf bench`: measurements beside other tools."""

from typing import Annotated, Any

import typer

from fedmmf.bench import secagg as bench_secagg
from fedmmf.bench import training as bench
from fedmmf.cli import options as o
from fedmmf.cli.output import errors, print_json, progress_bar, results, table
from fedmmf.config import Settings
from fedmmf.data import load
from fedmmf.errors import SettingsError

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
        mask=mask, solver="vb", sharing="plain", factors=factors, rounds=rounds, seed=seed
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


@app.command(
    "secagg",
    epilog="Example: fedmmf bench secagg --clients 100 --length 100000 --neighbours 51 --drop 0.05",
)
def secagg(
    clients: Annotated[int, typer.Option("--clients", min=3, help="Clients in the round.")] = 100,
    length: Annotated[int, typer.Option("--length", min=1, help="Entries of a vector.")] = 100_000,
    neighbours: Annotated[
        int | None,
        typer.Option(
            "--neighbours",
            help="Neighbours of each client.",
            show_default="the fewest that are safe",
        ),
    ] = None,
    drop: Annotated[
        float, typer.Option("--drop", help="Share of clients that drop out after sharing keys.")
    ] = 0.05,
    flower: Annotated[
        bool | None,
        typer.Option(
            "--flower/--no-flower",
            help="Run Flower's SecAgg+ too.",
            show_default=f"if installed, up to {bench_secagg.FLOWER_CLIENTS} clients",
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", min=0, help="Accepted by every command; secrets take no seed."),
    ] = 0,
    json: o.JsonOption = False,
) -> None:
    """CPU time of a secure sum for server and client, ours beside Flower's."""
    run_flower = _wants_flower(flower, clients)
    with progress_bar("secagg") as progress:
        report = bench_secagg.compare(
            clients, length, neighbours, drop, flower=run_flower, progress=progress
        )
    if json:
        print_json(report)
    else:
        _show_secagg(report)


def _wants_flower(asked: bool | None, clients: int) -> bool:
    """Whether to run Flower; says on standard error why not, unless that was asked for."""
    if asked is False:
        return False
    if not bench_secagg.has_flower():
        why = (
            f"Flower is left out: flwr {bench_secagg.FLOWER_VERSION} is not installed. In an "
            "environment of its own: pip install 'fedmmf[bench-secagg]', without constraints.txt."
        )
        if asked:
            raise SettingsError(why)
    elif asked or clients <= bench_secagg.FLOWER_CLIENTS:
        return True
    else:
        limit = bench_secagg.FLOWER_CLIENTS
        why = f"Flower is left out above {limit} clients: it takes long. --flower runs it."
    errors.print(why, markup=False, highlight=False, soft_wrap=True)
    return False


def _show_secagg(report: dict[str, Any]) -> None:
    theirs, times = report["flower"] or {}, report["times_below_flower"] or {}
    lines = {
        "server": ("server CPU s", "server_cpu_s"),
        "client": ("client CPU s", "client_cpu_s"),
        "shamir_share": ("Shamir share s", "shamir_share_s"),
        "shamir_combine": ("Shamir combine s", "shamir_combine_s"),
    }
    rows = [
        [title, f"{report[key]:.5f}", _number(theirs.get(key), ".4f"), _number(times.get(name))]
        for name, (title, key) in lines.items()
    ]
    for way in ("up", "down"):
        key = f"{way}_bytes_per_party"
        rows.append([f"bytes {way}", f"{report[key]:,.0f}", _number(theirs.get(key), ",.0f"), ""])
    title = (
        f"{report['clients']} clients, {report['length']:,} entries, {report['neighbours']} "
        f"neighbours, {report['dropped']} drop out"
    )
    columns = ["of one round", "fedmmf", f"Flower {bench_secagg.FLOWER_VERSION}", "times below"]
    results.print(table(title, columns, rows))
    exact = "is exact" if report["exact"] else "IS WRONG"
    results.print(
        f"Our sum {exact}. Masking takes {report['aes_limit_ratio']:.2f} times the AES keystream "
        f"it needs\n({report['aes_limit_ratio_1e6_x_100']:.2f} for 1e6 entries and 100 neighbours)."
    )
    if theirs and theirs["max_error"] is None:
        results.print("Flower gave its round up: too few holders were left.")


def _number(value: float | None, form: str = ".0f") -> str:
    return "-" if value is None else format(value, form)


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
