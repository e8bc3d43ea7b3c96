"""The parts messages are made of: a frame, tables of fixed-size records, sets as bit maps.

Little-endian. A frame is magic, version, kind, the first half of the digest of the `Setup` (so a
message of another round, cohort or setting is refused before it is read), the sender, a check of
all the rest, the body. Masked numbers look like any others, so that without the check a damaged
one would give a wrong sum unnoticed. Signatures protect against intentional damage.
A table is records of a party number and a fixed number of bytes, strictly increasing in the
number: no duplicates and one encoding only. Everything here raises `SecAggError` or nothing.
"""

import struct
from collections.abc import Collection, Mapping

import numpy as np

from fedmmf.secagg.errors import in_words, require
from fedmmf.secagg.keys import CHECK_BYTES, check
from fedmmf.secagg.setup import Setup

_HEADER = struct.Struct("<4sBB16sI")
_MAGIC, _VERSION = b"FMSA", 2
_TAG_BYTES = 16
_NUMBER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + CHECK_BYTES
NUMBER_BYTES = _NUMBER.size  # of a party, before its record in a table


def frame(setup: Setup, kind: int, sender: int, body: bytes) -> bytes:
    """Put a header before a body."""
    head = _HEADER.pack(_MAGIC, _VERSION, kind, setup.context[:_TAG_BYTES], sender)
    return b"".join((head, check(setup.context, head, body), body))


def kind_of(setup: Setup, sender: int, data: bytes) -> int:
    """Check everything in the header but the kind, and return that."""
    require(len(data) >= HEADER_BYTES, sender, f"needs {HEADER_BYTES} bytes; got {len(data)}")
    magic, version, kind, tag, claimed = _HEADER.unpack_from(data)
    require((magic, version) == (_MAGIC, _VERSION), sender, "not a message of this protocol")
    require(tag == setup.context[:_TAG_BYTES], sender, "it belongs to another round or setup")
    require(claimed == sender, sender, f"it claims to come from {in_words(claimed)}")
    return int(kind)


def body_of(setup: Setup, kind: int, sender: int, data: bytes) -> memoryview:
    """Check the header, and all the rest against it, and return the body."""
    given = kind_of(setup, sender, data)
    require(given == kind, sender, f"a message of kind {kind} was due; got kind {given}")
    body = memoryview(data)[HEADER_BYTES:]
    is_whole = check(setup.context, data[: _HEADER.size], body) == data[_HEADER.size : HEADER_BYTES]
    require(is_whole, sender, "it was damaged on its way: its check does not fit")
    return body


def require_size(body: memoryview, size: int, sender: int) -> None:
    """Refuse a body of another size."""
    require(len(body) == size, sender, f"the body must have {size} bytes; got {len(body)}")


def table(records: Mapping[int, bytes]) -> bytes:
    """Write records in increasing order of party."""
    return b"".join(_NUMBER.pack(party) + records[party] for party in sorted(records))


def read_table(body: memoryview, size: int, setup: Setup, sender: int) -> dict[int, bytes]:
    """Read records of `size` bytes each, of parties of the cohort."""
    step = NUMBER_BYTES + size
    require(len(body) % step == 0, sender, f"records have {step} bytes; got {len(body)} in all")
    last = -1
    records: dict[int, bytes] = {}
    for start in range(0, len(body), step):
        (party,) = _NUMBER.unpack_from(body, start)
        require(party in setup.index, sender, f"party {party} is a stranger to this cohort")
        require(party > last, sender, f"records must increase; party {party} follows {last}")
        records[party] = bytes(body[start + NUMBER_BYTES : start + step])
        last = party
    return records


def table_bytes(count: int, size: int) -> int:
    """Return the size of a table of `count` records of `size` bytes each."""
    return count * (NUMBER_BYTES + size)


def map_bytes(n: int) -> int:
    """Return the size of a bit map of a cohort of n."""
    return (n + 7) // 8


def bit_map(setup: Setup, members: Collection[int]) -> bytes:
    """Write a set of parties as a bit map, one bit per position."""
    bits = np.zeros(setup.n, np.uint8)  # (n,)
    bits[[setup.index[party] for party in members]] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def read_bit_map(body: memoryview, setup: Setup, sender: int) -> frozenset[int]:
    """Read a set of parties from a bit map."""
    require_size(body, map_bytes(setup.n), sender)
    bits = np.unpackbits(np.frombuffer(body, np.uint8), bitorder="little")  # (8 bytes,)
    require(not bits[setup.n :].any(), sender, "the set has bits beyond the cohort")
    return frozenset(setup.parties[i] for i in np.flatnonzero(bits).tolist())
