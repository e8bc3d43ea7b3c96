"""`fedmmf bench engines`: the engine on torch, on a card."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption
from fedmmf.cli.files import confirm
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import Columns, print_json, print_markdown, progress_bar, results
from fedmmf.cli.output import shown as maybe
from fedmmf.data import load
from fedmmf.engines.torch.device import explain_errors, found
from fedmmf.errors import SettingsError
from fedmmf.settings import Settings
from fedmmf.storage.atomic import OWNER_ONLY, writing

app = typer.Typer()

FIVE_RUNS = Settings(solver="vb", ensemble=5)
_ROWS: Columns = {
    "case": lambda row: row.case,
    "k": lambda row: f"{row.factors}",
    "sums": lambda row: row.sums,
    "rounds": lambda row: f"{row.rounds}",
    "s": lambda row: f"{row.seconds:.3f}",
    "ms per round": lambda row: f"{row.round_ms:.2f}",
    "first s": lambda row: f"{row.first_seconds:.1f}",
    "GB": lambda row: f"{row.memory_gb:.1f}",
    "ms at the limit": lambda row: f"{row.limit_ms:.2f}",
    "limit by": lambda row: row.limited_by,
    "share": lambda row: f"{row.share_of_limit:.0%}",
    "RMSE": lambda row: maybe(row.rmse, ".4f"),
    "nDCG@10": lambda row: maybe(row.ndcg_at_10, ".4f"),
}


@app.command("engines", epilog="Example: fedmmf bench engines --data ml-1m --json")
@expanded
def engines(
    data: Annotated[
        str | None, typer.Option(help="Train this set too, tested on a tenth; and with numba.")
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option(help="Write the case of --data for a machine with torch alone, and stop."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Without a billion ratings.")] = False,
    settings: Annotated[
        Settings, Only("objective", "factors", "ensemble", "implicit_prior", "seed")
    ] = FIVE_RUNS,
    json: JsonOption = False,
) -> None:
    """Whole trainings on a card, cold and warm, against what it could do at best.

    Ratings of the shapes of ML-32M and of a billion are made on the card. A machine that has
    nothing but numpy and torch runs the same: python -m fedmmf_experiments.bench.engines FILE, with
    what --pack wrote.
    """
    if pack is not None:
        _pack(data or "ml-1m", settings, pack)
        return
    device = found("cuda")
    from fedmmf_experiments.bench import engines as bench
    from fedmmf_experiments.bench.engine_beside import case_of, trained_beside

    with explain_errors(), progress_bar("engines") as progress:
        progress("shapes", 0, 2)
        card = bench.card_of(device)
        rows = bench.synthetic_rows(device, card, is_quick=quick)
        progress("shapes", 1, 2)
        beside = {}
        if data is not None:
            train, test = load(data).split(0.1, seed=settings.seed)
            case = case_of(train, test, settings)
            rows += bench.packed_rows(case, device, card)
            beside = {"numba": trained_beside(train, settings, case)}
        progress("shapes", 2, 2)
    if json:
        told = {"card": asdict(card), "rows": [asdict(row) for row in rows]}
        print_json({**told, **beside})
        return
    print_markdown(_ROWS, rows)
    about = f"{card.name}, torch {card.torch}; {card.clocks_and_power}. Copies "
    about += f"{card.copied_gb_per_s:,.0f} GB/s, multiplies {card.float16_tflops:.0f} TFLOP/s in "
    about += f"float16 and {card.float32_tflops:.0f} in float32."
    if beside:
        numbers = ", ".join(f"{name} {value:.4f}" for name, value in beside["numba"].items())
        about += f" numba on {data}, with preparation: {numbers}."
    results.print(about, highlight=False)


def _pack(data: str, settings: Settings, path: Path) -> None:
    if path.suffix != ".npz":
        raise SettingsError(f"--pack needs a file that ends in .npz; got {path}")
    from fedmmf_experiments.bench.engine_beside import case_of
    from fedmmf_experiments.bench.engine_cases import to_file

    train, test = load(data).split(0.1, seed=settings.seed)
    with writing(path, OWNER_ONLY) as file:
        to_file(file, case_of(train, test, settings))
    confirm(path, is_private=True)
