"""Frames and fields: how any message is written, and how it is read and checked in one go.

A frame is a header (magic, version, kind, length of the body), then the fields of the message in
their order. Little-endian. A field that varies in length carries its count before it. What is
short, long, out of range or not finite raises `WireError`, before anything else is done with it;
reading allocates a few times what arrived at most, whatever a count claims. Every message has one
encoding. What does not fit a field is not written: `WireError` too, never a number that wrapped.

A parcel is one message, with broadcasts that it names before it: frame after frame.
"""

import dataclasses
import hashlib
import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, get_type_hints

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError

MAGIC, VERSION = b"FMMF", 4
NAME_BYTES = 32
NO_NAME = bytes(NAME_BYTES)
_HEADER = struct.Struct("<4sBBI")
_COUNT = struct.Struct("<I")
HEADER_BYTES = _HEADER.size
MAX_TEXT = 4096  # bytes of a text
MAX_KEYS = 1 << 17  # of a cohort; as objects they take three times their bytes
MAX_COLUMNS = 1 << 22  # of rows; moments of the largest rank have half as many


def require(holds: bool, rule: str) -> None:
    """Refuse a message that breaks a rule."""
    if not holds:
        raise WireError(f"malformed message: {rule}")


class Reader:
    """Reader of the body of a frame, from front to back."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._at = body, 0

    def take(self, size: int) -> memoryview:
        """Read the next `size` bytes, without a copy."""
        left = len(self._body) - self._at
        require(size <= left, f"{size} bytes more are due; {left} are left")
        self._at += size
        return self._body[self._at - size : self._at]

    def count(self, size: int) -> int:
        """A count of entries of `size` bytes each, which must be there."""
        (n,) = _COUNT.unpack(self.take(_COUNT.size))
        left = len(self._body) - self._at
        require(n * size <= left, f"{n} entries of {size} bytes are due; {left} bytes are left")
        return int(n)

    def end(self) -> None:
        """Refuse bytes after the last field."""
        left = len(self._body) - self._at
        require(left == 0, f"{left} bytes too many")


@dataclass(frozen=True)
class Field:
    """Encoding of one kind of value.

    Attributes:
        words: what docs/wire.md says about it.
        write: value to bytes.
        read: from a reader to a checked value.
    """

    words: str
    write: Callable[[Any], bytes]
    read: Callable[[Reader], Any]


def _number(code: str, words: str) -> Field:
    update_shape = struct.Struct(f"<{code}")

    def write(value: float) -> bytes:
        try:
            return update_shape.pack(value)
        except (struct.error, OverflowError):
            raise WireError(f"malformed message: {value!r} does not fit {words}") from None

    def read(reader: Reader) -> Any:
        (value,) = update_shape.unpack(reader.take(update_shape.size))
        require(code != "d" or math.isfinite(value), "all numbers must be finite")
        return value

    return Field(words, write, read)


def _read_bool(reader: Reader) -> bool:
    (value,) = reader.take(1)
    require(value in (0, 1), f"a switch is 0 or 1; got {value}")
    return bool(value)


def _write_text(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise WireError("malformed message: a text is not UTF-8") from None
    require(len(data) <= MAX_TEXT, f"a text has {MAX_TEXT} bytes at most; got {len(data)}")
    return _counts(len(data)) + data


def _read_text(reader: Reader) -> str:
    size = reader.count(1)
    require(size <= MAX_TEXT, f"a text has {MAX_TEXT} bytes at most; got {size}")
    try:
        return bytes(reader.take(size)).decode()
    except UnicodeDecodeError:
        raise WireError("malformed message: a text is not UTF-8") from None


def _counts(*numbers: int) -> bytes:
    require(max(numbers) < 1 << 32, f"a count is below 2^32; got {max(numbers)}")
    return b"".join(map(_COUNT.pack, numbers))


def _array(dtype: str, words: str) -> Field:
    width = np.dtype(dtype).itemsize

    def write(values: Array) -> bytes:
        written = _fitted(values, dtype, ndim=1)
        return _counts(len(written)) + written.tobytes()

    def read(reader: Reader) -> Array:
        return _values(reader.take(width * reader.count(width)), dtype)

    return Field(words, write, read)


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
    items = _values(reader.take(4 * reader.count(4)), "<i4")
    increases = len(items) == 0 or bool(items[0] >= 0 and (items[1:] > items[:-1]).all())
    require(increases, "items must increase strictly, from 0 on")
    return items


def _values(data: memoryview, dtype: str) -> Array:
    """Finite numbers, where the processor likes them to be."""
    values = np.frombuffer(data, dtype)
    if values.dtype.kind == "f":
        require(bool(np.isfinite(values).all()), "all numbers must be finite")
    return values if values.flags.aligned else values.copy()


def _write_rows(rows: Array) -> bytes:
    written = _fitted(rows, "<f4", ndim=2)
    return _counts(*written.shape) + written.tobytes()


def _read_rows(reader: Reader) -> Array:
    (n,) = _COUNT.unpack(reader.take(_COUNT.size))
    width = reader.count(4 * n) if n else _COUNT.unpack(reader.take(_COUNT.size))[0]
    rows = _values(reader.take(4 * n * width), "<f4")
    require(0 < width <= MAX_COLUMNS, f"rows have 1 to {MAX_COLUMNS} columns; got {width}")
    return rows.reshape(n, width)


def _write_names(names: tuple[bytes, ...]) -> bytes:
    return _counts(len(names)) + b"".join(map(NAME.write, names))


def _read_names(reader: Reader) -> tuple[bytes, ...]:
    n = reader.count(NAME_BYTES)
    require(n <= MAX_KEYS, f"there are {MAX_KEYS} keys at most; got {n}")
    return tuple(bytes(reader.take(NAME_BYTES)) for _ in range(n))


def fixed(size: int) -> Field:
    """Make a field of a fixed number of bytes."""

    def write(data: bytes) -> bytes:
        require(len(data) == size, f"{size} bytes are due; got {len(data)}")
        return bytes(data)

    return Field(f"{size} bytes", write, lambda reader: bytes(reader.take(size)))


BYTE = _number("B", "uint8")
WHOLE = _number("I", "uint32")
REAL = _number("d", "float64, finite")
SWITCH = Field("uint8, 0 or 1", lambda value: bytes([bool(value)]), _read_bool)
TEXT = Field(f"uint32 length up to {MAX_TEXT}, then UTF-8", _write_text, _read_text)
BLOB = Field(
    "uint32 length, then bytes",
    lambda data: _counts(len(data)) + bytes(data),
    lambda reader: bytes(reader.take(reader.count(1))),
)
ITEMS = replace(
    _array("<i4", "uint32 count, then int32 each, from 0 on, strictly increasing"), read=_read_items
)
COUNTS = _array("<u4", "uint32 count, then uint32 each")
REALS = _array("<f8", "uint32 count, then float64 each, finite")
SINGLES = _array("<f4", "uint32 count, then float32 each, finite")
ROWS = Field("uint32 rows, uint32 columns, then float32 each, finite", _write_rows, _read_rows)
NAME = fixed(NAME_BYTES)
KEYS = Field(f"uint32 count up to {MAX_KEYS}, then 32 bytes each", _write_names, _read_names)

_MessageType = TypeVar("_MessageType", bound="Message")


class Message:
    """A frozen dataclass whose fields say how they are written: `round: Annotated[int, WHOLE]`."""

    kind: ClassVar[int]

    def encode(self) -> bytes:
        """Encode the frame; its receiver checks whether the content is valid."""
        parts = [field.write(getattr(self, name)) for name, field in self.fields().items()]
        body = b"".join(parts)
        require(len(body) < 1 << 32, f"a body has less than 2^32 bytes; got {len(body)}")
        return _HEADER.pack(MAGIC, VERSION, self.kind, len(body)) + body

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """Fields on the wire, in order."""
        message: Any = cls
        return _fields(message)

    @classmethod
    def decode(cls, data: bytes | memoryview, known: Any = None) -> Self:
        """Read one whole frame, and check it against what its receiver knows.

        Args:
            data: the frame, and nothing else.
            known: what `check` compares with; None: only what the message itself must fulfil.
        """
        kind, body, rest = next_frame(memoryview(data))
        require(len(rest) == 0, f"{len(rest)} bytes follow the frame")
        require(kind == cls.kind, f"kind {int(cls.kind)} is due; got {kind}")
        reader = Reader(body)
        values = {name: field.read(reader) for name, field in cls.fields().items()}
        reader.end()
        message = cls(**values)
        message.check(known)
        return message

    def check(self, known: Any) -> None:
        """Refuse a well-formed message whose content is wrong for this receiver."""


@cache
def _fields(message: Any) -> dict[str, Field]:
    hints = get_type_hints(message, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in dataclasses.fields(message)}


def next_frame(data: memoryview) -> tuple[int, memoryview, memoryview]:
    """Kind and body of the first frame, and what follows it."""
    require(len(data) >= HEADER_BYTES, f"needs at least {HEADER_BYTES} bytes; got {len(data)}")
    magic, version, kind, size = _HEADER.unpack_from(data)
    right = (magic, version) == (MAGIC, VERSION)
    require(right, f"must begin with {MAGIC!r}, version {VERSION}; got {magic!r}, {version}")
    end = HEADER_BYTES + size
    require(end <= len(data), f"the frame has {end} bytes; {len(data)} arrived")
    return int(kind), data[HEADER_BYTES:end], data[end:]


def kind_of(data: bytes | memoryview) -> int:
    """Kind of the first frame."""
    return next_frame(memoryview(data))[0]


def read(
    data: bytes | memoryview, expected: Iterable[type[_MessageType]], known: Any = None
) -> _MessageType:
    """Read a frame that must be one of the expected messages."""
    by_kind = {int(message.kind): message for message in expected}
    kind = kind_of(data)
    if kind not in by_kind:
        due = " or ".join(message.__name__ for message in by_kind.values())
        raise WireError(f"a message of kind {kind} is not for here; due: {due or 'nothing'}")
    return by_kind[kind].decode(data, known)


def name_of(frame: bytes | memoryview) -> bytes:
    """Return the name of a broadcast: the SHA-256 of its frame."""
    return hashlib.sha256(frame).digest()


def parcel(message: Message, *broadcasts: bytes) -> bytes:
    """Encode a message, with broadcasts before it."""
    return b"".join((*broadcasts, message.encode()))


def split_parcel(data: bytes, most: int = 1) -> tuple[list[bytes], bytes]:
    """The broadcasts of a parcel, so many at most, and its message."""
    rest, frames = memoryview(data), []
    while len(rest):
        before = rest
        _, _, rest = next_frame(before)
        frames.append(bytes(before[: len(before) - len(rest)]))
        words = "one broadcast" if most == 1 else f"{most} broadcasts"
        require(len(frames) <= most + 1, f"a parcel holds {words} and one message at most")
    require(bool(frames), f"needs at least {HEADER_BYTES} bytes; got 0")
    return frames[:-1], frames[-1]


def named_parcel(data: bytes) -> tuple[dict[bytes, bytes], bytes]:
    """The broadcasts of a parcel by their names, and its message."""
    broadcasts, message = split_parcel(data)
    return {name_of(frame): frame for frame in broadcasts}, message
