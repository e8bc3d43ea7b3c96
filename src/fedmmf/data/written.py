"""How a file is written: compression, encoding, separator and header, found in its first piece."""

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from fedmmf.data.names import is_known
from fedmmf.errors import DataError, SettingsError

UNIT_SEPARATOR = "\x1f"  # in no text; stands in for '::', since polars splits at single bytes only
_PIECE = 1 << 16  # bytes that are looked at
_SEPARATORS = ("::", "\t", ";", ",", "|")  # of equally good ones the first; else spaces
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_USUAL = ("::", "\t", ",")  # nothing to tell
_VALUE = re.compile(
    r"\s*([-+]?(\d+[.,]?\d*|\.\d+)([eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*|true|false)\s*", re.IGNORECASE
)
_EXCEL = "is an Excel workbook, and a text is needed. Save it as CSV there, and give that file."


@dataclass(frozen=True)
class Text:
    """A table as text, and how it is written."""

    body: bytes  # UTF-8, from the first line on that is not blank
    separator: str
    has_header: bool
    is_quoted: bool
    line: int  # number of the first line
    notes: tuple[str, ...]

    def fields(self, line: str) -> list[str]:
        """What is between the separators of one line."""
        return _fields(line, self.separator)


def unpacked(content: bytes, label: str) -> bytes:
    """What is inside of a compressed file; anything else as it is."""
    unpack = next((way for start, way in _UNPACKERS.items() if content.startswith(start)), None)
    if unpack is None:
        return content
    try:
        return unpack(content, label)
    except (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DataError(f"{label} cannot be unpacked: {error}. Get or pack it again.") from error
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"{label} cannot be unpacked as UTF-8 text: {str(error).splitlines()[0]}. "
            f"Unpack it, as by `zstd -d`, and give what comes out."
        ) from error


def _zstd(content: bytes, label: str) -> bytes:
    # polars has the only decompressor that is here: lines are read as a column, and joined.
    lines = pl.read_csv(
        content,
        separator=UNIT_SEPARATOR,
        has_header=False,
        infer_schema=False,
        quote_char=None,
    ).to_series()
    return str(lines.fill_null("").str.join("\n").item()).encode()


def _zip(content: bytes, label: str) -> bytes:
    """The only file of an archive, or the only one with ratings in its name."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [
            one for one in archive.namelist() if not one.endswith("/") and "__MACOSX" not in one
        ]
        if "[Content_Types].xml" in names:
            raise DataError(f"{label} {_EXCEL}")
        rated = [one for one in names if "rating" in one.rsplit("/", 1)[-1].lower()]
        meant = next((some for some in (names, rated) if len(some) == 1), None)
        if meant is None:
            holds = f"{len(names)} files: {', '.join(names[:4])}"
            raise DataError(f"{label} must hold one file; it holds {holds}. Unpack it, name one.")
        return archive.read(meant[0])


def _refuse_workbook(content: bytes, label: str) -> bytes:
    raise DataError(f"{label} {_EXCEL}")


_UNPACKERS: dict[bytes, Callable[[bytes, str], bytes]] = {
    b"\x1f\x8b": lambda content, label: gzip.decompress(content),
    b"BZh": lambda content, label: bz2.decompress(content),
    b"\xfd7zXZ\0": lambda content, label: lzma.decompress(content),
    b"(\xb5/\xfd": _zstd,
    b"PK\3\4": _zip,
    b"\xd0\xcf\x11\xe0": _refuse_workbook,
}


@dataclass(frozen=True)
class Said:
    """What somebody said of how a text is written; None: it has to be found."""

    separator: str | None = None
    encoding: str | None = None
    has_header: bool | None = None


def found_text(content: bytes, label: str, said: Said) -> Text:
    """Find out how a text is written, as far as it is not said."""
    content, notes = _as_utf8(content, label, said.encoding)
    body = content.lstrip(b"\r\n")
    if not body[:_PIECE].strip() and not body.strip():
        raise DataError(f"{label} is empty; at least one rating is needed.")
    lines = _first_lines(body)
    separator = said.separator or _found_separator(lines)
    if said.separator is None and separator not in _USUAL:
        notes += (f"separated by {'spaces' if separator == ' ' else repr(separator)}",)
    separator = _NAMED_SEPARATORS.get(separator, separator)
    is_header = _is_header(_fields(lines[0], separator))
    return Text(
        body=_one_space(body) if separator == " " else body,
        separator=separator,
        has_header=is_header if said.has_header is None else said.has_header,
        is_quoted=separator == "," or bool(re.search(r'(^|\W)"[^"]*"(\W|$)', lines[0])),
        line=1 + content[: len(content) - len(body)].count(b"\n"),
        notes=notes,
    )


def _as_utf8(content: bytes, label: str, encoding: str | None) -> tuple[bytes, tuple[str, ...]]:
    """The text in UTF-8 without a mark at its start, and what was assumed."""
    if encoding is None and content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    if encoding is not None:
        return _decoded(content, label, encoding).removeprefix("\ufeff").encode(), ()
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


def _decoded(content: bytes, label: str, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except LookupError:
        raise SettingsError(
            f"there is no encoding {encoding!r}; use such as utf-8, latin-1, cp1252 or shift_jis"
        ) from None
    except UnicodeDecodeError as error:
        line = 1 + content.count(b"\n", 0, error.start)
        raise DataError(
            f"{label}, line {line}: not {encoding} text. Leave the encoding to be found, or say "
            "another: encoding=.",
            flags="--encoding NAME",
        ) from None


def _first_lines(body: bytes) -> list[str]:
    """Some lines that have something on them; the first is always there."""
    piece = body[:_PIECE].decode("utf-8", errors="replace").split("\n")
    whole = piece if len(body) <= _PIECE or len(piece) == 1 else piece[:-1]
    return [line.rstrip("\r") for line in whole[:50] if line.strip()]


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
    return next(csv.reader([line], delimiter=separator), [])


def _is_header(fields: list[str]) -> bool:
    """Whether a first line has names: two that are known, or no value among them."""
    return sum(map(is_known, fields)) > 1 or not any(map(_VALUE.fullmatch, fields))


def _one_space(body: bytes) -> bytes:
    return re.sub(rb"(?m)^ +| +$", b"", re.sub(rb"[ \t]+", b" ", body))
