"""`fedmmf bench ranking` and `fedmmf bench list-speed`: lists beside those of other rankers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.choices import DataChoice, DataOption, JsonOption
from fedmmf.cli.files import GOING_ON
from fedmmf.cli.options import Only, expanded, for_implicit
from fedmmf.cli.output import (
    Columns,
    errors,
    plain,
    print_json,
    print_markdown,
    progress_bar,
    results,
)
from fedmmf.data import Ratings, load
from fedmmf.settings import Settings
from fedmmf_experiments.bench import list_speed as bench_speed
from fedmmf_experiments.bench import ranking as bench
from fedmmf_experiments.bench.ranking_peers import missing_rankers
from fedmmf_experiments.bookshop import bookshop, core
from fedmmf_experiments.paired import PairedDifference
from fedmmf_experiments.result_cache import ResultCache

app = typer.Typer()

BOOKSHOP = "bookshop"  # a name for `--data`, besides those of `fedmmf data list`
_RANKED = DataChoice("ml-100k")
_LISTS = Settings(mask="mean", solver="vb", objective="ranking", factors=64)


@dataclass(frozen=True)
class ListsTried:
    """Options for the data and the rankers that are compared."""

    data: DataChoice = _RANKED
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2
    splits: Annotated[int, typer.Option(min=1, help="Random splits, from --seed on.")] = 1
    only_summed: Annotated[
        bool,
        typer.Option(
            "--only-summed", help="For all rankers, only the items that strict mode sums."
        ),
    ] = False
    validation: Annotated[
        bool,
        typer.Option("--validation", help="Test on a tenth of the training ratings instead."),
    ] = False
    ranker: Annotated[
        list[str],
        typer.Option("--ranker", help="Rows to show; may be given repeatedly; none: all."),
    ] = field(default_factory=list)
    out: Annotated[Path | None, GOING_ON] = None

    def load(self) -> Ratings:
        """Load the ratings; `bookshop` makes them up in the shape of Book-Crossing."""
        return core(bookshop()) if self.data.data == BOOKSHOP else self.data.load()

    def parts(self, ratings: Ratings, seed: int) -> list[tuple[Ratings, Ratings]]:
        """Training and test ratings of each split; for choices, no test ratings but a part."""
        splits = [ratings.split(self.test, seed=seed + number) for number in range(self.splits)]
        if not self.validation:
            return splits
        return [train.split(bench.VALIDATION, seed=1) for train, _ in splits]


@app.command("ranking", epilog="Example: fedmmf bench ranking --data ml-100k --splits 3")
@expanded
def ranking(
    tried: ListsTried,
    settings: Annotated[
        Settings,
        Only("mask", "factors", "rounds", "implicit_prior", "unrated_weight", "ensemble", "seed"),
    ] = _LISTS,
    json: JsonOption = False,
) -> None:
    """Lists of centralised rankers, tuned, and ours in strict mode, in one run.

    --data takes the name bookshop too: made-up ratings in the shape of Book-Crossing.
    """
    ratings = tried.load()
    if ratings.is_implicit:
        settings = for_implicit(settings)
    parts = tried.parts(ratings, settings.seed)
    for package in missing_rankers():
        errors.print(f"without the rankers of {package}: it is not installed (see `make bench`)")
    cache = ResultCache(tried.out)
    run = bench.RankingRun(parts, settings, cache, _tell, tried.only_summed, tried.ranker)
    rows = list(run.rows())
    behind = bench.behind(rows, tried.test)
    if json:
        about = {"data": ratings.name, "synthetic": ratings.synthetic, "test": tried.test}
        about |= {"splits": tried.splits, "only_summed": tried.only_summed}
        about["validation"] = tried.validation
        differences = {name: asdict(found) for name, found in behind.items()}
        rows_there = [row.to_json_dict() for row in rows]
        print_json({**about, "rows": rows_there, "behind": differences})
        return
    print_markdown(_columns(behind), rows)
    results.print(_about(tried, ratings), highlight=False, soft_wrap=True)


def _columns(behind: Mapping[str, PairedDifference]) -> Columns:
    return {
        "ranker": lambda row: row.name,
        "settings": _settings,
        "nDCG@10": lambda row: f"{row.mean():.4f}",
        "recall@20": lambda row: f"{row.mean('recall_at_20'):.4f}",
        "MRR@10": lambda row: f"{row.mean('mrr_at_10'):.4f}",
        "nDCG@10, summed items": lambda row: f"{row.mean_of('among_summed'):.4f}",
        "kB up, down a round": _kilobytes,
        "fit s, CPU s": lambda row: f"{row.seconds:.1f}, {row.cpu_seconds:.1f}",
        "ours is better by, nDCG@10": lambda row: str(behind.get(row.name, "")),
    }


def _settings(row: bench.RankingRow) -> str:
    """Settings of the first split's fit, such as `value, penalty 150`."""
    chosen = dict(row.splits[0].settings)
    words = [str(chosen.pop("chosen"))] if "chosen" in chosen else []
    numbers = (
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
    )
    return ", ".join([*words, *numbers])


def _kilobytes(row: bench.RankingRow) -> str:
    """Traffic of a user in a round; nothing for rankers that hold everybody's ratings."""
    up, down = (row.mean_of(name) / 1e3 for name in ("up_bytes", "down_bytes"))
    return f"{up:,.0f}, {down:,.0f}" if up else ""


def _about(tried: ListsTried, ratings: Ratings) -> str:
    made_up = " (synthetic)" if ratings.synthetic else ""
    items = "the items that strict mode sums" if tried.only_summed else "all items"
    tested = "a tenth of the training ratings" if tried.validation else "the test ratings"
    return (
        f"{ratings.name}{made_up}: {ratings.n_users:,} users, {ratings.n_items:,} items, "
        f"{len(ratings):,} ratings; test share {tried.test:g}, {tried.splits} split(s), lists of "
        f"{items} that a user has not rated, judged by {tested}."
    )


def _tell(name: str) -> None:
    errors.print(f"{plain(name)} ...")


_SPEEDS: Columns = {
    "trainer": lambda row: row.name,
    "factors": lambda row: f"{row.factors}",
    "CPU s": lambda row: f"{row.cpu_seconds:.1f}",
    "s": lambda row: f"{row.seconds:.1f}",
    "CPU s / iALS's": lambda row: f"{row.cpu_over_ials:.2f}",
    "s / iALS's": lambda row: f"{row.seconds_over_ials:.2f}",
    "nDCG@10": lambda row: f"{row.ndcg_at_10:.4f}",
}


@app.command("list-speed", epilog="Example: fedmmf bench list-speed --data ml-100k --repeats 1")
@expanded
def list_speed(
    data: DataOption = "ml-1m",
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2,
    repeats: Annotated[int, typer.Option(min=1, help="Times each is fitted.")] = 3,
    settings: Annotated[Settings, Only("mask", "factors", "rounds", "seed")] = _LISTS,
    json: JsonOption = False,
) -> None:
    """Training of lists in strict mode and of iALS with as many factors, in turn."""
    ratings = load(data)
    with progress_bar(data) as progress:
        rows = bench_speed.measure(ratings, settings, test, repeats, progress)
    if json:
        print_json({"data": data, "test": test, "rows": [asdict(row) for row in rows]})
        return
    print_markdown(_SPEEDS, rows)
    label = f"{data} (synthetic)" if ratings.synthetic else data
    results.print(f"{label}, test share {test:g}, medians of {repeats}.", highlight=False)
