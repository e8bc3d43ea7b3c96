"""`fedmmf bench first-answer`: lists without flags, beside what costs no thought."""

from typing import Annotated

import typer

from fedmmf.cli.choices import JsonOption, SeedOption
from fedmmf.cli.output import Columns, print_json, print_markdown, results, say, shown
from fedmmf_experiments.bench import first_answer as bench

app = typer.Typer()
_ABSENT = (
    "`implicit` is not installed, so that ALS has no figures: pip install './experiments[bench]'"
)
_SETS = list(bench.SETS)


def _als(value: float | None) -> str:
    return shown(value) if bench.has_als() else "not installed"


_ROWS: Columns = {
    "data": lambda row: f"{row.data} (synthetic)" if row.synthetic else row.data,
    "users": lambda row: f"{row.n_users:,}",
    "items": lambda row: f"{row.n_items:,}",
    "ratings": lambda row: f"{row.n_ratings:,}",
    "fedmmf, no flags": lambda row: shown(row.ours),
    "most popular": lambda row: shown(row.popularity),
    "ALS, values": lambda row: _als(row.als_on_values),
    "ALS, ones": lambda row: _als(row.als_on_ones),
    "factors": lambda row: f"{row.settings['factors']}",
}


@app.command("first-answer", epilog="Example: fedmmf bench first-answer --data ml-100k --splits 3")
def first_answer(
    data: Annotated[
        list[str],
        typer.Option("--data", help=f"Of {', '.join(_SETS)}; may be given repeatedly."),
    ] = _SETS,
    splits: Annotated[int, typer.Option(min=1, help="Random splits, from --seed on.")] = 1,
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """The nDCG@10 of lists that nobody set anything for, popularity, and implicit's ALS."""
    chosen = bench.chosen_sets(data)
    if not bench.has_als():
        say(_ABSENT)
    rows = [bench.first_answer(make(), splits, test, seed, say) for make in chosen.values()]
    if json:
        print_json(bench.to_json_dict(rows, splits, test))
        return
    print_markdown(_ROWS, rows)
    results.print(f"nDCG@10, test share {test:g}, {splits} split(s), all unrated items.")
