"""The reader and writer of every format: values to bytes and back, checked as they are read.

Little-endian. What varies in length carries its count before it, and a reader compares the count
with the bytes that are left before it allocates anything: reading takes a few times what arrived at
most, whatever a count claims. What is short, long, out of range or not finite is refused. What does
not fit a field is not written: no number wraps. Every value has one encoding.
"""

import math
import struct
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, get_type_hints

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError

NAME_BYTES = 32
MAX_TEXT = 4096  # bytes of a text
MAX_KEYS = 1 << 17  # of a cohort; as objects they take three times their bytes
MAX_ROW_WIDTH = 1 << 22  # of rows; moments of the largest rank have half as many
NUMBER_BYTES = 4  # of a party, before its record in a table
_COUNT = struct.Struct("<I")
Refusal = Callable[[str], WireError]


def malformed(rule: str) -> WireError:
    """Make the error of a message that breaks a rule."""
    return WireError(f"malformed message: {rule}")


def require(holds: bool, rule: str, refusal: Refusal = malformed) -> None:
    """Refuse what breaks a rule."""
    if not holds:
        raise refusal(rule)


class Reader:
    """Reader of bytes from front to back.

    Args:
        data: what arrived.
        refusal: makes the error of a rule that is broken.
    """

    def __init__(self, data: bytes | memoryview, refusal: Refusal = malformed) -> None:
        self._data, self._at, self.refusal = memoryview(data), 0, refusal

    @property
    def left(self) -> int:
        """Number of bytes that are still to be read."""
        return len(self._data) - self._at

    def require(self, holds: bool, rule: str) -> None:
        """Refuse what breaks a rule."""
        require(holds, rule, self.refusal)

    def take(self, size: int) -> memoryview:
        """Read the next `size` bytes, without a copy."""
        self.require(size <= self.left, f"{size} bytes more are due; {self.left} are left")
        self._at += size
        return self._data[self._at - size : self._at]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read numbers and bytes of fixed sizes."""
        return layout.unpack(self.take(layout.size))

    def count(self, size: int) -> int:
        """Read a count of entries of `size` bytes each, which must be there."""
        (n,) = self.unpack(_COUNT)
        left = self.left
        self.require(n * size <= left, f"{n} entries of {size} bytes are due; {left} are left")
        return int(n)

    def sized(self) -> memoryview:
        """Read bytes after their length, without a copy."""
        return self.take(self.count(1))

    def end(self) -> None:
        """Refuse bytes after the last field."""
        self.require(self.left == 0, f"{self.left} bytes too many")


@dataclass(frozen=True)
class Field:
    """Encoding of one kind of value.

    Attributes:
        type: its name in spec/encoding.md.
        write: value to bytes.
        read: from a reader to a checked value.
    """

    type: str
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


Fields = Mapping[str, Field]


@cache
def annotations_of(message: Any) -> dict[str, Any]:
    """Return what each field of a dataclass is annotated with: `round: Annotated[int, WHOLE]`."""
    hints = get_type_hints(message, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in fields(message)}


def write_fields(message: object, named: Fields) -> bytes:
    """Write the attributes of a message that the fields name, in their order."""
    return b"".join(field.write(getattr(message, name)) for name, field in named.items())


def read_fields(reader: Reader, named: Fields) -> dict[str, Any]:
    """Read fields in their order, up to the end."""
    values = {name: field.read(reader) for name, field in named.items()}
    reader.end()
    return values


def counts(*numbers: int) -> bytes:
    """Write counts, which are below 2^32."""
    require(max(numbers) < 1 << 32, f"a count is below 2^32; got {max(numbers)}")
    return b"".join(map(_COUNT.pack, numbers))


def listed(parts: Iterable[bytes]) -> bytes:
    """Write a count, and then so many parts."""
    known = list(parts)
    return b"".join((counts(len(known)), *known))


def _number(code: str, type_: str) -> Field:
    layout = struct.Struct(f"<{code}")

    def write(value: float) -> bytes:
        try:
            return layout.pack(value)
        except (struct.error, OverflowError):
            raise malformed(f"{value!r} does not fit {type_}") from None

    def read(reader: Reader) -> Any:
        (value,) = reader.unpack(layout)
        reader.require(code != "d" or math.isfinite(value), "all numbers must be finite")
        return value

    return Field(type_, write, read)


def _read_bool(reader: Reader) -> bool:
    (value,) = reader.take(1)
    reader.require(value in (0, 1), f"a switch is 0 or 1; got {value}")
    return bool(value)


def text(code: str, most: int, type_: str = "text") -> Field:
    """Make a field of a UTF-8 text of `most` bytes, after its length as a number of that code."""
    length = struct.Struct(f"<{code}")

    def write(value: str) -> bytes:
        try:
            data = value.encode()
        except UnicodeEncodeError:
            raise malformed("a text is not UTF-8") from None
        require(len(data) <= most, f"a text has {most} bytes at most; got {len(data)}")
        return length.pack(len(data)) + data

    def read(reader: Reader) -> str:
        (size,) = reader.unpack(length)
        reader.require(size <= most, f"a text has {most} bytes at most; got {size}")
        try:
            return bytes(reader.take(size)).decode()
        except UnicodeDecodeError:
            raise reader.refusal("a text is not UTF-8") from None

    return Field(type_, write, read)


def _array(dtype: str, type_: str) -> Field:
    width = np.dtype(dtype).itemsize

    def write(values: Array) -> bytes:
        written = _fitted(values, dtype, ndim=1)
        return counts(len(written)) + written.tobytes()

    def read(reader: Reader) -> Array:
        return _values(reader, reader.count(width), dtype)

    return Field(type_, write, read)


def _fitted(values: Array, dtype: str, ndim: int) -> Array:
    """The same numbers in the type of the wire; floats are rounded, nothing wraps."""
    given = np.asarray(values)
    require(given.ndim == ndim, f"an array has {ndim} dimensions; got {given.ndim}")
    with np.errstate(over="ignore", invalid="ignore"):
        written = np.ascontiguousarray(given, dtype)
    if written.dtype != given.dtype:
        is_float = written.dtype.kind == "f"
        fits = np.isfinite(written) | ~np.isfinite(given) if is_float else written == given
        require(bool(fits.all()), f"a number of type {given.dtype} does not fit {dtype}")
    return written


def _read_items(reader: Reader) -> Array:
    items = _values(reader, reader.count(4), "<i4")
    increases = len(items) == 0 or bool(items[0] >= 0 and (items[1:] > items[:-1]).all())
    reader.require(increases, "items must increase strictly, from 0 on")
    return items


def _values(reader: Reader, n: int, dtype: str) -> Array:
    """Finite numbers, where the processor likes them to be."""
    values = np.frombuffer(reader.take(n * np.dtype(dtype).itemsize), dtype)
    if values.dtype.kind == "f":
        reader.require(bool(np.isfinite(values).all()), "all numbers must be finite")
    return values if values.flags.aligned else values.copy()


def _write_rows(rows: Array) -> bytes:
    written = _fitted(rows, "<f4", ndim=2)
    return counts(*written.shape) + written.tobytes()


def _read_rows(reader: Reader) -> Array:
    n = reader.count(0)
    width = reader.count(4 * n)
    rows = _values(reader, n * width, "<f4")
    reader.require(
        0 < width <= MAX_ROW_WIDTH, f"rows have 1 to {MAX_ROW_WIDTH} columns; got {width}"
    )
    return rows.reshape(n, width)


def _write_names(names: tuple[bytes, ...]) -> bytes:
    return counts(len(names)) + b"".join(map(NAME.write, names))


def _read_names(reader: Reader) -> tuple[bytes, ...]:
    n = reader.count(NAME_BYTES)
    reader.require(n <= MAX_KEYS, f"there are {MAX_KEYS} keys at most; got {n}")
    return tuple(bytes(reader.take(NAME_BYTES)) for _ in range(n))


def fixed(size: int) -> Field:
    """Make a field of a fixed number of bytes."""

    def write(data: bytes) -> bytes:
        require(len(data) == size, f"{size} bytes are due; got {len(data)}")
        return bytes(data)

    return Field(f"bytes[{size}]", write, lambda reader: bytes(reader.take(size)))


BYTE = _number("B", "uint8")
WHOLE = _number("I", "uint32")
REAL = _number("d", "float64")
SWITCH = Field("bool", lambda value: bytes([bool(value)]), _read_bool)
TEXT = text("I", MAX_TEXT)
BLOB = Field("bytes", lambda data: counts(len(data)) + data, lambda reader: bytes(reader.sized()))
ITEMS = replace(_array("<i4", "items"), read=_read_items)
COUNTS = _array("<u4", "uint32[]")
REALS = _array("<f8", "float64[]")
SINGLES = _array("<f4", "float32[]")
ROWS = Field("float32[][]", _write_rows, _read_rows)
NAME = fixed(NAME_BYTES)
KEYS = Field("bytes[32][]", _write_names, _read_names)


def table(size: int, known: Container[int]) -> Field:
    """Make a field of records of `size` bytes by party, which fill the rest of the bytes.

    They increase strictly in the party's number: no duplicates, and one encoding only.
    """
    step = NUMBER_BYTES + size

    def write(records: Mapping[int, bytes]) -> bytes:
        return b"".join(_COUNT.pack(party) + records[party] for party in sorted(records))

    def read(reader: Reader) -> dict[int, bytes]:
        body, last, records = reader.take(reader.left), -1, {}
        reader.require(len(body) % step == 0, f"records have {step} bytes; got {len(body)} in all")
        for start in range(0, len(body), step):
            (party,) = _COUNT.unpack_from(body, start)
            if party not in known or party <= last:
                reader.require(party in known, f"party {party} is a stranger to this cohort")
                reader.require(False, f"records must increase; party {party} follows {last}")
            records[party] = bytes(body[start + NUMBER_BYTES : start + step])
            last = party
        return records

    return Field("table", write, read)


def bit_map(places: Mapping[int, int]) -> Field:
    """Make a field of a set of parties: one bit for each, at its place from 0 on."""
    parties, size = list(places), map_bytes(len(places))

    def write(members: Iterable[int]) -> bytes:
        bits = np.zeros(len(parties), np.uint8)  # (n,)
        bits[[places[party] for party in members]] = 1
        return np.packbits(bits, bitorder="little").tobytes()

    def read(reader: Reader) -> frozenset[int]:
        found = np.frombuffer(reader.take(size), np.uint8)
        bits = np.unpackbits(found, bitorder="little")  # (8 bytes,)
        reader.require(not bits[len(parties) :].any(), "the set has bits beyond the cohort")
        return frozenset(parties[i] for i in np.flatnonzero(bits).tolist())

    return Field("map", write, read)


def table_bytes(count: int, size: int) -> int:
    """Return the size of a table of `count` records of `size` bytes each."""
    return count * (NUMBER_BYTES + size)


def map_bytes(n: int) -> int:
    """Return the size of a bit map of a cohort of n."""
    return (n + 7) // 8
