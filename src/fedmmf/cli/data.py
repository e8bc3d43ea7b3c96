"""`fedmmf data`: which sets there are, what is in one, and how to get it."""

from typing import Any

import numpy as np
import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from fedmmf.cli.choices import JsonOption, Reading, UnusedSeedOption
from fedmmf.cli.options import expanded
from fedmmf.cli.output import errors, plain, print_json, results, table
from fedmmf.data import DatasetInfo, Ratings, datasets
from fedmmf.data import get as download

app = typer.Typer(help="List, download and describe data sets.", no_args_is_help=True)


@app.command("list", epilog="Example: fedmmf data list")
def list_sets(seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Show the known data sets and which of them are on this machine."""
    known = datasets()
    if json:
        print_json({"datasets": [_describe(info) for info in known]})
        return
    rows = [
        [info.name, f"{info.n_ratings:,}", f"{info.n_users:,}", f"{info.n_items:,}", _where(info)]
        for info in known
    ]
    results.print(table("data sets", ["name", "ratings", "users", "items", "here"], rows))


@app.command("get", epilog="Example: fedmmf data get ml-100k")
def get_set(name: str, seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Download a set from its publisher and check it; a broken download is continued."""
    columns = ("[bold]{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(plain(name), total=None)
        path = download(
            name, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    if json:
        print_json({"name": name, "path": str(path)})
    else:
        results.print(f"{plain(name)} is at {plain(path)}", soft_wrap=True)


@app.command("info", epilog="Example: fedmmf data info ml-100k")
@expanded
def info(name: str, reading: Reading, seed: UnusedSeedOption = 0, json: JsonOption = False) -> None:
    """Load a data set or a ratings file and describe it."""
    facts = _facts(reading.load(name))
    if json:
        print_json(facts)
        return
    del facts["notes"]  # standard error has them already
    rows = [[key.replace("_", " "), _text(value)] for key, value in facts.items()]
    results.print(table(name, ["", "value"], rows))


def _facts(ratings: Ratings) -> dict[str, Any]:
    per_user, per_item = np.diff(ratings.by_user), np.diff(ratings.by_item.indptr)
    values, counts = np.unique(ratings.values, return_counts=True)
    shown = zip(values[:20], counts[:20], strict=True)
    return {
        "name": ratings.name,
        "synthetic": ratings.synthetic,
        "implicit": ratings.is_implicit,
        "n_ratings": ratings.n_ratings,
        "n_users": ratings.n_users,
        "n_items": ratings.n_items,
        "scale": {"min": ratings.scale.min, "max": ratings.scale.max, "step": ratings.scale.step},
        "mean_rating": round(float(ratings.values.mean(dtype=np.float64)), 4),
        "ratings_per_user": _spread(per_user),
        "ratings_per_item": _spread(per_item),
        "distribution": {f"{value:g}": int(count) for value, count in shown},
        "has_timestamps": ratings.timestamps is not None,
        "features": [] if ratings.features is None else list(ratings.features.names),
        "notes": list(ratings.notes),
        "profiles": [] if ratings.profiles is None else list(ratings.profiles.names),
    }


def _spread(counts: Any) -> dict[str, float]:
    return {"min": int(counts.min()), "median": float(np.median(counts)), "max": int(counts.max())}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "  ".join(f"{key}: {item:,}" for key, item in value.items())
    if isinstance(value, list):
        return f"{len(value)}: {', '.join(value)}" if value else "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _describe(info: DatasetInfo) -> dict[str, Any]:
    facts = {**vars(info), "scale": vars(info.scale), "local": info.local and str(info.local)}
    return facts | {"available": info.synthetic or info.local is not None}


def _where(info: DatasetInfo) -> str:
    if info.synthetic:
        return "made here"
    return "yes" if info.local else f"fedmmf data get {info.name}"
