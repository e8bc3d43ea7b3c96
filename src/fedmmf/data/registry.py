"""The sets that have a name, and the one function that loads any ratings."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Unpack

import numpy as np
import polars as pl

from fedmmf.data import cache, published, sources
from fedmmf.data.checks import require_implicit_scale
from fedmmf.data.codes import Duplicates
from fedmmf.data.files import WrittenOptions
from fedmmf.data.ratings import FeaturesLike, Ratings
from fedmmf.data.scales import RatingScale, ScaleLike
from fedmmf.data.sources import Progress, fetch
from fedmmf.errors import DataError, FedMMFError, SettingsError, UnknownNameError
from fedmmf.registry import Registry, lazy

_GROUPLENS = "https://files.grouplens.org/datasets"
_MOVIELENS_TERMS = "GroupLens terms: research use, no redistribution, no commercial use"


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a named set that are known before it is loaded."""

    name: str
    title: str
    url: str | None
    sha256: str | None
    n_ratings: int
    n_users: int
    n_items: int
    scale: RatingScale
    licence: str
    synthetic: bool = False
    local: Path | None = None


class Dataset(Protocol):
    """A set that has a name."""

    @property
    def info(self) -> DatasetInfo:
        """Facts about the set that are known before it is loaded."""

    def find(self) -> Path | None:
        """Return the path of its files; None: they are not here, or it needs none."""

    def load(self, **options: Any) -> Ratings:
        """Load its ratings; `edges` is an option of `lastfm` alone."""


@dataclass(frozen=True)
class PublishedSet:
    """A published set: the names of its files, and the function that parses them."""

    info: DatasetInfo
    folder: str
    markers: tuple[str, ...]
    parse: Callable[..., Ratings]
    options: tuple[str, ...] = ()  # that `parse` takes
    splits: tuple[str, ...] = ()  # that its publisher made, as NAME.base and NAME.test

    @property
    def archive(self) -> str:
        """File name of the archive at its publisher."""
        return str(self.info.url).rsplit("/", 1)[-1]

    def find(self) -> Path | None:
        """Return the path of the archive or of the unpacked folder."""
        return sources.find(self.archive, self.folder, self.markers)

    def load(self, source: Path | None = None, **options: Any) -> Ratings:
        """Parse the files that are found, or those of `source`; what was parsed is cached."""
        source = self.source(source)
        known = {key: value for key, value in options.items() if key in self.options}
        key = {"set": self.info.name, **known}
        return cache.cached(source, key, partial(self._parse, source, known))

    def source(self, given: Path | None = None) -> Path:
        """Return the path of its files: as given, or else as found."""
        if (source := given or self.find()) is None:
            raise DataError(
                f"The files of {self.info.name!r} are not on this machine. Run `fedmmf data get "
                f"{self.info.name}`, or set FEDMMF_DATA to the folder that holds {self.archive}."
            )
        return source

    def _parse(self, source: Path, options: dict[str, Any]) -> Ratings:
        try:
            return self.parse(partial(sources.read_member, source), **options)
        except FedMMFError:
            raise
        except (ValueError, LookupError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"{source} does not have the layout of {self.info.name!r}: {error}. Get the "
                "original."
            ) from error


@dataclass(frozen=True)
class MadeSet:
    """A synthetic set that a function generates."""

    info: DatasetInfo
    make: Callable[[str], Ratings]  # from its name

    def find(self) -> Path | None:
        """Return None, since a synthetic set has no files."""
        return None

    def load(self, **options: Any) -> Ratings:
        """Generate the ratings; no option changes them."""
        return replace(self.make(self.info.name), name=self.info.name)


ML_100K = PublishedSet(
    DatasetInfo(
        "ml-100k",
        "MovieLens 100K",
        f"{_GROUPLENS}/movielens/ml-100k.zip",
        "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
        n_ratings=100_000,
        n_users=943,
        n_items=1_682,
        scale=published.WHOLE_STARS,
        licence=_MOVIELENS_TERMS,
    ),
    folder="ml-100k",
    markers=("u.data", "u.item"),
    parse=published.load_100k,
    splits=("u1", "u2", "u3", "u4", "u5", "ua", "ub"),
)
ML_1M = PublishedSet(
    DatasetInfo(
        "ml-1m",
        "MovieLens 1M",
        f"{_GROUPLENS}/movielens/ml-1m.zip",
        "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
        n_ratings=1_000_209,
        n_users=6_040,
        n_items=3_706,
        scale=published.WHOLE_STARS,
        licence=_MOVIELENS_TERMS,
    ),
    folder="ml-1m",
    markers=("ratings.dat", "users.dat"),
    parse=published.load_1m,
)
ML_10M = PublishedSet(
    DatasetInfo(
        "ml-10m",
        "MovieLens 10M",
        f"{_GROUPLENS}/movielens/ml-10m.zip",
        "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
        n_ratings=10_000_054,
        n_users=69_878,
        n_items=10_677,
        scale=published.HALF_STARS,
        licence=_MOVIELENS_TERMS,
    ),
    folder="ml-10M100K",
    markers=("ratings.dat", "tags.dat"),
    parse=published.load_10m,
)
LASTFM = PublishedSet(
    DatasetInfo(
        "lastfm",
        "Last.fm listening counts (HetRec 2011), binned",
        f"{_GROUPLENS}/hetrec2011/hetrec2011-lastfm-2k.zip",
        "6738f48195667ff03caaab4d32ca9a3133d8cc026b7c3cdaf6ce1010e913c59c",
        n_ratings=92_834,
        n_users=1_892,
        n_items=17_632,
        scale=published.WHOLE_STARS,
        licence="Last.fm and GroupLens terms: non-commercial use only",
    ),
    folder="hetrec2011-lastfm-2k",
    markers=("user_artists.dat",),
    parse=published.load_lastfm,
    options=("edges",),
)


