"""`fedmmf recommend`: the best unrated items for a known user, or for somebody new."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from fedmmf.cli.choices import JsonOption, Reading
from fedmmf.cli.options import Only, expanded
from fedmmf.cli.output import print_json, progress_bar, results, table
from fedmmf.config import Settings
from fedmmf.data import read_own_ratings
from fedmmf.errors import SettingsError
from fedmmf.model import FedMMF

EXAMPLE = "Example: fedmmf recommend --model model.fedmmf --user 42 --n 10"


@dataclass(frozen=True)
class ModelChoice:
    """Where the model comes from."""

    model: Annotated[
        Path | None, typer.Option(help="A model that `fedmmf train --save` wrote.")
    ] = None
    data: Annotated[str | None, typer.Option(help="Without a model: train on this set first.")] = (
        None
    )

    def fitted(self, settings: Settings) -> FedMMF:
        """Load the model, or train it."""
        if (self.model is None) == (self.data is None):
            raise SettingsError("give either --model FILE or --data NAME")
        if self.model is not None:
            return FedMMF.load(self.model)
        ratings = Reading().load(str(self.data))
        with progress_bar(ratings.name) as progress:
            return FedMMF(**settings.model_dump()).fit(ratings, progress=progress)


@dataclass(frozen=True)
class Recipient:
    """Whom to recommend to, and how much."""

    user: Annotated[str | None, typer.Option(help="Id of a user the model knows.")] = None
    ratings: Annotated[
        Path | None, typer.Option(help="Instead of --user: a newcomer's file, item_id and rating.")
    ] = None
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many items.")] = 10

    @property
    def name(self) -> str:
        """How answers call them."""
        return "newcomer" if self.user is None else self.user

    def check(self) -> None:
        """Refuse nobody, and two at once."""
        if (self.user is None) == (self.ratings is None):
            raise SettingsError("give either --user ID or --ratings FILE")

    def best(self, model: FedMMF) -> pl.DataFrame:
        """Their items."""
        if self.ratings is not None:
            own = read_own_ratings(self.ratings, model.learned.scale)
            return model.join(own).recommend(self.n)
        return model.recommend(self.name, self.n)


@expanded
def recommend(
    model: ModelChoice,
    recipient: Recipient,
    settings: Annotated[Settings, Only("mask", "seed")],
    json: JsonOption = False,
) -> None:
    """Recommend items to one user; somebody new needs no retraining."""
    recipient.check()
    best = recipient.best(model.fitted(settings))
    if json:
        print_json({"user": recipient.name, "recommendations": best.to_dicts()})
    else:
        show(best, f"for {recipient.name}")


def show(best: pl.DataFrame, whom: str) -> None:
    """Print recommendations as a table."""
    names = best["title"] if "title" in best.columns else best["item_id"].cast(pl.String)
    rows = [
        [str(name), str(item), f"{prediction:.2f}"]
        for name, item, prediction in zip(names, best["item_id"], best["prediction"], strict=True)
    ]
    results.print(table(f"{len(rows)} items {whom}", ["item", "item_id", "prediction"], rows))
