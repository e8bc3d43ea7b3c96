"""Check frames that users pass in, and encode their ids as codes.

A frame goes through two stages: `checked` refuses what is wrong and names the place of the first
offence; `encode` turns ids into codes, resolves duplicates and sorts.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.forks import require_threads
from fedmmf.data.names import COLUMNS, ID_COLUMNS, known_columns, plain_name, said_parts
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, SettingsError

log = logging.getLogger("fedmmf.data")
Duplicates = Literal["refuse", "last", "mean"]
IMPLICIT_SCALE = RatingScale(0.0, 1.0, 1.0)
"""Of implicit feedback: what somebody used is a 1, and nobody says 0."""
_MAX_LEVELS, _WIDEST_SPAN = 10, 100  # of ratings that are whole numbers; ids and counts have more


@dataclass(frozen=True)
class Table:
    """A frame as it arrived, with the means to name one of its rows in an error."""

    frame: pl.DataFrame
    label: str
    unit: Literal["line", "row"] = "row"
    first: int = 0
    has_header: bool = True
    is_text: bool = False  # so that types are still to be found
    arrived: tuple[str, ...] = ()  # names of its columns before they got ours
    notes: tuple[str, ...] = ()  # what was assumed
    untimed: str | None = None  # why there are no timestamps, where there should be some

    def at(self, place: int) -> str:
        """Describe the place of a row, e.g. `ratings.csv, line 7`."""
        return f"{self.label}, {self.unit} {place}"


class Columns(NamedTuple):
    """Ratings as codes, sorted by (user, item), each pair once."""

    user_codes: npt.NDArray[np.int32]  # (n,)
    item_codes: npt.NDArray[np.int32]  # (n,)
    values: npt.NDArray[np.float32]  # (n,)
    timestamps: npt.NDArray[np.int64] | None  # (n,)
    user_ids: npt.NDArray[Any]  # (n_users,)
    item_ids: npt.NDArray[Any]  # (n_items,)
    rows: npt.NDArray[np.intp]  # (n,) row of the encoded frame that each rating came from


def to_polars(frame: Any) -> pl.DataFrame:
    """Return a polars frame from a polars or pandas one."""
    require_threads()
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if hasattr(frame, "columns") and hasattr(frame, "isna"):
        return pl.DataFrame([_from_pandas(str(name), frame[name]) for name in frame.columns])
    raise DataError(
        f"Ratings and features come as a polars or pandas data frame; got {type(frame).__name__}."
    )


def _from_pandas(name: str, series: Any) -> pl.Series:
    # Column by column, because polars' own conversion needs pyarrow, which we do not depend on.
    values = series.to_numpy()
    if values.dtype.kind in "iufbM":
        return pl.Series(name, values, nan_to_null=True)
    missing = series.isna().to_numpy()
    known = [None if gone else value for value, gone in zip(values, missing, strict=True)]
    return pl.Series(name, known, strict=False)


def named(
    table: Table, said: Mapping[str, str] | None = None, parts: tuple[str, ...] = COLUMNS
) -> Table:
    """Return the table with our names for the columns that were said to be them, or are known.

    Args:
        table: with names of its own, or in the usual order.
        said: column by part, such as {"user": "User-ID"}; one without a name has a number.
        parts: those to look for.
    """
    columns, asked = table.frame.columns, said_parts(said or {})
    if table.has_header:
        chosen = known_columns(columns, parts)
        guessed = [(column, part) for part, column in chosen.items() if part not in asked]
        notes = [f"{c} is {part}" for c, part in guessed if plain_name(c) != plain_name(part)]
    elif asked:
        chosen, notes = {}, []
    else:
        chosen = dict(zip(parts, columns, strict=False))
        notes = [f"no header, so columns are {', '.join(chosen)}"]
    chosen |= {part: _column(table, name) for part, name in asked.items()}
    ours = [pl.col(column).alias(part) for part, column in chosen.items()]
    others = [name for name in columns if name not in (*chosen.values(), *chosen)]
    frame = table.frame.select(*ours, *others)
    arrived = tuple(columns) if table.has_header else ()
    return replace(table, frame=frame, arrived=arrived, notes=(*table.notes, *notes))


def _column(table: Table, name: str) -> str:
    columns = table.frame.columns
    if name in columns:
        return name
    if name.isdecimal() and 0 < int(name[:9]) <= len(columns):  # more digits name none
        return columns[int(name) - 1]
    same = [column for column in columns if plain_name(column) == plain_name(name) != ""]
    if len(same) == 1:
        return same[0]
    raise DataError(
        f"{table.label} has no column {name[:40]!r}; its columns: {shown_columns(table)}. "
        "Say a name or a number, from 1 on."
    )


def shown_columns(table: Table) -> str:
    """Names of columns for a message, as the file has them, however long or many they are."""
    columns = table.arrived or tuple(table.frame.columns)
    names = [name if len(name) <= 40 else f"{name[:37]}..." for name in columns[:8]]
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return (", ".join(names) + more).replace("\n", " ") or "none"


def tell(table: Table) -> None:
    """Log in one line what was assumed of a table."""
    if table.notes:
        log.warning("%s: %s", table.label, "; ".join(table.notes))


def frame_of_matrix(matrix: Any, keep_zeros: bool) -> pl.DataFrame:
    """The stored entries of a scipy sparse matrix as a frame; zeros only where they are kept."""
    entries = matrix.tocoo()
    if entries.ndim != 2:
        raise DataError(
            f"a matrix of ratings has rows, users, and columns, items; got shape {matrix.shape}."
        )
    rows, columns = (np.asarray(codes, np.int64) for codes in (entries.row, entries.col))
    frame = pl.DataFrame({"user_id": rows, "item_id": columns, "rating": np.asarray(entries.data)})
    n_zeros = int(np.count_nonzero(entries.data == 0))
    if keep_zeros or n_zeros == 0:
        return frame
    log.warning(
        "%s stored zeros of the matrix are left out; Ratings.from_matrix(..., keep_zeros=True) "
        "takes them for ratings",
        f"{n_zeros:,}",
    )
    return frame.filter(pl.col("rating") != 0)


def require_implicit_scale(scale: RatingScale | None) -> None:
    """Refuse another scale than that of implicit feedback."""
    if scale not in (None, IMPLICIT_SCALE):
        raise SettingsError(f"Implicit feedback is on the scale {IMPLICIT_SCALE}; got {scale}.")


def counts_as_implicit(table: Table, scale: RatingScale | None, asked: bool) -> bool:
    """Whether every row is a 1: because that was asked for, or because the table has no ratings.

    Where ratings on another scale are needed, a table without them stays an error. What was assumed
    of the table is said here, since this is part of it.
    """
    if asked:
        require_implicit_scale(scale)
    columns = table.frame.columns
    is_rated = "rating" in columns or not set(ID_COLUMNS) <= set(columns)
    assumed = not (asked or is_rated) and scale in (None, IMPLICIT_SCALE)
    if assumed:
        note = f"no column rating among {shown_columns(table)}: every row counts as a 1, implicit"
        table = replace(table, notes=(*table.notes, f"{note} feedback"))
    tell(table)
    return asked or assumed


def warn_of_ids(frame: pl.DataFrame, label: str) -> None:
    """Warn where ratings look like ids or counts: many whole numbers that lie far apart."""
    ratings = frame["rating"]
    low, high = ratings.to_numpy().min(), ratings.to_numpy().max()
    if high - low <= _WIDEST_SPAN or (ratings != ratings.floor()).any():
        return
    n_levels = ratings.n_unique()
    if n_levels > _MAX_LEVELS:
        log.warning(
            "%s: its ratings are %s whole numbers from %.0f to %.0f, as ids, times and counts are. "
            "Say which column is which (--columns user=1,item=2,rating=3; in Python columns=), or "
            "count rows alone (--implicit; implicit=True)",
            label,
            f"{n_levels:,}",
            low,
            high,
        )


def checked(
    table: Table, scale: RatingScale | None = None, *, implicit: bool = False
) -> pl.DataFrame:
    """Return the table's ratings with clean types, or raise DataError at the first bad row.

    Ids become integers where every one of them is written as one, and text otherwise. Where they
    are `implicit`, ratings need not be there and are not looked at.
    """
    read = [name for name in COLUMNS if not (implicit and name == "rating")]
    _require_columns(table, read)
    present = [name for name in read if name in table.frame.columns]
    frame = table.frame.select(present).with_row_index("place", offset=table.first)
    if table.is_text:
        frame = _tidy_text(frame, present)
    if frame.is_empty():
        raise DataError(f"{table.label} holds no ratings; at least one row is needed.")
    for name in ID_COLUMNS:
        frame = frame.with_columns(_ids(frame, name, table))
    for name in present[len(ID_COLUMNS) :]:
        frame = frame.with_columns(_numbers(frame, name, table))
    if implicit:
        frame = frame.with_columns(rating=pl.lit(IMPLICIT_SCALE.max))
    if scale is not None:
        outside = (pl.col("rating") < scale.min) | (pl.col("rating") > scale.max)
        _refuse(
            frame, outside, "rating", table, f"is outside the scale {scale}. Fix it or the scale."
        )
    return frame.drop("place")


def _require_columns(table: Table, read: list[str]) -> None:
    needed = [name for name in read if name != "timestamp"]
    missing = [name for name in needed if name not in table.frame.columns]
    if missing:
        is_one = table.is_text and table.frame.width == 1
        parted = " Is something else between fields? Say it: separator=." if is_one else ""
        parts = [name.removesuffix("_id") for name in missing]
        said = ", ".join(f"{part!r}: NAME" for part in parts)
        raise DataError(
            f"{table.label} needs the columns {', '.join(needed)}, timestamp if known; "
            f"missing: {', '.join(missing)}; arrived: {shown_columns(table)}. Say which is which, "
            f"columns={{{said}}}, or rename them.{parted}",
            flags=f"--columns {','.join(f'{part}=NAME' for part in parts)}"
            + ", --separator" * is_one,
        )


def _tidy_text(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Strip spaces, treat empty text as missing, and drop blank lines."""
    text = [name for name in names if frame[name].dtype == pl.String]  # times are numbers by now
    stripped = frame.with_columns(pl.col(text).str.strip_chars().replace("", None))
    return stripped.filter(~pl.all_horizontal(pl.col(names).is_null()))


