"""Splits by a set's publisher, and those that an experiment with newcomers needs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import sources
from fedmmf.data.checks import checked, read_rows
from fedmmf.data.codes import encode
from fedmmf.data.doubts import tell_doubts
from fedmmf.data.files import WrittenOptions, parse_table, read_table
from fedmmf.data.names import ID_COLUMNS
from fedmmf.data.ratings import FeaturesLike, Ratings
from fedmmf.data.registry import DATASETS, PublishedSet, load, published_at
from fedmmf.data.scales import RatingScale, ScaleLike
from fedmmf.errors import DataError, SettingsError, UnknownNameError


def read_split(
    train_path: str | Path,
    test_path: str | Path,
    *,
    scale: ScaleLike | None = None,
    features: FeaturesLike | None = None,
    implicit: bool = False,
    **written: Unpack[WrittenOptions],
) -> tuple[Ratings, Ratings]:
    """Read a split in two files, such as u1.base and u1.test; both parts share users and items.

    Both are implicit feedback where `implicit` says so, or where one of them has no ratings. The
    other arguments are those of `Ratings.from_file`.
    """
    scale = None if scale is None else RatingScale.of(scale)
    tables = [read_table(path, **written) for path in (train_path, test_path)]
    rows = read_rows(tables, scale, implicit)
    parts, implicit = rows.frames, rows.is_implicit
    notes = tell_doubts(tables[0], rows, scale)
    if implicit:  # a pair may be repeated within a part, but not be in both
        parts = [part.unique(ID_COLUMNS, keep="last", maintain_order=True) for part in parts]
    shared = [name for name in parts[0].columns if name in parts[1].columns]
    for name in ID_COLUMNS:
        if parts[0][name].dtype != parts[1][name].dtype:  # numbers in one file, text in the other
            parts = [part.with_columns(pl.col(name).cast(pl.String)) for part in parts]
    _require_apart(parts, (train_path, test_path))
    columns = encode(pl.concat([part.select(shared) for part in parts]))
    ratings = Ratings.from_columns(columns, scale=scale, name=Path(train_path).stem)
    ratings = replace(ratings, untimed=rows.untimed, notes=notes)
    ratings = ratings.described(features, written.get("feature_columns"))
    ratings = ratings.as_implicit() if implicit else ratings
    return ratings.split_at(columns.rows >= parts[0].height)


def _require_apart(parts: Sequence[pl.DataFrame], paths: Sequence[str | Path]) -> None:
    """Refuse test ratings that are among the training ratings."""
    train, test = parts
    both = test.join(train, on=ID_COLUMNS, how="semi")
    if both.height:
        first = both.row(0, named=True)
        raise DataError(
            f"{paths[1]} must hold other ratings than {paths[0]}; {both.height:,} (user, item) "
            f"pairs are in both, for example user {first['user_id']} and item {first['item_id']}. "
            "Leave them out of one."
        )


def load_split(name_or_path: str | Path, split: str, **options: Any) -> tuple[Ratings, Ratings]:
    """Load a set as its publisher split it, such as u1 of ml-100k; the parts share all codes.

    Args:
        name_or_path: A name from `datasets()`, or the path of such a set's archive or folder.
        split: What its publisher calls the split.
        **options: Those of `load`.
    """
    return split_as_published(load(name_or_path, **options), name_or_path, split)


def split_as_published(
    ratings: Ratings, name_or_path: str | Path, split: str
) -> tuple[Ratings, Ratings]:
    """Return (train, test) of a set that was loaded from `name_or_path`."""
    source = _source_of(str(name_or_path), split)
    members = {f"{split}.{ending}": ending == "test" for ending in ("base", "test")}
    parts = [
        checked(parse_table(sources.read_member(source, member), member))
        .select(ID_COLUMNS)
        .with_columns(is_test=pl.lit(is_test))
        for member, is_test in members.items()
    ]
    pairs = ratings.to_frame().select(ID_COLUMNS)
    found = pairs.join(pl.concat(parts), on=ID_COLUMNS, how="left", maintain_order="left")
    if found.height != len(ratings) or found["is_test"].has_nulls():
        raise DataError(f"{source} does not part all ratings in {split}. Get the original.")
    return ratings.split_at(found["is_test"].to_numpy())


def _source_of(name: str, split: str) -> Path:
    """Where the files of a set are that has such a split."""
    is_named = name in DATASETS
    entry = DATASETS[name] if is_named else published_at(Path(name))
    known = entry.splits if isinstance(entry, PublishedSet) else ()
    if isinstance(entry, PublishedSet) and split in known:
        return entry.source(None if is_named else Path(name))
    raise UnknownNameError(
        f"{name!r} has no split {split!r}; those of its publisher: {', '.join(known) or 'none'}. "
        "Any ratings can be split at random, and by time where they have timestamps."
    )


def split_newcomers(
    ratings: Ratings, share: float, n_given: int, seed: int = 0
) -> tuple[Ratings, Ratings, Ratings]:
    """Hold out all ratings of some users, who then join a finished model.

    Args:
        ratings: Of everybody.
        share: Of the users; drawn among those with more than `n_given` ratings.
        n_given: How many ratings each newcomer joins with, at random.
        seed: Equal seeds give equal newcomers, and with more given ratings the same and more.

    Returns:
        (train, given, test): what the others rated, what newcomers join with, and the rest of
        theirs to test on; all with the same users and items. `given` is clipped to a scale that was
        found in `train`, since nobody can give what is not on it.
    """
    draw = rng.stream(seed, "newcomers")
    is_new = _drawn_users(ratings, share, n_given, draw.permutation(ratings.n_users))
    order = np.lexsort((draw.random(len(ratings)), ratings.user_codes))
    place = np.empty(len(ratings), dtype=np.int64)  # (n,) among the ratings of its user
    place[order] = np.arange(len(ratings)) - ratings.by_user[ratings.user_codes]
    train, others = ratings.split_at(is_new[ratings.user_codes])
    is_given = (place < n_given)[is_new[ratings.user_codes]]
    test, given = others.split_at(is_given)
    return train, replace(given, values=given.scale.clip(given.values)), test


def _drawn_users(ratings: Ratings, share: float, n_given: int, order: Array) -> Array:
    """Draw the new users among those with enough ratings. (n_users,) bool."""
    n_wanted = round(share * ratings.n_users)
    if n_given < 1 or not 0 < n_wanted < ratings.n_users:
        raise SettingsError(
            f"Newcomers are a share of the {ratings.n_users} users that leaves some on both sides, "
            f"with at least 1 rating each; got the share {share} and {n_given} ratings."
        )
    able = order[np.diff(ratings.by_user)[order] > n_given]
    if len(able) < n_wanted:
        raise SettingsError(
            f"{n_wanted} newcomers need more than {n_given} ratings each; {len(able)} users have "
            "them. Choose a smaller share or fewer ratings."
        )
    is_new = np.zeros(ratings.n_users, dtype=np.bool_)
    is_new[able[:n_wanted]] = True
    return is_new
