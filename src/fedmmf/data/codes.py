"""Encode the ids of checked ratings as codes: sorted, each (user, item) pair once."""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.errors import DataError, SettingsError

Duplicates = Literal["refuse", "last", "mean"]


class Columns(NamedTuple):
    """Ratings as codes, sorted by (user, item), each pair once."""

    user_codes: npt.NDArray[np.int32]  # (n,)
    item_codes: npt.NDArray[np.int32]  # (n,)
    values: npt.NDArray[np.float32]  # (n,)
    timestamps: npt.NDArray[np.int64] | None  # (n,)
    user_ids: npt.NDArray[Any]  # (n_users,)
    item_ids: npt.NDArray[Any]  # (n_items,)
    rows: npt.NDArray[np.intp]  # (n,) row of the encoded frame that each rating came from


def encode(frame: pl.DataFrame, duplicates: Duplicates = "refuse") -> Columns:
    """Turn a checked frame into codes in canonical order, with duplicate pairs resolved."""
    if duplicates not in get_args(Duplicates):
        raise SettingsError(
            f"duplicates must be one of {', '.join(get_args(Duplicates))}; got {duplicates!r}."
        )
    user_ids, user_codes = _vocabulary(frame["user_id"])
    item_ids, item_codes = _vocabulary(frame["item_id"])
    timestamps = frame["timestamp"].to_numpy() if "timestamp" in frame.columns else None
    values = frame["rating"].to_numpy()
    pairs = user_codes.astype(np.int64) * len(item_ids) + item_codes  # (n,)
    rows = np.argsort(pairs, kind="stable")
    repeats = rows[1:][np.diff(pairs[rows]) == 0]
    if len(repeats) == 0:
        values = values[rows]
    elif duplicates == "refuse":
        raise _duplicate_error(frame, repeats)
    else:
        rows, values = _settle(pairs, values, timestamps, average=duplicates == "mean")
    return Columns(
        user_codes[rows],
        item_codes[rows],
        values.astype(np.float32),
        None if timestamps is None else timestamps[rows],
        user_ids,
        item_ids,
        rows,
    )


def _vocabulary(ids: pl.Series) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return the sorted distinct ids and each row's position among them."""
    distinct = ids.unique().sort().to_numpy()
    codes = ids.rank("dense").cast(pl.Int32).to_numpy() - np.int32(1)
    return (distinct.astype(str) if distinct.dtype == object else distinct), codes


def _duplicate_error(frame: pl.DataFrame, repeats: npt.NDArray[np.intp]) -> DataError:
    example = frame.row(int(repeats[0]), named=True)
    return DataError(
        f"Each user may rate an item once; {len(repeats):,} ratings repeat a (user, item) pair, "
        f"for example user {example['user_id']} and item {example['item_id']}. "
        "Choose what to keep: duplicates='last' or 'mean'; where that is not so, say which column "
        "is which: columns=.",
        flags="--duplicates last|mean, --columns",
    )


def _settle(
    pairs: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    timestamps: npt.NDArray[np.int64] | None,
    *,
    average: bool,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Return one row per pair, the latest, and its value or the average over the pair."""
    keys = (pairs,) if timestamps is None else (timestamps, pairs)
    order = np.lexsort(keys)  # the sort is stable: among equal times the last row stays last
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))  # (n_pairs,) first of each pair
    ends = np.append(starts[1:], len(order))
    latest = order[ends - 1]
    if average:
        return latest, np.add.reduceat(values[order], starts) / (ends - starts)
    return latest, values[latest]
