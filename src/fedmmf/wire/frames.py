"""Frames: how any message is written, and how it is read and checked in one go.

A frame is a header (magic, version, kind, length of the body), then the fields of the message in
their order, as `wire.codec` writes them. What is malformed raises `WireError` before anything else
is done with it.

A parcel is one message, with broadcasts that it names before it: frame after frame.
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

from fedmmf.errors import WireError
from fedmmf.wire.codec import (
    NAME_BYTES,
    Fields,
    Reader,
    annotations_of,
    read_fields,
    require,
    write_fields,
)

MAGIC, VERSION = b"FMMF", 4
NO_NAME = bytes(NAME_BYTES)
_HEADER = struct.Struct("<4sBBI")
HEADER_BYTES = _HEADER.size

_MessageType = TypeVar("_MessageType", bound="Message")


class Message:
    """A frozen dataclass whose fields say how they are written: `round: Annotated[int, WHOLE]`."""

    kind: ClassVar[int]

    def encode(self) -> bytes:
        """Encode the frame; its receiver checks whether the content is valid."""
        body = write_fields(self, self.fields())
        require(len(body) < 1 << 32, f"a body has less than 2^32 bytes; got {len(body)}")
        return _HEADER.pack(MAGIC, VERSION, self.kind, len(body)) + body

    @classmethod
    def fields(cls) -> Fields:
        """Fields on the wire, in order."""
        message: Any = cls
        return annotations_of(message)

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
        message = cls(**read_fields(Reader(body), cls.fields()))
        message.check(known)
        return message

    def check(self, known: Any) -> None:
        """Refuse a well-formed message whose content is wrong for this receiver."""


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
