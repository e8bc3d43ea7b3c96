"""Check the rows of tables that users bring: refuse what is wrong, or drop it where they say so.

An error names the place of the first offence. What was assumed and what was dropped is one line
each on the logger `fedmmf.data`.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from fedmmf.data.frames import Table, placed, shown_columns, shown_names, tell
from fedmmf.data.names import COLUMNS, ID_COLUMNS, SALES, plain_name
from fedmmf.data.scales import RatingScale
from fedmmf.data.values import with_numbers
from fedmmf.errors import DataError, SettingsError

IMPLICIT_SCALE = RatingScale(0.0, 1.0, 1.0)
"""Of implicit feedback: what somebody used is a 1, and nobody says 0."""
_N_SHOWN = 3  # dropped rows that are shown


class Rows(NamedTuple):
    """Checked rows of one or more tables."""

    frames: list[pl.DataFrame]  # user_id, item_id, rating and, if known, timestamp
    is_implicit: bool
    untimed: str | None  # why there are no timestamps, where there should be some
    notes: tuple[str, ...]  # what was told


class Fault(NamedTuple):
    """Something that is wrong with some of the rows."""

    column: str
    is_bad: pl.Series  # (n,) bool
    found: pl.Series  # (n,) what the rows have instead
    what: str
    remedy: str


def read_rows(tables: Sequence[Table], scale: RatingScale | None, implicit: bool) -> Rows:
    """Convert and check the rows of tables of one set; tell what was assumed of them.

    All are implicit feedback where that is asked for, or where one of them has no ratings.
    """
    for table in tables:
        _require_columns(table, ID_COLUMNS)
    tables = [with_numbers(table) for table in tables]
    found = [_without_ratings(table, scale, implicit) for table in tables]
    is_implicit = implicit or any(found)
    if implicit:
        require_implicit_scale(scale)
    frames: list[pl.DataFrame] = []
    notes: list[str] = []
    for table, is_assumed in zip(tables, found, strict=True):
        notes += tell(table.label, _assumed(table, is_assumed))
        frame, dropped = _clean(table, scale, is_implicit)
        frames.append(frame)
        notes += tell(table.label, dropped)
    untimed = next((table.untimed for table in tables if table.untimed), None)
    return Rows(frames, is_implicit, untimed, tuple(notes))


def require_implicit_scale(scale: RatingScale | None) -> None:
    """Refuse another scale than that of implicit feedback."""
    if scale not in (None, IMPLICIT_SCALE):
        raise SettingsError(f"Implicit feedback is on the scale {IMPLICIT_SCALE}; got {scale}.")


def _without_ratings(table: Table, scale: RatingScale | None, asked: bool) -> bool:
    """Whether a table is taken for implicit feedback because it has no ratings.

    Where ratings on another scale are needed, a table without them stays an error.
    """
    is_rated = "rating" in table.frame.columns
    return not (asked or is_rated) and scale in (None, IMPLICIT_SCALE)


def _assumed(table: Table, is_implicit: bool) -> str:
    """What was assumed of a table, in one line."""
    if is_implicit:
        note = f"no column rating among {shown_columns(table)}: every row counts as a 1, implicit"
        return "; ".join((*table.notes, f"{note} feedback"))
    unused = [f"not used: {shown_names(table.unused)}"] if table.unused else []
    return "; ".join((*table.notes, *unused))


def checked(table: Table, scale: RatingScale | None = None) -> pl.DataFrame:
    """Return the ratings of a table of a known form, or raise DataError at the first bad row."""
    return _clean(table, scale, implicit=False)[0]


def _clean(table: Table, scale: RatingScale | None, implicit: bool) -> tuple[pl.DataFrame, str]:
    """Return the ratings with clean types, and what was dropped, in one line.

    Ids become integers where every one of them is written as one, and text otherwise. Where they
    are `implicit`, ratings need not be there and are not looked at.
    """
    read = [name for name in COLUMNS if not (implicit and name == "rating")]
    _require_columns(table, read[:-1])
    table = placed(table)
    frame = table.frame.select("place", *(name for name in read if name in table.frame.columns))
    if frame.is_empty():
        raise DataError(f"{table.label} holds no ratings; at least one row is needed.")
    dropped = ""
    if table.cleaning.drop_bad_rows:
        frame, dropped = _without_bad_rows(frame, table, scale)
    for fault in _faults(frame, table, scale):
        if fault.is_bad.any():
            raise _refusal(fault, frame, table)
    for name in frame.columns[1:]:
        column = _ids(frame[name], table) if name in ID_COLUMNS else _numbers(frame[name], table)
        frame = frame.with_columns(column)
    if implicit:
        frame = frame.with_columns(rating=pl.lit(IMPLICIT_SCALE.max))
    return frame.drop("place"), dropped


def _require_columns(table: Table, needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in table.frame.columns]
    if not missing:
        return
    is_one = table.is_text and len(table.arrived) == 1
    parts = [name.removesuffix("_id") for name in missing]
    said = ", ".join(f"{part!r}: NAME" for part in parts)
    raise DataError(
        f"{table.label} needs the columns {', '.join(needed)}; missing: {', '.join(missing)}; "
        f"arrived: {shown_columns(table)}. Say which is which, columns={{{said}}}, or rename them."
        + _hint(table, missing, is_one),
        flags=f"--columns {','.join(f'{part}=NAME' for part in parts)}" + ", --separator" * is_one,
    )


def _hint(table: Table, missing: list[str], is_one: bool) -> str:
    """What else may be wrong with a table without some column."""
    if missing == ["rating"]:
        return " Without a scale, every row would count as a 1, implicit feedback."
    if is_one:
        return " Is something else between fields? Say it: separator=."
    if missing == ["item_id"] and "rating" not in table.frame.columns and len(table.unused) > 2:
        return " If each item has a column of its own, write a row for each rating instead."
    if "rating" in table.frame.columns or set(map(plain_name, table.arrived)) & SALES:
        return ""
    return " A column of ratings, if there is one, likewise."


def _faults(frame: pl.DataFrame, table: Table, scale: RatingScale | None) -> Iterator[Fault]:
    """Yield each kind of thing that may be wrong with rows."""
    for name in ID_COLUMNS:
        ids = frame[name]
        yield Fault(name, ids.is_null(), ids, "where an id belongs", "Fill or drop the row")
    for name in ("rating", "timestamp"):
        if name in frame.columns:
            numbers = _numbers(frame[name], table)
            asked = "whole seconds since 1970" if name == "timestamp" else "a finite number"
            is_bad = ~numbers.cast(pl.Float32).is_finite().fill_null(value=False)  # as it is kept
            needed = f"where {asked} is needed"
            yield Fault(name, is_bad, frame[name], needed, "Fix or drop the row")
    if scale is not None and "rating" in frame.columns:
        ratings = _numbers(frame["rating"], table)
        is_off = ~ratings.is_between(scale.min, scale.max).fill_null(value=True)
        yield Fault(
            "rating", is_off, ratings, f"is outside the scale {scale}", "Fix it or the scale"
        )


def _refusal(fault: Fault, frame: pl.DataFrame, table: Table) -> DataError:
    """The error for the first row of a fault."""
    first = int(fault.is_bad.arg_true()[0])
    n_more = int(fault.is_bad.sum()) - 1
    more = f" ({n_more:,} more such rows.)" if n_more else ""
    remedy, flags = f"{fault.remedy} (drop_bad_rows=True)", "--drop-bad-rows"
    if fault.column == "rating":
        value = _found(fault, first, frame, table)
        shown = f"{value:g}" if isinstance(value, float) else str("" if value is None else value)
        flags += f", --missing-value {shlex.quote(shown)}"
    if n_more and n_more + 1 == frame.height:
        remedy = f"Write it as one, or say which column it is: columns={{{fault.column!r}: NAME}}"
        flags = f"--columns {fault.column.removesuffix('_id')}=NAME"
        flags += ", --implicit" * (fault.column == "rating")
    return DataError(
        f"{table.at(frame['place'][first])}: {_described(fault, first, frame, table)}. "
        f"{remedy}.{more}",
        flags=flags,
    )


def _found(fault: Fault, row: int, frame: pl.DataFrame, table: Table) -> Any:
    """What a bad row has, as it was before it could not be converted."""
    if fault.found[row] is not None or table.raw is None:
        return fault.found[row]
    is_row = pl.col("place") == frame["place"][row]
    return table.raw.row(by_predicate=is_row, named=True)[fault.column]


def _described(fault: Fault, row: int, frame: pl.DataFrame, table: Table) -> str:
    value = _found(fault, row, frame, table)
    return f"{fault.column} {'nothing' if value is None else repr(value)} {fault.what}"


def _without_bad_rows(
    frame: pl.DataFrame, table: Table, scale: RatingScale | None
) -> tuple[pl.DataFrame, str]:
    """Return the rows that can be read, and how many others there are, with the first of them."""
    reasons = dict(table.dropped)
    is_bad = pl.repeat(False, frame.height, eager=True)
    for fault in _faults(frame, table, scale):
        for row in (fault.is_bad & ~is_bad).arg_true()[:_N_SHOWN].to_list():
            reasons[frame["place"][row]] = _described(fault, row, frame, table)
        is_bad |= fault.is_bad
    n_dropped, n_rows = int(is_bad.sum()) + len(table.dropped), frame.height + len(table.dropped)
    shown = [f"{table.unit} {place} ({reasons[place]})" for place in sorted(reasons)[:_N_SHOWN]]
    first = ", ".join(shown)
    if 2 * n_dropped > n_rows:
        raise DataError(
            f"{table.label}: {n_dropped:,} of {n_rows:,} rows cannot be read, too many to drop: "
            f"{first}. Say how the file is written: columns, separator, missing_values, "
            "date_format.",
            flags="--columns, --separator, --missing-value, --date-format",
        )
    note = f"{n_dropped:,} of {n_rows:,} rows dropped: {first}" if n_dropped else "no row dropped"
    return frame.filter(~is_bad), note


def _ids(ids: pl.Series, table: Table) -> pl.Series:
    if ids.dtype.is_integer() or (ids.dtype.is_float() and _are_whole(ids)):
        return ids.cast(pl.Int64)
    if isinstance(ids.dtype, pl.Categorical | pl.Enum | pl.String):
        text = ids.cast(pl.String)
        if table.is_text and text.str.ends_with(".0").all():  # as pandas writes a column with gaps
            text = text.str.strip_suffix(".0")
        return text.cast(pl.Int64) if table.is_text and _all_integers(text) else text
    raise DataError(
        f"{table.label}: {ids.name} must be integers or text; got {ids.dtype}. Convert it."
    )


def _are_whole(ids: pl.Series) -> bool:
    """Whether floats are ids all the same: whole numbers that a float tells apart."""
    return bool(((ids == ids.round()) & (ids.abs() < 2.0**53)).all())


def _all_integers(text: pl.Series) -> bool:
    # "007" stays text: as a number it would fall together with "7".
    return bool(text.unique().str.contains(r"^(0|-?[1-9]\d{0,17})$").all())


def _numbers(column: pl.Series, table: Table) -> pl.Series:
    """Return a column as numbers: Float64, or Int64 for timestamps; null where there is none."""
    if not (column.dtype.is_numeric() or isinstance(column.dtype, pl.String | pl.Null)):
        raise DataError(
            f"{table.label}: {column.name} must be numbers; got {column.dtype}. Convert it."
        )
    if column.name != "timestamp":
        return column.cast(pl.Float64, strict=False)
    if column.dtype.is_integer():
        return column.cast(pl.Int64, strict=False)
    return column.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False)
