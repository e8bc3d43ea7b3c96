"""Decompress files piece by piece and up to a bound."""

import bz2
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

import polars as pl

from fedmmf.data.csv_dialect import UNIT_SEPARATOR
from fedmmf.errors import DataError
from fedmmf.storage.unpacking import MAX_BYTES, MAX_TIMES, is_bomb

_EXCEL = "is an Excel workbook, and a text is needed. Save it as CSV there, and give that file."
_PIECE = 1 << 20  # bytes that are unpacked at once
_ZSTD_BLOCK = 1 << 17  # the most bytes that a block of Zstandard unpacks into
_REPEATED, _COMPRESSED = 1, 2  # kinds of blocks; of the first, one byte stands for many
_SKIPPED = b"\x2a\x4d\x18"  # after any byte: a frame that gives nothing
# What is raised for files that somebody damaged, locked or made up; polars panics for some.
_UNREADABLE = (
    *(OSError, EOFError, ValueError, RuntimeError),
    *(struct.error, zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)
POLARS_REFUSES = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def unpacked(content: bytes, label: str) -> bytes:
    """Return the content of a compressed file; anything else is returned unchanged."""
    unpack = next((way for start, way in _UNPACKERS.items() if content.startswith(start)), None)
    if unpack is None:
        return content
    try:
        return unpack(content, label)
    except _UNREADABLE as error:
        raise DataError(
            f"{label} cannot be unpacked: {error}. Get or pack it again, without a password."
        ) from error
    except POLARS_REFUSES as error:
        raise DataError(
            f"{label} cannot be unpacked as UTF-8 text: {str(error).splitlines()[0]}. "
            f"Unpack it, as by `zstd -d`, and give what comes out."
        ) from error


def _refuse_bomb(n_unpacked: int, n_packed: int, label: str) -> None:
    if is_bomb(n_unpacked, n_packed):
        raise DataError(
            f"{label} unpacks into more than {MAX_BYTES >> 20} MB and more than {MAX_TIMES} "
            "times its size, as files do that are made to fill a memory. If you trust it, unpack "
            "it yourself, and give the file that comes out."
        )


def _read(stream: IO[bytes], n_packed: int, label: str) -> bytes:
    """Return all that a stream gives, in memory once, unless that is too much."""
    whole = io.BytesIO()
    while piece := stream.read(_PIECE):
        whole.write(piece)
        _refuse_bomb(whole.tell(), n_packed, label)
    return whole.getvalue()  # the buffer itself, as nobody else has it


def _streamed(opened: Callable[[io.BytesIO], Any]) -> Callable[[bytes, str], bytes]:
    """How to unpack what the standard library opens as a stream."""

    def unpack(content: bytes, label: str) -> bytes:
        with opened(io.BytesIO(content)) as stream:
            return _read(stream, len(content), label)

    return unpack


def _zstd(content: bytes, label: str) -> bytes:
    _refuse_bomb(most_of_zstd(content), len(content), label)
    # polars has the only decompressor that is here: lines are read as a column, and joined.
    lines = pl.read_csv(
        content,
        separator=UNIT_SEPARATOR,
        has_header=False,
        infer_schema=False,
        quote_char=None,
    ).to_series()
    return str(lines.fill_null("").str.join("\n").item()).encode()


def most_of_zstd(content: bytes) -> int:
    """The most bytes that may come out, by the headers of frames (RFC 8878, section 3.1)."""
    place = most = 0
    while place < len(content):
        if content[place + 1 : place + 4] == _SKIPPED:
            place += 8 + int.from_bytes(content[place + 4 : place + 8], "little")
            continue
        place, most_here = _zstd_frame(content, place)
        most += most_here
    return most


def _zstd_frame(content: bytes, place: int) -> tuple[int, int]:
    """Where the frame at a place ends, and the most bytes that its blocks may give."""
    about, most, is_last = int.from_bytes(content[place + 4 : place + 5]), 0, False
    is_single = about >> 5 & 1
    place += 6 - is_single + (0, 1, 2, 4)[about & 3] + ((0, 2, 4, 8)[about >> 6] or is_single)
    while not is_last and place < len(content):
        header = int.from_bytes(content[place : place + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        most += _ZSTD_BLOCK if kind == _COMPRESSED else size
        place += 3 + (1 if kind == _REPEATED else size)
    return place + 4 * (about >> 2 & 1), most  # with its checksum


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
        _refuse_bomb(archive.getinfo(meant[0]).file_size, len(content), label)
        with archive.open(meant[0]) as stream:
            return _read(stream, len(content), label)


def _refuse_workbook(content: bytes, label: str) -> bytes:
    raise DataError(f"{label} {_EXCEL}")


_UNPACKERS: dict[bytes, Callable[[bytes, str], bytes]] = {
    b"\x1f\x8b": _streamed(gzip.open),
    b"BZh": _streamed(bz2.open),
    b"\xfd7zXZ\0": _streamed(lzma.open),
    b"(\xb5/\xfd": _zstd,
    b"PK\3\4": _zip,
    b"\xd0\xcf\x11\xe0": _refuse_workbook,
}
