"""Attributes of items or users as numbers: one row per code.

Every constructor centres its columns over all rows, so zero means "like the average one", and
whatever is missing becomes zero. A ridge penalty then draws a model towards the average item or
user, and not towards an item without genres.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf.data.doubts import doubtful_number
from fedmmf.data.files import read_attribute_frame
from fedmmf.data.frames import Table, named, to_polars
from fedmmf.errors import DataError, SettingsError

log = logging.getLogger("fedmmf.data")
_MAX_CATEGORIES = 1000  # a text column beyond this is an identifier and not an attribute


@dataclass(frozen=True, eq=False)
class Attributes:
    """Named columns, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n, n_columns) float32; row i belongs to code i.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float32]

    kind: ClassVar[str]  # whom a row is about: item or user
    title: ClassVar[str]  # what messages call them
    remedy: ClassVar[tuple[str, str]] = ("Drop it.", "")  # for a column of no use, and its flag

    def __post_init__(self) -> None:
        values = np.ascontiguousarray(self.values, dtype=np.float32).view()
        if values.ndim != 2 or values.shape[1] != len(self.names):
            raise DataError(
                f"{self.title} need shape (n_{self.kind}s, {len(self.names)}), one column per "
                f"name; got {values.shape}."
            )
        if len(set(self.names)) != len(self.names):
            raise DataError(f"Names of {self.title} must differ; got {', '.join(self.names)}.")
        if not np.isfinite(values).all():
            raise DataError(f"{self.title} must be finite; got NaN or infinity. Fill or drop them.")
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "names", tuple(self.names))

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} {self.kind}s, {len(self.names)} columns>"

    def take(self, rows: npt.NDArray[Any]) -> Self:
        """Return some rows, given as codes or as a boolean mask."""
        return type(self)(self.names, self.values[rows])

    @classmethod
    def joined(cls, *parts: "Attributes") -> Self:
        """Return the columns of several sets about the same items or users, side by side."""
        names = tuple(name for part in parts for name in part.names)
        return cls(names, np.hstack([part.values for part in parts]))

    @classmethod
    def from_frame(cls, frame: Any, ids: npt.NDArray[Any]) -> Self:
        """Make them from a polars or pandas frame with an id column, item_id or user_id.

        Numbers are standardised; booleans and text become one column per value; lists and text
        separated by '|' become one column per element. Columns that are labels are left out. Rows
        or values that are missing count as average, which is zero.
        """
        found = to_polars(frame)
        frame = cls.aligned(found, ids)
        cls._tell_of_missing(found, ids)
        labels = cls.labels(frame.columns)
        kept = [name for name in frame.columns if name not in (f"{cls.kind}_id", *labels)]
        if not kept:
            raise DataError(
                f"{cls.title} need at least one column besides {cls.kind}_id; got none."
            )
        for name in kept:
            if frame[name].dtype.is_numeric() and (doubt := doubtful_number(frame[name])):
                log.warning("%s: %s", cls.title, doubt)
        blocks = [cls._block(frame[name]) for name in kept]
        names = tuple(name for block_names, _ in blocks for name in block_names)
        return cls(names, centred(np.hstack([values for _, values in blocks])))

    @classmethod
    def labels(cls, columns: Sequence[str]) -> list[str]:
        """Columns of a frame that say who it is, not what it is like."""
        raise NotImplementedError

    @classmethod
    def _block(cls, column: pl.Series) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
        """Return the columns, (n, width), that one column of a frame becomes; NaN is missing."""
        if column.dtype.is_numeric():
            return (column.name,), _standardised(column.cast(pl.Float64).to_numpy())[:, None]
        remedy, flags = cls.remedy
        if isinstance(column.dtype, pl.List):
            lists = column.cast(pl.List(pl.String))
        elif isinstance(column.dtype, pl.Boolean | pl.String | pl.Categorical | pl.Enum | pl.Null):
            lists = column.cast(pl.String).str.split("|")
        else:
            raise DataError(
                f"The column {column.name} must be numbers, booleans, text or lists of text; "
                f"got {column.dtype}. Convert it. {remedy}",
                flags=flags,
            )
        known = lists.explode().drop_nulls().unique().sort().to_list()
        if len(known) > _MAX_CATEGORIES:
            raise SettingsError(
                f"The column {column.name} has {len(known):,} distinct values; at most "
                f"{_MAX_CATEGORIES:,} make sense as attributes. Group them. {remedy}",
                flags=flags,
            )
        return _indicators(column.name, lists, known)

    @classmethod
    def aligned(cls, frame: pl.DataFrame, ids: npt.NDArray[Any]) -> pl.DataFrame:
        """Return the frame's rows in the order of `ids`, with nulls where one is missing."""
        key = f"{cls.kind}_id"
        if key not in frame.columns:
            raise DataError(
                f"{cls.title} need a column {key}; arrived: {', '.join(frame.columns) or 'none'}. "
                f"Give the column that says which {cls.kind} a row is about that name."
            )
        # Compared as text, since a file's ids may be numbers on one side and text on the other.
        frame = frame.with_columns(pl.col(key).cast(pl.String))
        repeated = frame.filter(frame[key].is_duplicated())
        if repeated.height:
            raise DataError(
                f"{cls.title} need each {cls.kind} once; {cls.kind} {repeated[key][0]} appears "
                "more often. Keep one row of each."
            )
        wanted = pl.DataFrame({key: ids.astype(str)})
        if wanted.join(frame, on=key, how="semi").is_empty():
            title = cls.title.lower()
            raise DataError(
                f"No {cls.kind} of the {title} has ratings. Both must use the same ids; the "
                f"ratings have {ids[0].item()!r}, the {title} {frame[key].first()!r}"
                f"{_without_zeros(wanted[key], frame[key])}."
            )
        return wanted.join(frame, on=key, how="left", maintain_order="left")

    @classmethod
    def _tell_of_missing(cls, frame: pl.DataFrame, ids: npt.NDArray[Any]) -> None:
        known = frame[f"{cls.kind}_id"].cast(pl.String)
        wanted = pl.Series(ids.astype(str))
        wanted = wanted.filter(~wanted.is_in(known.implode()))
        n_missing = len(wanted)
        if n_missing:
            words = "%d of %d %ss have no row in the %s and count as average%s"
            hint = _without_zeros(wanted, known)
            log.warning(words, n_missing, len(ids), cls.kind, cls.title.lower(), hint)