def _refuse(frame: pl.DataFrame, bad: pl.Expr, column: str, table: Table, what: str) -> None:
    """Raise DataError for the first row where `bad` holds."""
    offenders = frame.filter(bad)
    if offenders.is_empty():
        return
    first = offenders.row(0, named=True)
    shown = "nothing" if first[column] is None else repr(first[column])
    more = f" ({offenders.height - 1:,} more such rows.)" if offenders.height > 1 else ""
    raise DataError(f"{table.at(first['place'])}: {column} {shown} {what}{more}")


def _ids(frame: pl.DataFrame, name: str, table: Table) -> pl.Series:
    _refuse(
        frame, pl.col(name).is_null(), name, table, "where an id belongs. Fill or drop the row."
    )
    ids = frame[name]
    if ids.dtype.is_integer() or (ids.dtype.is_float() and _are_whole(ids)):
        return ids.cast(pl.Int64)
    if isinstance(ids.dtype, pl.Categorical | pl.Enum | pl.String):
        text = ids.cast(pl.String)
        if table.is_text and text.str.ends_with(".0").all():  # as pandas writes a column with gaps
            text = text.str.strip_suffix(".0")
        return text.cast(pl.Int64) if table.is_text and _all_integers(text) else text
    raise DataError(f"{table.label}: {name} must be integers or text; got {ids.dtype}. Convert it.")


