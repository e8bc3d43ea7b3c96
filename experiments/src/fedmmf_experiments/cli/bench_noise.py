"""`fedmmf bench noise`: what noise takes, beside rounds without it."""

from dataclasses import asdict
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, UnusedSeedOption
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import Columns, print_json, print_markdown, progress_bar, results
from fedmmf.settings import Settings
from fedmmf_experiments.bench import noise as bench

app = typer.Typer()

SETS = ["ml-100k", "ml-1m"]
_LR = Settings(mask="lr", factors=4)
_COLUMNS: Columns = {
    "data": lambda row: row.data,
    "where": lambda row: row.where,
    "users": lambda row: f"{row.n_users:,}",
    "strict `vb`, ms": lambda row: f"{1e3 * row.strict_s:.1f}",
    "`vb` under noise, ms": lambda row: f"{1e3 * row.noisy_s:.1f}",
    "ratio": lambda row: f"{row.ratio:.2f}",
}


@app.command("noise", epilog="Example: fedmmf bench noise --data ml-100k")
@expanded
def noise(
    data: Annotated[
        list[str], typer.Option("--data", help="Data set or file; may be given repeatedly.")
    ] = SETS,
    settings: Annotated[Settings, Only("mask", "factors")] = _LR,
    repeats: Annotated[int, typer.Option(min=3, help="Rounds of each that are timed.")] = 12,
    seed: UnusedSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """A round of vb under noise beside one of strict vb, and exact noise per entry."""
    with progress_bar("rounds") as progress:
        rows = bench.measure(data, repeats, settings.mask, settings.factors, progress)
    draws = bench.draw_times(min(repeats, 5))
    if json:
        listed = [asdict(row) | {"ratio": row.ratio} for row in rows]
        print_json({"rows": listed, "draws": asdict(draws)})
        return
    print_markdown(_COLUMNS, rows)
    results.print(
        f"CPU time, medians of {repeats} rounds, turn by turn; mask {settings.mask}, "
        f"{settings.factors} factors. Exact noise: {draws.ours_us:.2f} us per entry, "
        f"{1e-3 * draws.entries * draws.ours_us:.1f} ms for {draws.entries:,}; OpenDP takes "
        f"{draws.opendp_us:.1f} us.",
        highlight=False,
    )