def frame_of(source: Any, key: str) -> pl.DataFrame:
    """The frame that was meant: that of a file, if a path was given; its ids are called `key`."""
    if isinstance(source, str | Path):
        return read_attribute_frame(source, key)
    return named(Table(to_polars(source), "frame"), parts=(key,)).frame


def _without_zeros(wanted: pl.Series, known: pl.Series) -> str:
    """How many ids would be known without leading zeros, in words."""
    alike = wanted.str.strip_chars_start("0").is_in(known.str.strip_chars_start("0").implode())
    n_alike = int(alike.sum())
    if n_alike == 0:
        return ""
    return f"; {n_alike:,} of them only for leading zeros: write ids alike in both files"


def centred(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Subtract each column's mean over the known values; what is missing becomes zero."""
    known = ~np.isnan(values)
    means = np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, values - means, 0.0).astype(np.float32)


def _standardised(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        return np.zeros_like(values)
    spread = np.nanstd(values)
    return np.asarray((values - np.nanmean(values)) / (spread if spread > 0 else 1.0))


def _indicators(
    name: str, lists: pl.Series, known: list[str]
) -> tuple[tuple[str, ...], npt.NDArray[np.float64]]:
    column = {label: at for at, label in enumerate(known)}
    values = np.zeros((len(lists), len(known)))  # (n, n_labels)
    for row, labels in enumerate(lists.to_list()):
        if labels is None:
            values[row] = np.nan
        else:
            values[row, [column[label] for label in labels if label is not None]] = 1.0
    return tuple(f"{name}={label}" for label in known), values