def _are_whole(ids: pl.Series) -> bool:
    """Whether floats are ids all the same: whole numbers that a float tells apart."""
    return bool(((ids == ids.round()) & (ids.abs() < 2.0**53)).all())


def _all_integers(text: pl.Series) -> bool:
    # "007" stays text: as a number it would fall together with "7".
    return bool(text.unique().str.contains(r"^(0|-?[1-9]\d{0,17})$").all())


def _numbers(frame: pl.DataFrame, name: str, table: Table) -> pl.Series:
    """Return a column as finite numbers: Float64, or Int64 for timestamps."""
    column = frame[name]
    if not (column.dtype.is_numeric() or isinstance(column.dtype, pl.String | pl.Null)):
        raise DataError(f"{table.label}: {name} must be numbers; got {column.dtype}. Convert it.")
    wanted = pl.Int64 if name == "timestamp" and column.dtype.is_integer() else pl.Float64
    numbers = column.cast(wanted, strict=False)
    asked = "whole seconds since 1970" if name == "timestamp" else "a finite number"
    bad = ~numbers.cast(pl.Float32).is_finite().fill_null(value=False)  # as they are kept
    _refuse(frame, pl.lit(bad), name, table, f"where {asked} is needed. Fix or drop the row.")
    return numbers.cast(pl.Int64) if name == "timestamp" else numbers


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
