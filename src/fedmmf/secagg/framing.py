"""The frame of every message of a round.

Magic, version, kind, the first half of the digest of the `Setup` (so a message of another round,
cohort or setting is refused before it is read), the sender, a check of all the rest, the body.
Masked numbers look like any others, so that without the check a damaged one would give a wrong sum
unnoticed. Signatures protect against intentional damage. What is malformed raises `SecAggError`.
"""

import struct
from functools import partial

from fedmmf.secagg.errors import SecAggError, in_words
from fedmmf.secagg.keys import CHECK_BYTES, check
from fedmmf.secagg.setup import Setup
from fedmmf.wire.codec import Reader

_HEADER = struct.Struct("<4sBB16sI")
_MAGIC, _VERSION = b"FMSA", 2
_TAG_BYTES = 16
HEADER_BYTES = _HEADER.size + CHECK_BYTES


def frame(setup: Setup, kind: int, sender: int, body: bytes) -> bytes:
    """Put a header before a body."""
    head = _HEADER.pack(_MAGIC, _VERSION, kind, setup.context[:_TAG_BYTES], sender)
    return b"".join((head, check(setup.context, head, body), body))


def reader_of(sender: int, data: bytes) -> Reader:
    """Make a reader that blames the sender."""
    return Reader(data, partial(SecAggError, sender))


def kind_of(setup: Setup, sender: int, data: bytes) -> int:
    """Check everything in the header but the kind, and return that."""
    reader = reader_of(sender, data)
    reader.require(len(data) >= HEADER_BYTES, f"needs {HEADER_BYTES} bytes; got {len(data)}")
    magic, version, kind, tag, claimed = reader.unpack(_HEADER)
    reader.require((magic, version) == (_MAGIC, _VERSION), "not a message of this protocol")
    reader.require(tag == setup.context[:_TAG_BYTES], "it belongs to another round or setup")
    reader.require(claimed == sender, f"it claims to come from {in_words(claimed)}")
    return int(kind)


def body_of(setup: Setup, kind: int, sender: int, data: bytes) -> Reader:
    """Check the header, and all the rest against it, and return a reader of the body."""
    reader, given = reader_of(sender, data), kind_of(setup, sender, data)
    reader.require(given == kind, f"a message of kind {kind} was due; got kind {given}")
    head, claimed = reader.take(_HEADER.size), reader.take(CHECK_BYTES)
    is_whole = check(setup.context, head, memoryview(data)[HEADER_BYTES:]) == claimed
    reader.require(is_whole, "it was damaged on its way: its check does not fit")
    return reader
