"""The published sets, in the layouts of their publishers: MovieLens, and Last.fm of HetRec 2011.

Last.fm's listening counts are binned into ratings.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.checks import checked
from fedmmf.data.codes import encode
from fedmmf.data.features import ItemFeatures
from fedmmf.data.files import parse_table
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, SettingsError

Read = Callable[[str], bytes]
"""Returns the content of a set's file, given its name."""
WHOLE_STARS = RatingScale(1.0, 5.0, 1.0)
HALF_STARS = RatingScale(0.5, 5.0, 0.5)
_YEAR_IN_TITLE = re.compile(r"\((\d{4})\)\s*$")
_NO_GENRES = "(no genres listed)"
_AGES = {
    1: "under 18", 18: "18-24", 25: "25-34", 35: "35-44", 45: "45-49", 50: "50-55", 56: "56+",
}  # fmt: skip
"""Classes by their youngest age, which is the number that ML-1M has for all of a class."""
_OCCUPATIONS = (
    "other", "academic/educator", "artist", "clerical/admin", "college/grad student",
    "customer service", "doctor/health care", "executive/managerial", "farmer", "homemaker",
    "K-12 student", "lawyer", "programmer", "retired", "sales/marketing", "scientist",
    "self-employed", "technician/engineer", "tradesman/craftsman", "unemployed", "writer",
)  # fmt: skip
"""What the numbers of ML-1M stand for, from its README."""
EDGES = (200.0, 400.0, 600.0, 800.0)
"""Plays at which the next rating begins."""


class Person(NamedTuple):
    """A user's attributes; the zip code is left out, since it nearly identifies a person."""

    user_id: int
    age: str
    gender: str
    occupation: str


class Movie(NamedTuple):
    """A movie's attributes in the catalogue."""

    title: str
    genres: tuple[str, ...] = ()
    year: float | None = None


def load_100k(read: Read) -> Ratings:
    """Load ML-100K with genres, release year and users' profiles."""
    ratings = _ratings(read, "u.data", WHOLE_STARS, "ml-100k")
    genres = [line.split("|")[0] for line in _lines(read("u.genre"), "latin-1")]
    catalogue = dict(_movie_100k(line, genres) for line in _lines(read("u.item"), "latin-1"))
    people = [_person_100k(line) for line in _lines(read("u.user"), "latin-1")]
    return _described(ratings, catalogue).with_profiles(pl.DataFrame(people))


def load_1m(read: Read) -> Ratings:
    """Load ML-1M with genres, release year and users' profiles."""
    ratings = _ratings(read, "ratings.dat", WHOLE_STARS, "ml-1m")
    people = [_person_1m(line) for line in _lines(read("users.dat"), "latin-1")]
    described = _described(ratings, _catalogue(read("movies.dat"), "latin-1"))
    return described.with_profiles(pl.DataFrame(people))


def load_10m(read: Read) -> Ratings:
    """Load ML-10M with genres, release year and users' tags."""
    ratings = _ratings(read, "ratings.dat", HALF_STARS, "ml-10m")
    assignments = [_fields(line, 4, "tags.dat") for line in _lines(read("tags.dat"), "latin-1")]
    items = np.array([int(item) for _, item, _, _ in assignments], dtype=np.int64)
    codes, rated = positions(ratings.item_ids, items)
    texts = [fields[2] for fields, keep in zip(assignments, rated, strict=True) if keep]
    tags = ItemFeatures.tags(codes, texts, ratings.n_items)
    return _described(ratings, _catalogue(read("movies.dat"), "utf-8"), tags)


