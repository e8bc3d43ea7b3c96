"""`fedmmf reproduce agreement|lower-bound|epsilon-seen`: evidence for what noise is worth."""

from dataclasses import asdict
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.output import Columns, print_json, print_markdown, progress_bar, results
from fedmmf_experiments.paper import agreement as agreeing
from fedmmf_experiments.paper import lower_bound as bounds
from fedmmf_experiments.paper import whole_runs

app = typer.Typer()

ENGINES = ["numpy", "numba"]
CLAIMED = [1.0, 2.0]
_AGREEMENT: Columns = {
    "run": lambda row: row.kind,
    "noise": lambda row: row.added_by,
    "simulation": lambda row: row.simulation,
    "stage": lambda row: row.stage,
    "numbers": lambda row: f"{row.numbers:,}",
    "p, means": lambda row: f"{row.mean:.4f}",
    "p, variances": lambda row: f"{row.variance:.4f}",
    "p, all noise": lambda row: f"{row.noise:.4f}",
    "p, distribution": lambda row: f"{row.whole:.4f}",
}


@app.command("agreement", epilog="Example: fedmmf reproduce agreement --runs 200")
def agreement(
    runs: Annotated[int, typer.Option(min=3, help="Whole runs of each kind.")] = 200,
    engine: Annotated[
        list[str], typer.Option(help="Of the simulation; may be given repeatedly.")
    ] = ENGINES,
    permutations: Annotated[int, typer.Option(min=99, help="Exchanges of labels.")] = 9_999,
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Whether simulations release what real parties do under noise, over many whole runs."""
    with progress_bar("runs") as progress:
        rows = agreeing.run(engine, runs, permutations, progress)
    smallest, of_controls = agreeing.verdict(rows)
    if json:
        found = {"smallest_adjusted": smallest, "largest_of_controls": of_controls}
        print_json({"rows": [asdict(row) for row in rows], "runs": runs, **found})
        return
    print_markdown(_AGREEMENT, rows)
    n_true = 4 * sum(not row.is_control for row in rows)
    results.print(
        f"{runs} real and {runs} simulated runs of each kind. Smallest p-value of the {n_true} "
        f"comparisons that should agree, times {n_true}: {smallest:.3f}. Largest p-value with "
        f"which a control was found: {of_controls:.4f}.",
        highlight=False,
    )


@app.command("lower-bound", epilog="Example: fedmmf reproduce lower-bound --epsilon 1 --runs 500")
def lower_bound(
    epsilon: Annotated[
        list[float], typer.Option(help="That is claimed; may be given repeatedly.")
    ] = CLAIMED,
    runs: Annotated[
        int, typer.Option(min=4, help="Whole runs with the planted user, and as many without.")
    ] = 500,
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """What the best test of a planted user shows of epsilon, at least; it has to be below it."""
    with progress_bar("runs") as progress:
        rows = bounds.run(epsilon, runs, progress)
    if json:
        print_json({"rows": [asdict(row) | {"is_below": row.is_below} for row in rows]})
        return
    print_markdown(bounds.as_columns(), rows)


_WHOLE: Columns = {
    "solver": lambda row: row.solver,
    "mask": lambda row: row.mask,
    "noise": lambda row: row.noise,
    "delta": lambda row: f"{row.delta:g}",
    "clip": lambda row: f"{row.clip:g}",
    "releases": lambda row: f"{row.releases}",
    "longest / clip": lambda row: f"{row.longest:.6f}",
    "noise, due": lambda row: f"{row.multiplier:.4g}",
    "noise, seen": lambda row: f"{row.measured:.4g}",
    "epsilon claimed": lambda row: f"{row.claimed:.3f}",
    "discrete": lambda row: f"{row.discrete:.3f}",
    "continuous, analytic": lambda row: f"{row.analytic:.3f}",
    "continuous, losses": lambda row: f"{row.losses:.3f}",
}


@app.command("epsilon-seen", epilog="Example: fedmmf reproduce epsilon-seen")
def epsilon_seen(seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Epsilon of ten whole runs among real parties, from what they were seen to add."""
    with progress_bar("runs") as progress:
        rows = whole_runs.run_all(progress)
    if json:
        print_json({"rows": [asdict(row) for row in rows]})
        return
    print_markdown(_WHOLE, rows)
