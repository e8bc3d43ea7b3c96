"""Files of ratings, features and profiles, read as tables."""

import codecs
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import polars as pl
from polars import selectors

from fedmmf.data.csv_dialect import UNIT_SEPARATOR, Said, Text, found_text, is_utf8, western
from fedmmf.data.forks import require_threads
from fedmmf.data.frames import Cleaning, ReadOptions, Table, named, tell
from fedmmf.data.packed import POLARS_REFUSES, unpacked
from fedmmf.errors import DataError

_BINARY = {b"PAR1": ("Parquet", pl.read_parquet), b"ARROW1": ("Arrow", pl.read_ipc)}
_AS_IT_IS = Cleaning()
_MAX_LETTERS = 160  # of somebody else's error, which may quote a whole file


class WrittenOptions(ReadOptions, total=False):
    """Options for reading a file; what is not given about how it is written is detected.

    Attributes:
        separator: Between fields.
        encoding: Of the text, such as latin-1.
    """

    separator: str | None
    encoding: str | None


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


def read_table(path: str | Path, **written: Unpack[WrittenOptions]) -> Table:
    """Read a ratings file; its format is detected, except for what the caller says."""
    return parse_table(read_bytes(path), Path(path).name, **written)


def parse_table(content: bytes, label: str, **written: Unpack[WrittenOptions]) -> Table:
    """Parse the content of a ratings file; text stays text, so that errors can quote it."""
    require_threads()
    content, cleaning = unpacked(content, label), Cleaning.of(written)
    table = _binary_table(content, label)
    if table is None and (table := _json_table(content, label, cleaning)) is not None:
        table = _as_text(table)
    if table is None:
        said = Said(written.get("separator"), written.get("encoding"))
        table = _text_table(content, label, said, cleaning)
    return named(replace(table, cleaning=cleaning), written.get("columns"))


def read_attribute_frame(path: str | Path, key: str) -> pl.DataFrame:
    """Read features or profiles, with a column `key` of ids; numbers become numbers."""
    require_threads()
    label = Path(path).name
    content = unpacked(read_bytes(path), label)
    table = _binary_table(content, label) or _json_table(content, label)
    if table is not None:
        return named(table, parts=(key,)).frame
    table = named(_text_table(content, label, Said(has_header=True)), parts=(key,))
    tell(label, "; ".join(table.notes))
    others = [name for name in table.frame.columns if name != key]
    return table.frame.with_columns(_as_numbers(table.frame[name]) for name in others)


def _as_numbers(text: pl.Series) -> pl.Series:
    """Convert a column of text to numbers if every value is a number."""
    text = text.str.strip_chars().replace("", None)
    for kind in (pl.Int64, pl.Float64):
        numbers = text.cast(kind, strict=False)
        if numbers.null_count() == text.null_count():
            return numbers
    return text


def _binary_table(content: bytes, label: str) -> Table | None:
    for start, (name, read) in _BINARY.items():
        if content.startswith(start):
            try:
                return Table(read(content), label)
            except (*POLARS_REFUSES, OSError) as error:
                why = f"is not a {name} file: {_short(error)}. Write it again."
                raise DataError(f"{label} {why}") from error
    return None


def _json_table(content: bytes, label: str, cleaning: Cleaning = _AS_IT_IS) -> Table | None:
    """A list of objects, or an object a line; None: it is neither."""
    start = content[:64].removeprefix(codecs.BOM_UTF8).lstrip()[:1]
    if start not in (b"[", b"{"):
        return None
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        if start == b"[":
            return Table(pl.read_json(content, infer_schema_length=None), label)
        frame = pl.read_ndjson(content, infer_schema_length=None)
    except POLARS_REFUSES as error:
        bad = _bad_json(content)
        if bad and cleaning.drop_bad_rows:
            table = _json_table(_replaced(content, bad, b"{}"), label)
            return table and replace(table, dropped=tuple(bad.items()))
        raise _json_error(label, bad, error) from error
    return Table(frame, label, unit="line", first=1)