# Loaded at first use: its compiled kernel is slow to import, and few sessions need it.
_make = lazy("fedmmf.data.synthetic:make")
SYNTHETIC = MadeSet(
    DatasetInfo(
        "synthetic",
        "A small made-up catalogue for the demo",
        None,
        None,
        n_ratings=60_000,
        n_users=600,
        n_items=800,
        scale=published.WHOLE_STARS,
        licence="Apache-2.0",
        synthetic=True,
    ),
    make=_make,
)
SYNTHETIC_ML_10M = MadeSet(
    DatasetInfo(
        "synthetic:ml-10m",
        "Made-up ratings of the shape of MovieLens 10M",
        None,
        None,
        n_ratings=10_000_054,
        n_users=69_878,
        n_items=10_677,
        scale=published.HALF_STARS,
        licence="Apache-2.0",
        synthetic=True,
    ),
    make=_make,
)

_HERE = {
    "ml-100k": "ML_100K",
    "ml-1m": "ML_1M",
    "ml-10m": "ML_10M",
    "lastfm": "LASTFM",
    "synthetic": "SYNTHETIC",
    "synthetic:ml-10m": "SYNTHETIC_ML_10M",
}
DATASETS: Registry[Dataset] = Registry(
    "data set", "fedmmf.datasets", {name: f"{__name__}:{home}" for name, home in _HERE.items()}
)


def datasets() -> list[DatasetInfo]:
    """Return every named set, with where its files are, if they are on this machine."""
    known = map(DATASETS.__getitem__, DATASETS.names())
    return [replace(entry.info, local=entry.find()) for entry in known]


def get(name: str, *, progress: Progress | None = None) -> Path:
    """Download a published set unless it is already here, and return where it is."""
    if name not in DATASETS:
        raise _unknown(name)
    if progress is not None and not callable(progress):
        raise SettingsError(
            f"progress must be a function of (bytes so far, total or None); got {progress!r}"
        )
    entry = DATASETS[name]
    if (local := entry.find()) is not None:
        return local
    if not isinstance(entry, PublishedSet):
        raise SettingsError(f"{name!r} is made on the fly and needs no download. Just load it.")
    target = sources.download_folder() / entry.archive
    return fetch(str(entry.info.url), str(entry.info.sha256), target, progress)


def load(
    name_or_path: str | Path,
    *,
    scale: ScaleLike | None = None,
    duplicates: Duplicates = "refuse",
    features: FeaturesLike | None = None,
    edges: Sequence[float] = published.EDGES,
    implicit: bool = False,
    **written: Unpack[WrittenOptions],
) -> Ratings:
    """Load a named set or a file of ratings.

    Args:
        name_or_path: A name from `datasets()`, the path of such a set's archive or folder, or a
            path as `Ratings.from_file` reads it.
        scale: The rating scale, as (1, 5), instead of the set's own or that found in the file.
        duplicates: What to do with a repeated (user, item) pair of a file.
        features: Item features, or a frame or file to make them from, instead of the set's own.
        edges: Plays at which the next rating begins; for `lastfm` only.
        implicit: Count every rating as a 1, whatever it says; on the scale 0..1.
        **written: How a file is written, where that is not found, and what of it to drop; see
            `WrittenOptions`.
    """
    name, options = str(name_or_path), {"edges": [float(edge) for edge in edges]}
    if name in DATASETS:
        found = DATASETS[name].load(**options)
    elif (entry := published_at(Path(name_or_path))) is not None:
        found = entry.load(Path(name_or_path), **options)
    elif _looks_like_path(name_or_path):
        return Ratings.from_file(
            name_or_path,
            scale=scale,
            duplicates=duplicates,
            features=features,
            implicit=implicit,
            **written,
        )
    else:
        raise _unknown(name)
    columns = _only_feature_columns(name, written)
    found = found.as_implicit() if implicit else found
    found = found if scale is None else _on_scale(found, RatingScale.of(scale))
    return found.described(features, columns)


def _only_feature_columns(name: str, written: WrittenOptions) -> Sequence[str] | None:
    """The columns of features; refuses what is about files where a set has a known form."""
    given = [key for key, value in written.items() if value and key != "feature_columns"]
    if given:
        raise SettingsError(
            f"{name!r} is a set of a known form; {given[0]} is about files. Leave it out."
        )
    return written.get("feature_columns")


def published_at(path: Path) -> PublishedSet | None:
    """Return the published set whose archive or folder is at this path."""
    if path.exists():
        for name in _HERE:
            entry = DATASETS[name]
            if isinstance(entry, PublishedSet) and path.name in (entry.archive, entry.folder):
                return entry
    return None


def _on_scale(ratings: Ratings, scale: RatingScale) -> Ratings:
    if ratings.is_implicit:
        require_implicit_scale(scale)
    low, high = float(np.min(ratings.values)), float(np.max(ratings.values))
    if low < scale.min or high > scale.max:
        raise DataError(
            f"{ratings.name!r} has ratings from {low:g} to {high:g}, outside the scale {scale}."
        )
    return ratings.with_scale(scale)


def _looks_like_path(name_or_path: str | Path) -> bool:
    path = Path(name_or_path)
    return (
        isinstance(name_or_path, Path)
        or path.exists()
        or bool(path.suffix)
        or path.name != str(path)
    )


def _unknown(name: str) -> UnknownNameError:
    known = DATASETS.names()
    near = difflib.get_close_matches(name, known, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return UnknownNameError(
        f"There is no data set or file called {name!r}.{hint} Known sets: {', '.join(known)}."
    )
