"""Groups of options that several commands share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmmf.cli.output import reading_of
from fedmmf.data import Ratings, load, read_split, split_as_published
from fedmmf.data.codes import Duplicates
from fedmmf.data.published import EDGES
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError
from fedmmf.model.accuracy import DEFAULT_TOP, relevant_rating
from fedmmf.settings import Settings

_PANEL = "Data"

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random stream.")]
UnusedSeedOption = Annotated[
    int, typer.Option("--seed", min=0, help="Accepted by every command; nothing here is random.")
]


def parse_scale(text: str) -> RatingScale:
    """Parse a rating scale written as MIN:MAX or MIN:MAX:STEP."""
    try:
        parts = tuple(float(part) for part in text.split(":"))
    except ValueError:
        parts = ()
    if len(parts) not in (2, 3):
        raise typer.BadParameter(f"must be MIN:MAX or MIN:MAX:STEP, such as 1:5:1; got {text!r}")
    try:
        return RatingScale.of(parts)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def parse_columns(text: str) -> dict[str, str]:
    """Read PART=NAME,..., such as user=User-ID,item=ISBN,rating=Book-Rating."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals and part and name for part, equals, name in pairs):
        raise typer.BadParameter(
            f"must be such as user=User-ID,item=ISBN,rating=Book-Rating; got {text!r}"
        )
    return {part.strip(): name.strip() for part, _, name in pairs}


def parse_names(text: str) -> list[str]:
    """Read names with commas between, such as year,genre."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_edges(text: str) -> tuple[float, ...]:
    """Read edges such as 200,400,600,800."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"must be numbers with commas between; got {text!r}") from None


