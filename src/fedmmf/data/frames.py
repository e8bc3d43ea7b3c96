"""Tables as they arrive, from a file or as a frame, and the names of their columns."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, TypedDict

import numpy as np
import polars as pl

from fedmmf.data.forks import require_threads
from fedmmf.data.names import COLUMNS, is_row_number, known_columns, plain_name, said_parts
from fedmmf.errors import DataError, SettingsError

log = logging.getLogger("fedmmf.data")
_MAX_SHOWN = 8  # names of columns in a message


class ReadOptions(TypedDict, total=False):
    """Options for reading ratings from a frame or a file.

    Attributes:
        columns: Which column is which, as in {"user": "User-ID", "item": "ISBN"}; those of a file
            without a header have numbers, from "1" on.
        missing_values: Ratings that stand for none, such as [0, "n/a"]; their rows are dropped.
        drop_bad_rows: Drop rows that cannot be read instead of refusing the first; they are told.
        date_format: Of the times, such as "%d/%m/%Y %H:%M"; found if not given.
        feature_columns: Those columns of the item features to use; all if not given.
    """

    columns: Mapping[str, str] | None
    missing_values: Sequence[float | str] | None
    drop_bad_rows: bool
    date_format: str | None
    feature_columns: Sequence[str] | None


@dataclass(frozen=True)
class Cleaning:
    """What to do with rows that are no ratings, and how times are written."""

    missing_values: tuple[str, ...] = ()
    drop_bad_rows: bool = False
    date_format: str | None = None

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """Return what the options say, checked."""
        given = options.get("missing_values") or ()
        values = [given] if isinstance(given, str | float | int) else list(given)
        if not all(isinstance(value, str | int | float | np.number) for value in values):
            raise SettingsError(f"missing_values must be numbers or text; got {given!r}.")
        form = options.get("date_format")
        if form is not None and "%" not in form:
            raise SettingsError(
                f"A date format has parts such as %d, %m and %Y, as in '%d/%m/%Y %H:%M'; got "
                f"{form!r}."
            )
        return cls(tuple(map(str, values)), bool(options.get("drop_bad_rows")), form)


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
    unused: tuple[str, ...] = ()  # columns that are no part of a rating
    notes: tuple[str, ...] = ()  # what was assumed
    untimed: str | None = None  # why there are no timestamps, where there should be some
    cleaning: Cleaning = Cleaning()
    dropped: tuple[tuple[int, str], ...] = ()  # places that are no rows of the frame, and why
    raw: pl.DataFrame | None = None  # the rows before ratings and times became numbers

    def at(self, place: int) -> str:
        """Describe the place of a row, e.g. `ratings.csv, line 7`."""
        return f"{self.label}, {self.unit} {place}"

    def noted(self, note: str, frame: pl.DataFrame | None = None) -> "Table":
        """Return the table with one more note, and with another frame where one is given."""
        notes = (*self.notes, *([note] if note else []))
        return replace(self, frame=self.frame if frame is None else frame, notes=notes)


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


def placed(table: Table) -> Table:
    """Return the table with the columns of ratings alone, and the place of each row.

    In text, outer spaces go, empty fields are missing, and blank lines are no rows.
    """
    if table.raw is not None:
        return table
    names = [name for name in COLUMNS if name in table.frame.columns]
    frame = table.frame.select(names).with_row_index("place", offset=table.first)
    if table.is_text:
        text = [name for name in names if frame[name].dtype == pl.String]
        frame = frame.with_columns(pl.col(text).str.strip_chars().replace("", None))
        frame = frame.filter(~pl.all_horizontal(pl.col(names).is_null())) if names else frame
    return replace(table, frame=frame, raw=frame)


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
    chosen |= {part: column_of(table, name) for part, name in asked.items()}
    ours = [pl.col(column).alias(part) for part, column in chosen.items()]
    others = [name for name in columns if name not in (*chosen.values(), *chosen)]
    frame = table.frame.select(*ours, *others)
    return replace(
        table,
        frame=frame,
        arrived=tuple(columns if table.has_header else frame.columns),
        unused=_unused(table, chosen.values(), is_said=bool(asked)),
        notes=(*table.notes, *notes),
    )


def _unused(table: Table, chosen: Collection[str], is_said: bool) -> tuple[str, ...]:
    """Columns that are no part of a rating; who numbers those of a file knows of the others."""
    columns = enumerate(table.frame.columns, 1)
    if table.has_header:
        return tuple(name for _, name in columns if not (name in chosen or is_row_number(name)))
    return () if is_said else tuple(f"column {n}" for n, name in columns if name not in chosen)


def column_of(table: Table, name: str) -> str:
    """Return the column that somebody means by a name or a number."""
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
    return shown_names(table.arrived or table.frame.columns)


def shown_names(columns: Sequence[str]) -> str:
    """Names for a message, however long or many they are."""
    names = [name if len(name) <= 40 else f"{name[:37]}..." for name in columns[:_MAX_SHOWN]]
    more = f" and {len(columns) - _MAX_SHOWN} more" if len(columns) > _MAX_SHOWN else ""
    return (", ".join(names) + more).replace("\n", " ") or "none"


def tell(label: str, *lines: str) -> tuple[str, ...]:
    """Log lines about a table, those that are not empty; return them."""
    told = tuple(f"{label}: {line}" for line in lines if line)
    for line in told:
        log.warning("%s", line)
    return told


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