def positions(
    sorted_ids: npt.NDArray[Any], wanted: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Return the codes of those `wanted` that are known, and the mask that says which are."""
    codes = np.minimum(np.searchsorted(sorted_ids, wanted), len(sorted_ids) - 1)
    known = sorted_ids[codes] == wanted
    return codes[known], known


def _ratings(read: Read, member: str, scale: RatingScale, name: str) -> Ratings:
    columns = encode(checked(parse_table(read(member), member), scale))
    return Ratings.from_columns(columns, scale=scale, name=name)


def _lines(content: bytes, encoding: str) -> list[str]:
    # Not splitlines(): latin-1 text may hold 0x85, which that takes for the end of a line.
    return [line.rstrip("\r") for line in content.decode(encoding).split("\n") if line.strip()]


def _fields(line: str, count: int, member: str) -> list[str]:
    fields = line.split("::")
    if len(fields) > count:  # a '::' inside the text, which is the last field but one
        head, tail = fields[: count - 2], fields[-1:]
        fields = [*head, "::".join(fields[count - 2 : -1]), *tail]
    if len(fields) < count:
        raise DataError(f"{member} needs {count} fields separated by '::'; got {line!r}.")
    return fields


def _person_100k(line: str) -> Person:
    number, age, gender, occupation, _ = line.split("|")
    return Person(int(number), _age_class(int(age)), gender, occupation)


def _person_1m(line: str) -> Person:
    number, gender, age, occupation, _ = _fields(line, 5, "users.dat")
    return Person(int(number), _age_class(int(age)), gender, _OCCUPATIONS[int(occupation)])


def _age_class(age: int) -> str:
    """Convert ages to the classes of ML-1M, so that both sets have the same profiles."""
    return _AGES[max(youngest for youngest in _AGES if youngest <= age)]


def _movie_100k(line: str, genres: list[str]) -> tuple[int, Movie]:
    number, title, released, _, _, *flags = line.split("|")
    chosen = tuple(genre for genre, flag in zip(genres, flags, strict=True) if flag == "1")
    return int(number), Movie(title, chosen, float(released[-4:]) if released else None)


def _catalogue(content: bytes, encoding: str) -> dict[int, Movie]:
    movies = {}
    for line in _lines(content, encoding):
        number, title, listed = _fields(line, 3, "movies.dat")
        genres = () if listed == _NO_GENRES else tuple(listed.split("|"))
        year = _YEAR_IN_TITLE.search(title)
        movies[int(number)] = Movie(title, genres, float(year[1]) if year else None)
    return movies


def _described(ratings: Ratings, catalogue: dict[int, Movie], *more: ItemFeatures) -> Ratings:
    """Add titles, genres, release years and any further features of the rated movies."""
    ids = ratings.item_ids.tolist()
    movies = [catalogue.get(number) or Movie(title=str(number)) for number in ids]
    features = ItemFeatures.joined(
        ItemFeatures.genres([movie.genres for movie in movies]),
        ItemFeatures.release_years([movie.year for movie in movies]),
        *more,
    )
    titles = np.array([movie.title for movie in movies], dtype=np.str_)
    return replace(ratings, features=features, item_titles=titles)


def load_lastfm(read: Read, edges: Sequence[float] = EDGES) -> Ratings:
    """Load the counts as ratings from 1 to `len(edges) + 1`, with artists' tags as features."""
    scale = RatingScale(1.0, 1.0 + len(_checked_edges(edges)), 1.0)
    counts = checked(parse_table(read("user_artists.dat"), "user_artists.dat"))
    plays = counts["rating"].to_numpy()
    binned = counts.with_columns(pl.Series("rating", binned_counts(plays, edges)))
    ratings = Ratings.from_columns(encode(binned), scale=scale, name="lastfm")
    return replace(
        ratings, features=_tag_features(read, ratings.item_ids), item_titles=_names(read, ratings)
    )


def binned_counts(
    plays: npt.NDArray[np.float64], edges: Sequence[float]
) -> npt.NDArray[np.float64]:
    """Return 1 + the number of edges that each count reaches."""
    return np.asarray(1.0 + np.digitize(plays, np.asarray(edges, dtype=np.float64)))


def _checked_edges(edges: Sequence[float]) -> Sequence[float]:
    if len(edges) == 0 or any(low >= high for low, high in pairwise(edges)):
        raise SettingsError(f"Edges must be one or more rising numbers of plays; got {edges}.")
    return edges


def _tag_features(read: Read, item_ids: npt.NDArray[np.int64]) -> ItemFeatures:
    frame = parse_table(read("user_taggedartists.dat"), "user_taggedartists.dat").frame
    codes, rated = positions(item_ids, frame["item_id"].cast(pl.Int64).to_numpy())
    # Tags are counted by id; what a tag says does not matter to its weight.
    tags = frame["tagID"].filter(pl.Series(rated)).to_list()
    return ItemFeatures.tags(codes, tags, len(item_ids))


def _names(read: Read, ratings: Ratings) -> npt.NDArray[np.str_]:
    frame = parse_table(read("artists.dat"), "artists.dat").frame
    known = dict(zip(frame["id"].cast(pl.Int64), frame["name"], strict=True))
    ids = ratings.item_ids.tolist()
    return np.array([known.get(number) or str(number) for number in ids], dtype=np.str_)
