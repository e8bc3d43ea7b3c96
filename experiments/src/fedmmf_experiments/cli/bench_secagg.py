"""`fedmmf bench secagg|costs`: what secure sums cost, measured, and the model of it."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from fedmmf.cli.choices import JsonOption
from fedmmf.cli.options import expanded
from fedmmf.cli.output import (
    Columns,
    errors,
    print_json,
    print_markdown,
    progress_bar,
    results,
    shown,
    size,
    table,
)
from fedmmf.errors import SettingsError
from fedmmf_experiments.bench import costs as bench_costs
from fedmmf_experiments.bench import secagg as bench
from fedmmf_experiments.bench import sessions as bench_sessions

app = typer.Typer()

SecretSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Accepted by every command; secrets take no seed.")
]


@dataclass(frozen=True)
class CohortSize:
    """How large a round is, and who leaves it."""

    clients: Annotated[int, typer.Option(min=3, help="Clients in the round.")] = 100
    length: Annotated[int, typer.Option(min=1, help="Entries of a vector.")] = 100_000
    neighbours: Annotated[
        int | None,
        typer.Option(help="Neighbours of each client.", show_default="the fewest that are safe"),
    ] = None
    drop: Annotated[
        float, typer.Option(help="Share of clients that drop out after sharing keys.")
    ] = 0.05


@app.command(
    "secagg",
    epilog="Example: fedmmf bench secagg --clients 100 --length 100000 --neighbours 51 --drop 0.05",
)
@expanded
def secagg(
    size: CohortSize,
    flower: Annotated[
        bool | None,
        typer.Option(
            "--flower/--no-flower",
            help="Run Flower's SecAgg+ too.",
            show_default=f"if installed, up to {bench.FLOWER_CLIENTS} clients",
        ),
    ] = None,
    seed: SecretSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """CPU time of a secure sum for server and client, ours beside Flower's."""
    run_flower = _wants_flower(flower, size.clients)
    with progress_bar("secagg") as progress:
        report = bench.compare(
            size.clients,
            size.length,
            size.neighbours,
            size.drop,
            flower=run_flower,
            progress=progress,
        )
    if json:
        print_json(report)
    else:
        _show_secagg(report)


def _wants_flower(asked: bool | None, clients: int) -> bool:
    """Whether to run Flower; says on standard error why not, unless that was asked for."""
    if asked is False:
        return False
    if not bench.has_flower():
        why = (
            f"Flower is left out: flwr {bench.FLOWER_VERSION} is not installed. In an "
            "environment of its own: pip install . './experiments[bench-secagg]', "
            "without constraints.txt."
        )
        if asked:
            raise SettingsError(why)
    elif asked or clients <= bench.FLOWER_CLIENTS:
        return True
    else:
        limit = bench.FLOWER_CLIENTS
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
        [title, f"{report[key]:.5f}", shown(theirs.get(key)), shown(times.get(name), ".0f")]
        for name, (title, key) in lines.items()
    ]
    for way in ("up", "down"):
        key = f"{way}_bytes_per_party"
        their = "-" if theirs.get(key) is None else size(theirs[key])
        rows.append([f"sent {way}", size(report[key]), their, ""])
    title = (
        f"{report['clients']} clients, {report['length']:,} entries, {report['neighbours']} "
        f"neighbours, {report['dropped']} drop out"
    )
    columns = ["of one round", "fedmmf, unsigned", f"Flower {bench.FLOWER_VERSION}", "times below"]
    results.print(table(title, columns, rows))
    _comment_on_secagg(report)


def _comment_on_secagg(report: dict[str, Any]) -> None:
    exact = "is exact" if report["exact"] else "IS WRONG"
    results.print(
        f"Our sum {exact}. Masking takes {report['aes_limit_ratio']:.2f} times the AES keystream "
        f"it needs\n({report['aes_limit_ratio_1e6_x_100']:.2f} for 1e6 entries and 100 neighbours)."
    )
    theirs = report["flower"]
    if theirs and theirs["max_error"] is None:
        results.print("Flower gave its round up: too few holders were left.")


_SESSIONS: Columns = {
    "sums": lambda row: "signed" if row.signed else "unsigned",
    "neighbours": lambda row: str(row.neighbours),
    "threshold": lambda row: str(row.threshold),
    "party CPU ms": lambda row: f"{1e3 * row.party_s:.1f}",
    "server CPU s": lambda row: f"{row.server_s:.2f}",
    "up kB": lambda row: f"{1e-3 * row.up_bytes:,.0f}",
    "down kB": lambda row: f"{1e-3 * row.down_bytes:,.0f}",
}


@app.command("session", epilog="Example: fedmmf bench session --parties 943 --length 33642")
def session(
    parties: Annotated[int, typer.Option(min=4, help="Parties of one user each.")] = 943,
    length: Annotated[int, typer.Option(min=1, help="Entries of a vector.")] = 33_642,
    seed: SecretSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """CPU time of a round of secure sums, unsigned and signed, on the graph that parties agree on.

    As is: ML-100K, 20 factors. The broadcast's bytes are not counted.
    """
    with progress_bar("session") as progress:
        found = bench_sessions.both(parties, length, progress)
    if json:
        print_json([asdict(row) for row in found])
    else:
        print_markdown(_SESSIONS, found)


_COSTS: Columns = {
    "parties": lambda row: f"{row.n_parties:,}",
    "neighbours": lambda row: str(row.neighbours),
    "length": lambda row: f"{row.length:,}",
    "ring": lambda row: row.ring,
    "signed": lambda row: "yes" if row.signed else "no",
    "party ms": lambda row: f"{1e3 * row.party_s:.2f}",
    "party model": lambda row: f"{1e3 * row.party_model_s:.2f}",
    "server ms": lambda row: f"{1e3 * row.server_s:.1f}",
    "server model": lambda row: f"{1e3 * row.server_model_s:.1f}",
}


@app.command("costs", epilog="Example: fedmmf bench costs --write")
def costs(
    write: Annotated[
        bool, typer.Option("--write", help="Store the model as the one that simulations use.")
    ] = False,
    seed: SecretSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Fit the cost model of secure sums to measured rounds, and show how well it fits."""
    with progress_bar("costs") as progress:
        found = bench_costs.measure_all(bench_costs.SIZES, bench_costs.CHECK, progress)
    if write:
        bench_costs.store(found.model, bench_costs.MODEL)
        errors.print(f"written to {bench_costs.MODEL}", markup=False, soft_wrap=True)
    if json:
        print_json(asdict(found))
    else:
        print_markdown(_COSTS, found.rows)
