"""Detect how a text file is written: encoding, separator and header, from its first piece."""

import codecs
import csv
import re
from dataclasses import dataclass, replace

from fedmmf.data.names import is_known
from fedmmf.errors import DataError, SettingsError

UNIT_SEPARATOR = "\x1f"  # in no text; stands in for '::', since polars splits at single bytes only
_PIECE = 1 << 16  # bytes that are examined
_MAX_FILE_COLUMNS = 10_000
_SEPARATORS = ("::", "\t", ";", ",", "|")  # of equally good ones the first; else spaces
_MAX_ABOVE = 10  # lines in which a header is looked for
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_USUAL = ("::", "\t", ",")  # usual separators, which need no note
_VALUE = re.compile(
    r"\s*([-+]?(\d+[.,]?\d*|\.\d+)([eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*|true|false"
    r"|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}.*|\d+(\.\d+)? ?(stars?|/ ?\d+))\s*",
    re.IGNORECASE,
)
_MARKED = re.compile(rb'"?sep=([^\r\n"])"?\r?\n')  # a first line that only names the separator


@dataclass(frozen=True)
class Text:
    """A table as text, with its separator and header."""

    body: bytes  # UTF-8, from the first line on that is not blank
    separator: str
    has_header: bool
    is_quoted: bool
    line: int  # number of the first line
    notes: tuple[str, ...]

    def fields(self, line: str) -> list[str]:
        """Split one line into its fields."""
        return _fields(line, self.separator)


@dataclass(frozen=True)
class Said:
    """What the caller says of how a text is written; None: it is detected."""

    separator: str | None = None
    encoding: str | None = None
    has_header: bool | None = None


def found_text(content: bytes, label: str, said: Said) -> Text:
    """Detect how a text is written, except for what the caller says."""
    content, notes = _as_utf8(content, label, said.encoding)
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")  # lines of old Macs
    body = content.lstrip(b"\r\n")
    if not body[:_PIECE].strip() and not body.strip():
        raise DataError(f"{label} is empty; at least one rating is needed.")
    if (marked := _MARKED.match(body)) and said.separator is None:  # as Excel writes it
        body, said = body[marked.end() :], replace(said, separator=marked[1].decode())
    lines = _first_lines(body)
    if n_above := _n_above_header(lines):
        lines = lines[n_above:]
        body = body[body.index(lines[0].encode()) :]
    line = 1 + content[: len(content) - len(body)].count(b"\n")
    notes += (f"the header is in line {line}",) if n_above else ()
    separator = said.separator or _found_separator(lines)
    if said.separator is None and separator not in _USUAL:
        notes += (f"separated by {'spaces' if separator == ' ' else repr(separator)}",)
    separator = _NAMED_SEPARATORS.get(separator, separator)
    _require_few_columns(body, label, separator)
    is_header = _is_header(_fields(lines[0], separator))
    return Text(
        body=_one_space(body) if separator == " " else body,
        separator=separator,
        has_header=is_header if said.has_header is None else said.has_header,
        is_quoted=separator == "," or bool(re.search(r'(^|\W)"[^"]*"(\W|$)', lines[0])),
        line=line,
        notes=notes,
    )


def _require_few_columns(body: bytes, label: str, separator: str) -> None:
    n_columns = 1 + body.partition(b"\n")[0].count(separator.encode())
    if n_columns > _MAX_FILE_COLUMNS:
        raise DataError(
            f"{label}, first line: {n_columns:,} columns separated by {separator!r}; at most "
            f"{_MAX_FILE_COLUMNS:,} can be read. Keep those of users, items and ratings, a rating "
            "a line, or say what is between fields: separator=.",
            flags="--separator",
        )


def _as_utf8(content: bytes, label: str, encoding: str | None) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8 without a mark at its start, and what was assumed."""
    if encoding is None and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is not None:
        return _decoded(content, label, encoding), ()
    if b"\0" in content[:_PIECE]:
        raise DataError(
            f"{label} is not text: it has zero bytes. Save it as CSV or Parquet; if it is text, "
            "say its encoding: encoding='utf-16-le'.",
            flags="--encoding utf-16-le",
        )
    content = content.removeprefix(codecs.BOM_UTF8)
    if is_utf8(content[:_PIECE], is_whole=len(content) <= _PIECE):
        return content, ()
    return western(content)


def is_utf8(piece: bytes, *, is_whole: bool = True) -> bool:
    """Whether bytes are UTF-8; where they are cut off, but for the last letter."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(piece, final=is_whole)
    except UnicodeDecodeError:
        return False
    return True


def western(content: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8, taken for Windows' or the web's Western European encoding."""
    try:
        text, name = content.decode("cp1252"), "windows-1252"
    except UnicodeDecodeError:
        text, name = content.decode("latin-1"), "latin-1"
    return text.encode(), (f"not UTF-8, so read as {name}",)


def _decoded(content: bytes, label: str, encoding: str) -> bytes:
    try:
        return content.decode(encoding).removeprefix("\ufeff").encode()
    except UnicodeError as error:
        end = error.start if isinstance(error, UnicodeDecodeError) else 0  # others know no place
        line = 1 + content.count(b"\n", 0, end)
        raise DataError(
            f"{label}, line {line}: not {encoding} text. Leave the encoding to be found, or say "
            "another: encoding=.",
            flags="--encoding NAME",
        ) from None
    except (LookupError, ValueError):  # the latter where the name has a zero byte
        raise SettingsError(
            f"there is no encoding {encoding!r}; use such as utf-8, latin-1, cp1252 or shift_jis"
        ) from None


def _first_lines(body: bytes) -> list[str]:
    """Return the lines that are not blank, among the first 50."""
    piece = body[:_PIECE].decode("utf-8", errors="replace").split("\n")
    whole = piece if len(body) <= _PIECE or len(piece) == 1 else piece[:-1]
    return [line.rstrip("\r") for line in whole[:50] if line.strip()]


def _n_above_header(lines: list[str]) -> int:
    """How many lines are above the names of columns, such as a title or comments."""
    found = [sum(map(is_known, re.split(r"::|[\t;,|]", line))) for line in lines[:_MAX_ABOVE]]
    return next((at for at, n_known in enumerate(found) if n_known > 1), 0)


def _found_separator(lines: list[str]) -> str:
    """Which separator parts all lines alike, into the most fields; else the first line does."""
    there = [mark for mark in _SEPARATORS if mark in lines[0]]
    if not there:
        return " " if " " in lines[0].strip() or "\t" in lines[0] else ","
    even = [mark for mark in there if len({len(_fields(line, mark)) for line in lines}) == 1]
    return max(even or there, key=lambda mark: len(_fields(lines[0], mark)))


def _fields(line: str, separator: str) -> list[str]:
    if separator == " ":
        return line.split()
    if len(separator) > 1:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a line end inside, or a field that is too long for it
        return line.split(separator)


def _is_header(fields: list[str]) -> bool:
    """Whether a first line has names: two that are known, or no value among them."""
    return sum(map(is_known, fields)) > 1 or not any(map(_VALUE.fullmatch, fields))


def _one_space(body: bytes) -> bytes:
    return re.sub(rb"(?m)^ +| +$", b"", re.sub(rb"[ \t]+", b" ", body))
