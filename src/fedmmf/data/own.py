"""One person's own ratings, for somebody who joins a finished model."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from fedmmf.data.files import read_table
from fedmmf.data.frames import checked, encode


def read_own_ratings(path: str | Path) -> dict[int | str, float]:
    """Read a file with the columns item_id and rating; return the rating by item."""
    table = read_table(path)
    if "user_id" not in table.frame.columns:
        table = replace(table, frame=table.frame.with_columns(user_id=pl.lit("me")))
    columns = encode(checked(table))
    return dict(zip(columns.item_ids.tolist(), columns.values.tolist(), strict=True))
