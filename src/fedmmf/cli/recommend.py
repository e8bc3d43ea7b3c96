"""`fedmmf recommend`: the best unrated items for a known user, or for somebody new."""

from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from fedmmf.cli import options as o
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.data import read_own_ratings
from fedmmf.errors import SettingsError
from fedmmf.model import FedMMF

EXAMPLE = "Example: fedmmf recommend --model model.fedmmf --user 42 --n 10"


def recommend(
    model: Annotated[
        Path | None, typer.Option("--model", help="A model that `fedmmf train --save` wrote.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Without a model: train on this set first.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="Id of a user the model knows.")
    ] = None,
    ratings: Annotated[
        Path | None,
        typer.Option("--ratings", help="Instead of --user: a newcomer's file, item_id and rating."),
    ] = None,
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many items.")] = 10,
    mask: o.MaskOption = o.DEFAULTS.mask,
    seed: o.SeedOption = o.DEFAULTS.seed,
    json: o.JsonOption = False,
) -> None:
    """Recommend items to one user; somebody new needs no retraining."""
    if (user is None) == (ratings is None):
        raise SettingsError("give either --user ID or --ratings FILE")
    fitted = _model(model, data, mask, seed)
    if ratings is not None:
        best, who = fitted.join(read_own_ratings(ratings)).recommend(n), "newcomer"
    else:
        best, who = fitted.recommend(str(user), n), str(user)
    if json:
        print_json({"user": who, "recommendations": best.to_dicts()})
    else:
        show(best, f"for {who}")


def show(best: pl.DataFrame, whom: str) -> None:
    """Print recommendations as a table."""
    names = best["title"] if "title" in best.columns else best["item_id"].cast(pl.String)
    rows = [
        [str(name), str(item), f"{prediction:.2f}"]
        for name, item, prediction in zip(names, best["item_id"], best["prediction"], strict=True)
    ]
    results.print(table(f"{len(rows)} items {whom}", ["item", "item_id", "prediction"], rows))


def _model(path: Path | None, data: str | None, mask: str, seed: int) -> FedMMF:
    if (path is None) == (data is None):
        raise SettingsError("give either --model FILE or --data NAME")
    if path is not None:
        return FedMMF.load(path)
    ratings = o.load_ratings(str(data))
    with progress_bar(ratings.name) as progress:
        return FedMMF(mask=mask, seed=seed).fit(ratings, progress=progress)
