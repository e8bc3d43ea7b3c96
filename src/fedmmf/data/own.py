"""One person's own ratings, for somebody who joins a finished model."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from fedmmf.data.files import read_table
from fedmmf.data.frames import checked, counts_as_implicit, encode
from fedmmf.errors import DataError
from fedmmf.scale import RatingScale


def read_own_ratings(
    path: str | Path, scale: RatingScale | None = None, *, asked: bool = False
) -> dict[int | str, float]:
    """Read a file with the columns item_id and rating; return the rating by item.

    Args:
        path: Of the file; without ratings it is implicit feedback, if the scale is that of it.
        scale: That the ratings have to be on; None: any.
        asked: Whether ratings are to be left aside: what is in the file was chosen, no more.
    """
    table = read_table(path)
    if "user_id" not in table.frame.columns:
        table = replace(table, frame=table.frame.with_columns(user_id=pl.lit("me")))
    implicit = counts_as_implicit(table, scale, asked=asked)
    columns = encode(checked(table, scale, implicit=implicit), "last" if implicit else "refuse")
    if len(columns.user_ids) > 1:
        raise DataError(
            f"{table.label} must hold the ratings of one person; it has {len(columns.user_ids)}."
        )
    return dict(zip(columns.item_ids.tolist(), columns.values.tolist(), strict=True))
