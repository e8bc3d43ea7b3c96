"""`fedmmf recommend`: the best items for users of a model, or for somebody new."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console

from fedmmf.cli.choices import JsonOption, Reading
from fedmmf.cli.files import Files, require_outputs, written
from fedmmf.cli.options import RANKING_DEFAULTS, Only, expanded, for_lists
from fedmmf.cli.output import errors, plain, print_json, progress_bar, results, say, table
from fedmmf.data import Ratings, read_own_ratings
from fedmmf.data.files import read_bytes, read_table
from fedmmf.data.ids import as_ids
from fedmmf.errors import DataError, SettingsError
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import DEFAULT_TOP
from fedmmf.model.lists import Id, ListRequest, lists_for, what_ranks
from fedmmf.reports.list_scores import RankingScores
from fedmmf.settings import Settings

EXAMPLE = (
    "Example: fedmmf recommend --model model.fedmmf --user 42 --user 43 --n 10 --exclude sold.csv"
)
Asked = dict[str, Any]  # arguments of `recommend`
NEWCOMER = "newcomer"
_FORMATS = (".csv", ".parquet")
_TEST = 0.2  # share of the ratings that lists of predicted ratings are measured on
Fitted = tuple[FedMMF, RankingScores | None]
"""A model, and how good its lists are, where that is known."""


@dataclass(frozen=True)
class ModelChoice:
    """Options for a saved model, or for data to train one on."""

    model: Annotated[
        Path | None, typer.Option(help="A model that `fedmmf train --save` wrote.")
    ] = None
    data: Annotated[str | None, typer.Option(help="Without a model: train on this set first.")] = (
        None
    )

    @property
    def files(self) -> Files:
        """Input files by their flag; the data may be the name of a set."""
        return {"--model": self.model, "--data": Path(self.data) if self.data else None}

    def fitted(self, settings: Settings, reading: Reading) -> Fitted:
        """Load the model, or train one that ranks unless the options say otherwise."""
        if (self.model is None) == (self.data is None):
            raise SettingsError("give either --model FILE or --data NAME")
        if self.model is not None:
            reading.require_none("a saved model has its own")
            model = FedMMF.load(self.model)
            return model, model.list_scores
        ratings = reading.load(str(self.data))
        return _trained(ratings, for_lists(settings, ratings, say))


def _trained(ratings: Ratings, settings: Settings) -> Fitted:
    """Train a model. Lists of predicted ratings are measured first, on a part of the ratings."""
    model, scores = FedMMF(**settings.model_dump()), None
    with progress_bar(ratings.name) as progress:
        if settings.objective == "rating":
            training, testing = ratings.split(_TEST, seed=settings.seed)
            model.fit(training, progress=progress).evaluate(testing, top=DEFAULT_TOP)
            scores = model.list_scores
        return model.fit(ratings, progress=progress), scores


@dataclass(frozen=True)
class ListChoice:
    """Options for the length and the candidate items of the lists."""

    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many items.")] = 10
    candidates: Annotated[
        Path | None,
        typer.Option(help="Choose from these items alone: an id a line, or a column item_id."),
    ] = None
    exclude: Annotated[
        Path | None, typer.Option(help="Leave these items out: an id a line, or a column item_id.")
    ] = None
    seen: Annotated[
        bool, typer.Option("--seen", help="Also list what a user has rated already.")
    ] = False

    @property
    def files(self) -> Files:
        """Input files by their flag."""
        return {"--candidates": self.candidates, "--exclude": self.exclude}

    def asked(self) -> Asked:
        """Return the arguments of `recommend`; reads the files that are named."""
        candidates = None if self.candidates is None else read_ids(self.candidates, "item_id")
        exclude = [] if self.exclude is None else read_ids(self.exclude, "item_id")
        return {"n": self.n, "candidates": candidates, "exclude": exclude, "seen": self.seen}


@dataclass(frozen=True)
class Recipients:
    """Options for the users to recommend to."""

    user: Annotated[
        list[str] | None, typer.Option(help="Id of a user the model knows; again for more users.")
    ] = None
    users: Annotated[
        Path | None, typer.Option(help="File of users: an id a line, or a column user_id.")
    ] = None
    ratings: Annotated[
        Path | None, typer.Option(help="Instead of users: a newcomer's file, item_id and rating.")
    ] = None

    @property
    def files(self) -> Files:
        """Input files by their flag."""
        return {"--users": self.users, "--ratings": self.ratings}

    def check(self) -> None:
        """Refuse options that name no recipients, or two kinds of them."""
        if sum(given not in (None, []) for given in (self.user, self.users, self.ratings)) != 1:
            raise SettingsError("give one of --user ID, --users FILE and --ratings FILE")

    def ids(self) -> list[str]:
        """Ids of the chosen users; the model has to know them."""
        return self.user or [] if self.users is None else read_ids(self.users, "user_id")

    @property
    def is_one(self) -> bool:
        """Whether the answer is one list: a newcomer's, or that of a single --user."""
        return self.users is None and len(self.user or ()) < 2