def parse_epsilons(text: str) -> tuple[float, ...]:
    """Read epsilons such as 1,2,4,8."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < epsilon <= 100 for epsilon in found):
        raise typer.BadParameter(
            f"must be epsilons above 0 and at most 100 with commas between, such as 1,2,4,8; got "
            f"{text!r}"
        )
    return found


def _data(text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=_PANEL, **more)


def _test(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Test", **more)


DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        help="Name of a data set (see `fedmmf data list`) or a ratings file.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Writing:
    """Options that describe the format of a ratings file; what is not given is detected."""

    columns: Annotated[
        Any,
        _data(
            "Which column is which, by name or number; else found.",
            metavar="user=NAME,item=NAME,...",
            parser=parse_columns,
        ),
    ] = None
    separator: Annotated[str | None, _data("Between fields; else found.")] = None
    encoding: Annotated[str | None, _data("Of the text, such as latin-1; else found.")] = None
    missing_values: Annotated[
        list[str] | None,
        _data(
            "A rating that stands for none, such as 0; again for more.",
            "--missing-value",
            metavar="V",
        ),
    ] = None
    drop_bad_rows: Annotated[
        bool, _data("Drop and count rows that cannot be read.", "--drop-bad-rows")
    ] = False
    date_format: Annotated[
        str | None, _data("Of the times, such as %d/%m/%Y; else found.", metavar="FORMAT")
    ] = None


@dataclass(frozen=True)
class Reading:
    """Options for reading a file of ratings."""

    features: Annotated[Path | None, _data("File with item_id and columns of item features.")] = (
        None
    )
    feature_columns: Annotated[
        Any,
        _data("Use these columns of --features alone.", metavar="NAME,...", parser=parse_names),
    ] = None
    profiles: Annotated[Path | None, _data("File with user_id and columns of user profiles.")] = (
        None
    )
    implicit: Annotated[
        bool, _data("Count every row as a 1, whatever its rating.", "--implicit")
    ] = False
    scale: Annotated[
        Any, _data("Rating scale; else found.", metavar="MIN:MAX[:STEP]", parser=parse_scale)
    ] = None
    duplicates: Annotated[Duplicates, _data("What to do with a repeated (user, item) pair.")] = (
        "refuse"
    )
    edges: Annotated[
        Any, _data("lastfm: plays per rating.", metavar="N,N,...", parser=parse_edges)
    ] = None
    writing: Writing = Writing()

    def load(self, data: str) -> Ratings:
        """Load a set by name, or a file."""
        with reading_of(data):
            found = load(
                data,
                scale=self.scale,
                duplicates=self.duplicates,
                features=self.features,
                feature_columns=self.feature_columns,
                edges=EDGES if self.edges is None else self.edges,
                implicit=self.implicit,
                **vars(self.writing),
            )
            return found if self.profiles is None else found.with_profiles(self.profiles)

    @property
    def files(self) -> Mapping[str, Path | None]:
        """Input files by their flag."""
        return {"--features": self.features, "--profiles": self.profiles}

    def require_none(self, why: str) -> None:
        """Refuse files of features and profiles where nothing is trained."""
        for flag, file in self.files.items():
            if file is not None:
                raise SettingsError(f"{flag} is for training; {why}. Leave it out")

    def load_parts(self, data: str, test_file: Path) -> tuple[Ratings, Ratings]:
        """Load a file, and another one to test on."""
        more: dict[str, Any] = {"features": self.features, "implicit": self.implicit}
        more["feature_columns"] = self.feature_columns
        with reading_of(data):
            train, test = read_split(
                data, test_file, scale=self.scale, **more, **vars(self.writing)
            )
        if self.profiles is None:
            return train, test
        train = train.with_profiles(self.profiles)
        return train, replace(test, profiles=train.profiles)


@dataclass(frozen=True)
class DataChoice:
    """Options that choose the ratings and how to read them."""

    data: DataOption = "synthetic"
    reading: Reading = Reading()

    @property
    def files(self) -> Mapping[str, Path | None]:
        """Input files by their flag; the data may be the name of a set."""
        return {"--data": Path(self.data), **self.reading.files}

    def load(self) -> Ratings:
        """Load the ratings that the options name."""
        return self.reading.load(self.data)


@dataclass(frozen=True)
class HeldBack:
    """Options for the test ratings and for the metrics computed on them."""

    test: Annotated[float, _test("Share of ratings to test on; 0: none.", min=0, max=1)] = 0.2
    test_file: Annotated[Path | None, _test("Test on this file instead, as in u1.test.")] = None
    split: Annotated[
        str,
        _test(
            "Test at random, on the latest, or on a split of the set's publisher, as u1.",
            metavar="random|time|NAME",
        ),
    ] = "random"
    top: Annotated[
        int | None,
        _test("Train lists, and test the N best items beside the most popular ones.", min=1),
    ] = None
    relevant_from: Annotated[
        float | None,
        _test(
            "--top: the rating from which on an item is relevant.",
            show_default="three quarters up the scale",
        ),
    ] = None

    def parts(self, chosen: DataChoice, seed: int) -> tuple[Ratings, Ratings | None]:
        """Return the training ratings, and the test ratings where there are any."""
        training, testing = self._parts(chosen, seed)
        relevant_rating(training.scale, self.relevant_from)  # before any training
        return training, testing

    def wants_lists(self, settings: Settings) -> bool:
        """Whether the options ask for lists."""
        return self.top is not None or settings.objective == "ranking"

    def length(self, settings: Settings) -> int | None:
        """Length of the lists that are evaluated; None: no lists are evaluated."""
        length = self.top or (DEFAULT_TOP if settings.objective == "ranking" else None)
        if length is None and self.relevant_from is not None:
            raise SettingsError("--relevant-from is about lists; give --top N as well")
        return length

    def _parts(self, chosen: DataChoice, seed: int) -> tuple[Ratings, Ratings | None]:
        if self.test_file is not None:
            return chosen.reading.load_parts(chosen.data, self.test_file)
        ratings = chosen.load()
        if self.split not in ("random", "time"):
            return split_as_published(ratings, chosen.data, self.split)
        if self.test == 0:
            return ratings, None
        if self.split == "time":
            return ratings.split_by_time(self.test)
        return ratings.split(self.test, seed=seed)


@dataclass(frozen=True)
class Splits:
    """How often an experiment is repeated, and on how much it is tested."""

    runs: Annotated[int, typer.Option(min=1, help="Random splits per model and point.")] = 10
    test: Annotated[float, typer.Option(help="Share of ratings to test on.")] = 0.2
