"""Ratings in whatever Python users have them in: frames, matrices, LensKit's data, X and y.

Other libraries are known by what their objects can do, so that none of them is needed or loaded.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl

from fedmmf.arrays import Array
from fedmmf.data.checks import IMPLICIT_SCALE, read_rows
from fedmmf.data.codes import encode
from fedmmf.data.files import WrittenOptions, read_table
from fedmmf.data.frames import Table, to_polars
from fedmmf.data.ids import as_ids
from fedmmf.data.names import ID_COLUMNS
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale, ScaleLike
from fedmmf.errors import DataError, SettingsError

ACCEPTED = (
    "Ratings, a pandas or polars frame with user_id, item_id and rating, a scipy sparse matrix "
    "(rows are users), a LensKit dataset, or pairs X, (n, 2), and their ratings y"
)


def ratings_of(given: Any, y: Any = None, scale: ScaleLike | None = None) -> Ratings:
    """Convert ratings from any supported type.

    Args:
        given: one of ACCEPTED.
        y: the ratings of the pairs `given`, in order; those of a pair that is there again, as in a
            bootstrap of scikit-learn, count as their mean. (n,)
        scale: of the ratings; None: found in them.
    """
    if y is not None:
        rated = _rated_pairs(given, y)
        return Ratings.from_frame(rated, scale=scale, duplicates="mean", name="X")
    if isinstance(given, Ratings):
        if scale is not None:
            raise SettingsError(
                f"{given.name!r} has the scale {given.scale}; got another one, {scale!r}. Use "
                "with_scale to change it"
            )
        return given
    if is_matrix(given):
        return Ratings.from_matrix(given, scale=scale)
    if (found := _of_lenskit(given)) is not None:
        return Ratings.from_frame(found, scale=scale, name=str(getattr(given, "name", "dataset")))
    if is_frame(given):
        return Ratings.from_frame(given, scale=scale)
    raise DataError(f"ratings must be {ACCEPTED}; got {_named(given)}. {_way_out(given)}")


def _named(given: Any) -> str:
    shape = getattr(given, "shape", None)
    return type(given).__name__ + (f" of shape {shape}" if shape is not None else "")


def _way_out(given: Any) -> str:
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 2:
        return "Give their ratings as y"
    if isinstance(given, np.ndarray):
        return "If it is a matrix of ratings, scipy.sparse.coo_array says which are there"
    if hasattr(given, "__fspath__") or isinstance(given, str):
        return "Read it first: fedmmf.load"
    return "Make a frame of it"


def is_frame(given: Any) -> bool:
    """Whether something is a polars or pandas frame."""
    return isinstance(given, pl.DataFrame | pl.LazyFrame) or (
        hasattr(given, "columns") and hasattr(given, "isna")
    )


def is_matrix(given: Any) -> bool:
    """Whether something is a sparse matrix or array of scipy."""
    return hasattr(given, "tocoo") and hasattr(given, "nnz")


def _of_lenskit(given: Any) -> Any:
    """A frame of LensKit's Dataset, or of its lists by user; None of anything else."""
    if hasattr(given, "interaction_table"):
        found = given.interaction_table(format="pandas", original_ids=True)
    elif hasattr(given, "to_df") and hasattr(given, "key_type"):
        found = given.to_df()
    else:
        return None
    known = [name for name in (*ID_COLUMNS, "rating", "timestamp") if name in found.columns]
    return found[known]


def pairs_of(given: Any) -> tuple[Array, Array]:
    """Users and items of pairs: rows of an array (n, 2), of a frame, or of ratings. (n,) each."""
    if isinstance(given, Ratings):
        return given.user_ids[given.user_codes], given.item_ids[given.item_codes]
    if is_frame(given):
        columns = _pair_columns(to_polars(given))
        return as_ids(columns[0].to_list(), "users"), as_ids(columns[1].to_list(), "items")
    is_sparse = is_matrix(given)
    pairs: Array = np.zeros(0) if is_sparse else np.asarray(given)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        got = _named(given if is_sparse else pairs)
        raise DataError(
            "pairs of user and item must be an array of shape (n, 2), or a frame with user_id and "
            f"item_id; got {got}. Give users and items as two lists otherwise"
        )
    return as_ids(pairs[:, 0], "users"), as_ids(pairs[:, 1], "items")


def _pair_columns(frame: pl.DataFrame) -> list[pl.Series]:
    if set(ID_COLUMNS) <= set(frame.columns):
        return [frame[name] for name in ID_COLUMNS]
    if frame.width == 2:
        return frame.get_columns()
    raise DataError(
        "a frame of pairs needs the columns user_id and item_id, or two columns, user and item; "
        f"arrived: {', '.join(frame.columns)}. Rename or select"
    )


def _rated_pairs(given: Any, y: Any) -> pl.DataFrame:
    users, items = pairs_of(given)
    values = np.asarray(y)
    if values.shape != users.shape:
        raise DataError(
            f"y must have one rating for each of the {len(users):,} pairs; got shape {values.shape}"
        )
    if values.dtype.kind not in "iuf":
        raise DataError(f"y must be numbers, the ratings; got {values.dtype}. Convert it")
    return pl.DataFrame({"user_id": users, "item_id": items, "rating": values})


def read_own_ratings(
    path: str | Path,
    scale: RatingScale | None = None,
    *,
    asked: bool = False,
    **written: Unpack[WrittenOptions],
) -> dict[int | str, float]:
    """Read a file with the columns item_id and rating; return the rating by item.

    Args:
        path: Of the file; without ratings it is implicit feedback, if the scale is that of it.
        scale: That the ratings have to be on; None: any.
        asked: Whether ratings are to be left aside: what is in the file was chosen, no more.
        **written: How it is written, where that is not found; see `WrittenOptions`.
    """
    table = read_table(path, **written)
    if not asked and scale not in (None, IMPLICIT_SCALE):
        table = _with_ratings(table)
    if "user_id" not in table.frame.columns:
        is_blank = pl.all_horizontal(pl.all().is_null())
        whose = pl.when(is_blank).then(None).otherwise(pl.lit("me")).alias("user_id")
        table = replace(table, frame=table.frame.with_columns(whose))
    rows = read_rows([table], scale, asked)
    frame, implicit = rows.frames[0], rows.is_implicit
    people = frame["user_id"].unique().sort()
    if len(people) > 1:
        raise DataError(
            f"{table.label} must hold the ratings of one person; it has those of {len(people):,}, "
            f"such as {people[0]!r} and {people[1]!r}. Keep the rows of one."
        )
    twice = frame.filter(frame["item_id"].is_duplicated())["item_id"]
    if len(twice) and not implicit:
        raise DataError(
            f"{table.label} must rate an item once; {twice[0]!r} is there more often. Keep one row."
        )
    columns = encode(frame, "last" if implicit else "refuse")
    return dict(zip(columns.item_ids.tolist(), columns.values.tolist(), strict=True))


def _with_ratings(table: Table) -> Table:
    """Two columns without a header are item and rating, where there have to be ratings."""
    if table.has_header or table.frame.columns != list(ID_COLUMNS):
        return table
    frame = table.frame.rename({"user_id": "item_id", "item_id": "rating"})
    note = "no header, so columns are item_id, rating"
    return replace(table, frame=frame, notes=(*table.notes[:-1], note))