@dataclass(frozen=True)
class ListOutputs:
    """Options for where and how lists are written."""

    out: Annotated[
        Path | None,
        typer.Option(help="Write the lists to this .csv or .parquet file, a row an item."),
    ] = None
    json: JsonOption = False

    def check(self, inputs: Files) -> None:
        """Refuse a format that is not known, or a file that is in use, before any work."""
        if self.out is not None and self.out.suffix not in _FORMATS:
            known = " or ".join(_FORMATS)
            raise SettingsError(f"--out must be a file that ends in {known}; got {self.out}")
        require_outputs({"--out": self.out}, inputs)


@expanded
def recommend(
    model: ModelChoice,
    recipients: Recipients,
    reading: Reading,
    choice: ListChoice,
    settings: Annotated[
        Settings, Only("objective", "solver", "mask", "factors", "seed", **RANKING_DEFAULTS)
    ],
    outputs: ListOutputs,
) -> None:
    """Recommend items to one user or to many; somebody new needs no retraining."""
    outputs.check({**model.files, **recipients.files, **choice.files, **reading.files})
    recipients.check()
    ids, asked = recipients.ids(), choice.asked()
    fitted, scores = model.fitted(settings, reading)
    if recipients.ratings is None:
        found = _lists(fitted, ids, asked)
    else:
        learned = fitted.learned
        asks = {"asked": learned.is_implicit, **vars(reading.writing)}
        own = read_own_ratings(recipients.ratings, learned.scale, **asks)
        found = _newcomers(fitted, own, asked)
    is_shown = outputs.out is None and not outputs.json
    warning = say_what_ranks(fitted.settings, scores, results if is_shown else errors)
    if outputs.out is not None:
        _write(found.rows, outputs.out)
    if outputs.json:
        lists = [
            {"user": user, "recommendations": best.drop("user_id", "rank").to_dicts()}
            for user, best in found.by_user()
        ]
        about = {"objective": fitted.settings.objective} | ({"warning": warning} if warning else {})
        print_json(about | (lists[0] if recipients.is_one else {"lists": lists}))
    elif outputs.out is not None:
        results.print(f"{len(found.names):,} lists are in {plain(outputs.out)}", soft_wrap=True)
    else:
        for user, best in found.by_user():
            show(best, f"for {user}")


@dataclass(frozen=True, eq=False)
class Lists:
    """Users' lists, one below the other; a list may be empty."""

    names: dict[Id, str]  # as the model has them -> as they were given; in the order of the rows
    rows: pl.DataFrame  # user_id, rank, item_id, title if known, prediction

    def by_user(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield each user's id with the rows of that user's list."""
        lengths = dict(self.rows.group_by("user_id").len().iter_rows())
        place = 0
        for user, given in self.names.items():
            length = lengths.get(user, 0)
            yield given, self.rows.slice(place, length)
            place += length


def _lists(model: FedMMF, ids: list[str], asked: Asked) -> Lists:
    """Make the lists of users that the model knows."""
    learned = model.learned
    own = learned.user_ids[learned.known_user_codes(as_ids(ids))].tolist()
    names = dict(zip(own, ids, strict=True))  # 7 and 07 are one user
    wanted = ListRequest.checked(learned, **asked)
    with progress_bar("recommend") as progress:
        return Lists(names, lists_for(learned, names, wanted, progress))


def _newcomers(model: FedMMF, own: Mapping[Id, float], asked: Asked) -> Lists:
    """Make the list of a new user from that user's own ratings."""
    best, whose = model.join(own).recommend(**asked), pl.lit(NEWCOMER).alias("user_id")
    return Lists({NEWCOMER: NEWCOMER}, best.with_row_index("rank", 1).select(whose, pl.all()))


def say_what_ranks(
    settings: Settings, scores: RankingScores | None, console: Console = results
) -> str:
    """Print a loud line where lists are of predicted ratings, with what they are worth.

    Returns:
        The line; empty where the model ranks, and none is due.
    """
    note = what_ranks(settings, scores)
    if note:
        loud = f"[bold red]{plain(note)} (--objective ranking)[/]"
        console.print(loud, soft_wrap=True, highlight=False)
    return note


def read_ids(path: Path, column: str) -> list[str]:
    """Ids from a file: those of a column with that name, or else what is on each line."""
    if path.suffix != ".parquet":
        lines = _lines(path)
        if not lines or column not in re.split(r"::|[\t,;|]", lines[0]):
            return lines
    frame = read_table(path).frame
    if column not in frame.columns:
        found = ", ".join(frame.columns)
        raise DataError(f"{path} must have a column {column}; its columns are {found}")
    return frame[column].drop_nulls().cast(pl.String).to_list()


def _lines(path: Path) -> list[str]:
    """The lines of a file that have something on them."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} must be UTF-8 text; save it as such, or as .parquet") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _write(lists: pl.DataFrame, path: Path) -> None:
    with written(path) as partial:
        lists.write_csv(partial) if path.suffix == ".csv" else lists.write_parquet(partial)


def show(best: pl.DataFrame, whom: str) -> None:
    """Print recommendations as a table."""
    names = best["title"] if "title" in best.columns else best["item_id"].cast(pl.String)
    rows = [
        [str(name), str(item), f"{prediction:.2f}"]
        for name, item, prediction in zip(names, best["item_id"], best["prediction"], strict=True)
    ]
    results.print(table(f"{len(rows)} items {whom}", ["item", "item_id", "prediction"], rows))
