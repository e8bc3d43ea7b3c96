"""Splits that somebody published as two files."""

from pathlib import Path

import polars as pl

from fedmmf.data.files import read_table
from fedmmf.data.frames import checked, encode
from fedmmf.data.ratings import FeaturesLike, Ratings
from fedmmf.scale import RatingScale


def read_split(
    train_path: str | Path,
    test_path: str | Path,
    *,
    scale: RatingScale | None = None,
    features: FeaturesLike | None = None,
) -> tuple[Ratings, Ratings]:
    """Read a published split, such as u1.base and u1.test; both parts share users and items."""
    parts = [checked(read_table(path), scale) for path in (train_path, test_path)]
    shared = [name for name in parts[0].columns if name in parts[1].columns]
    for name in ("user_id", "item_id"):
        if parts[0][name].dtype != parts[1][name].dtype:  # numbers in one file, text in the other
            parts = [part.with_columns(pl.col(name).cast(pl.String)) for part in parts]
    both = pl.concat([part.select(shared) for part in parts])
    columns = encode(both)
    ratings = Ratings.from_columns(
        columns, scale=scale, features=features, name=Path(train_path).stem
    )
    is_test = columns.rows >= parts[0].height
    return ratings.select(~is_test), ratings.select(is_test)