def _bad_json(content: bytes) -> dict[int, str]:
    """Numbers of the lines that are no JSON, each with what is wrong."""
    bad = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            json.loads(line or b"{}")
        except (ValueError, RecursionError):  # the latter where it is nested deeply
            bad[number] = "no JSON object"
    return bad


def _json_error(label: str, bad: dict[int, str], error: BaseException) -> DataError:
    needed = "JSON is needed as a list of objects, or as an object a line"
    for number, what in bad.items():
        remedy = "Fix the line, or drop it (drop_bad_rows=True)"
        text = f"{label}, line {number}: {what}. {needed}. {remedy}."
        return DataError(text, flags="--drop-bad-rows")
    return DataError(f"{label} cannot be read: {_short(error)}. {needed}. Write it so.")


def _replaced(content: bytes, bad: Iterable[int], by: bytes, first: int = 1) -> bytes:
    """The text with other lines in some places, so that all others keep their numbers."""
    lines = content.split(b"\n")
    for number in bad:
        lines[number - first] = by
    return b"\n".join(lines)


def _as_text(table: Table) -> Table:
    """JSON has one kind of number, and writers put ids in quotes or not: so as in a CSV.

    What is nested is no part of a rating.
    """
    nested = table.frame.select(selectors.list() | selectors.struct()).columns
    flat = table.frame.with_columns(pl.lit(None, pl.String).alias(name) for name in nested)
    return replace(table, frame=flat.cast(pl.String), is_text=True)


def _text_table(content: bytes, label: str, said: Said, cleaning: Cleaning = _AS_IT_IS) -> Table:
    text, long_lines = found_text(content, label, said), {}
    try:
        frame = _text_frame(text)
    except POLARS_REFUSES:
        if not is_utf8(text.body):
            content, notes = western(content)  # for letters after the examined part
            text = found_text(content, label, said)
            text = replace(text, notes=(*notes, *text.notes))
        if cleaning.drop_bad_rows:
            long_lines = _long_lines(text)
            text = replace(text, body=_replaced(text.body, long_lines, b"", text.line))
        frame = _read_again(text, label)
    return Table(
        frame,
        label,
        unit="line",
        first=text.line + text.has_header,
        has_header=text.has_header,
        is_text=True,
        notes=text.notes,
        dropped=tuple(long_lines.items()),
    )


def _text_frame(text: Text) -> pl.DataFrame:
    body, separator = text.body, text.separator
    if len(separator.encode()) > 1:
        body, separator = body.replace(separator.encode(), UNIT_SEPARATOR.encode()), UNIT_SEPARATOR
    if text.is_quoted and separator == ";":
        body = body.replace(b'\\"', b'""')  # as databases write a quote inside of quotes
    return pl.read_csv(
        body,
        separator=separator,
        has_header=text.has_header,
        infer_schema=False,
        quote_char='"' if text.is_quoted else None,
    )


def _read_again(text: Text, label: str) -> pl.DataFrame:
    """Read a text that was mended, or say what is wrong with it."""
    try:
        return _text_frame(text)
    except POLARS_REFUSES as error:
        for number, what in _long_lines(text).items():
            raise DataError(
                f"{label}, line {number}: {what}. Fix the line, drop it (drop_bad_rows=True), or "
                "say what is between fields: separator=.",
                flags="--drop-bad-rows, --separator",
            ) from error
        raise DataError(
            f"{label} cannot be read as a table: {_short(error)}. Save it as CSV anew."
        ) from error


def _long_lines(text: Text) -> dict[int, str]:
    """Numbers of the lines with more fields than the first, each with what is wrong."""
    lines = text.body.decode().split("\n")
    width = len(text.fields(lines[0].rstrip("\r")))
    counts = {at: len(text.fields(line.rstrip("\r"))) for at, line in enumerate(lines, text.line)}
    return {
        number: f"{n_fields} fields where the first line has {width}"
        for number, n_fields in counts.items()
        if n_fields > width
    }


def _short(error: BaseException) -> str:
    """Shorten a library's error to the beginning of its first line."""
    return str(error).split("\n", 1)[0][:_MAX_LETTERS].rstrip(".")
