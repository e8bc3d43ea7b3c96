"""Read one person's own ratings, for a user who joins a finished model."""

from dataclasses import replace
from pathlib import Path
from typing import Unpack

import polars as pl

from fedmmf.data.files import WrittenOptions, read_table
from fedmmf.data.frames import IMPLICIT_SCALE, Table, checked, counts_as_implicit, encode
from fedmmf.data.names import ID_COLUMNS
from fedmmf.data.scales import RatingScale
from fedmmf.data.values import with_numbers
from fedmmf.errors import DataError


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
        **written: `columns`, `separator` and `encoding`, where they are not found.
    """
    table = read_table(path, **written)
    if not asked and scale not in (None, IMPLICIT_SCALE):
        table = _with_ratings(table)
    table = with_numbers(table)
    if "user_id" not in table.frame.columns:
        table = replace(table, frame=table.frame.with_columns(user_id=pl.lit("me")))
    implicit = counts_as_implicit(table, scale, asked=asked)
    frame = checked(table, scale, implicit=implicit)
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
