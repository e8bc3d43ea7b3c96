"""Files of ratings, features and profiles: which format they are in, and how to read them."""

import codecs
import re
from pathlib import Path

import polars as pl

from fedmmf.data.frames import COLUMNS, ID_COLUMNS, Table
from fedmmf.errors import DataError

_UNIT_SEPARATOR = "\x1f"  # stands in for '::', since polars splits at single bytes only
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")


def read_bytes(path: str | Path) -> bytes:
    """Return a file's content, or raise DataError that says why it cannot be had."""
    path = Path(path)
    if path.is_dir():
        raise DataError(f"A file is needed; {path} is a folder. Name the ratings file inside it.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no file {path}. Check the path.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def read_table(path: str | Path) -> Table:
    """Read a ratings file; its format is known from .parquet or else from its first line."""
    path = Path(path)
    content = read_bytes(path)
    if path.suffix == ".parquet":
        return Table(_parquet(content, path.name), path.name)
    return parse_table(content, path.name)


def parse_table(content: bytes, label: str) -> Table:
    """Parse the text of a ratings file; every column stays text, so that errors can quote it."""
    content = content.removeprefix(codecs.BOM_UTF8)
    body = content.lstrip(b"\r\n")
    if not body.strip():
        raise DataError(f"{label} is empty; at least one rating is needed.")
    line = 1 + content[: len(content) - len(body)].count(b"\n")
    top = body.split(b"\n", 1)[0].decode("utf-8", errors="replace").rstrip("\r")
    separator = next((mark for mark in ("::", "\t", ",", ";", "|") if mark in top), ",")
    has_header = not _is_rating(top.split(separator), separator)
    frame = _text_frame(body, separator, label, has_header=has_header)
    if not has_header:
        frame = frame.rename(dict(zip(frame.columns, COLUMNS, strict=False)))
    return Table(frame, label, unit="line", first=line + has_header)


def _is_rating(fields: list[str], separator: str) -> bool:
    """Whether a first line is already a rating: its third field is a number.

    A pair of user and item without a rating is known by a number too, since columns have names.
    """
    telling = fields if len(fields) == len(ID_COLUMNS) else fields[2:3]
    return separator == "::" or any(map(_NUMBER.fullmatch, telling))


def _text_frame(content: bytes, separator: str, label: str, *, has_header: bool) -> pl.DataFrame:
    if separator == "::":
        content, separator = content.replace(b"::", _UNIT_SEPARATOR.encode()), _UNIT_SEPARATOR
    try:
        return pl.read_csv(
            content,
            separator=separator,
            has_header=has_header,
            infer_schema=False,
            quote_char='"' if separator == "," else None,
        )
    except pl.exceptions.PolarsError as error:
        raise _text_error(content, label, error) from error


def _text_error(content: bytes, label: str, error: Exception) -> DataError:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as undecodable:
        line = content.count(b"\n", 0, undecodable.start) + 1
        return DataError(f"{label}, line {line}: not UTF-8 text. Save the file as UTF-8.")
    return DataError(f"{label} cannot be read as a table: {str(error).splitlines()[0]}.")


def _parquet(content: bytes, label: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(content)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{label} is not a Parquet file: {str(error).splitlines()[0]}. Write it again."
        ) from error


def read_attribute_frame(path: str | Path) -> pl.DataFrame:
    """Read features or profiles from .parquet, .tsv or, by any other name, comma-separated text."""
    path = Path(path)
    content = read_bytes(path)
    if path.suffix == ".parquet":
        return _parquet(content, path.name)
    try:
        return pl.read_csv(
            content,
            separator="\t" if path.suffix == ".tsv" else ",",
            infer_schema_length=None,
            schema_overrides={"item_id": pl.String, "user_id": pl.String},
        )
    except pl.exceptions.PolarsError as error:
        raise _text_error(content, path.name, error) from error
