"""The nine messages of a round, in the order of the protocol (Bonawitz et al. 2017).

Each is written by `encode(setup, sender)` and read by `decode(setup, sender, data)`, which checks
length, ranges, duplicates, sender and round before anything is used, and raises `SecAggError`.
Whether a well-formed message fits the state of the protocol is for `client` and `server` to say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import framing, shamir
from fedmmf.secagg.keys import (
    DIGEST_BYTES,
    KEY_BYTES,
    PRINT_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    digest,
)
from fedmmf.secagg.setup import Setup
from fedmmf.wire.codec import (
    Field,
    Fields,
    Reader,
    annotations_of,
    bit_map,
    fixed,
    read_fields,
    table,
    write_fields,
)

SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
BOX_BYTES = SEALED_BYTES + 2 * PRINT_BYTES
COMMITMENT_BYTES = DIGEST_BYTES


def key_bytes(active: bool) -> int:
    """Return the size of an advertisement: two public keys and, when active, a signature."""
    return 2 * KEY_BYTES + signature_bytes(active)


def signature_bytes(active: bool) -> int:
    """Return the size of a signature, which only the active variant has."""
    return SIGNATURE_BYTES if active else 0


class RoundMessage:
    """A frozen dataclass whose fields say how a `Setup` makes their encoding."""

    kind: ClassVar[int]

    @classmethod
    def fields(cls, setup: Setup) -> Fields:
        """Fields of the body, in order."""
        message: Any = cls
        return {name: make(setup) for name, make in annotations_of(message).items()}

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the message as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, write_fields(self, self.fields(setup)))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a message from `sender`."""
        reader = framing.body_of(setup, cls.kind, sender, data)
        return cls(**read_fields(reader, cls.fields(setup)))


def _of_size(size: int) -> Callable[[Setup], Field]:
    return lambda setup: fixed(size)


def _signature(setup: Setup) -> Field:
    return fixed(signature_bytes(setup.active))


def _by_party(
    setup: Setup, size: int, to: Callable[[bytes], Any], back: Callable[[Any], bytes]
) -> Field:
    """Make a table of values that take `size` bytes each."""
    records = table(size, setup.index)

    def write(values: Mapping[int, Any]) -> bytes:
        return records.write({party: back(value) for party, value in values.items()})

    def read(reader: Reader) -> dict[int, Any]:
        return {party: to(record) for party, record in records.read(reader).items()}

    return Field("table", write, read)


def _keys(setup: Setup) -> Field:
    return _by_party(setup, key_bytes(setup.active), Advertise.unpacked, Advertise.packed)


def _boxes(setup: Setup) -> Field:
    return _by_party(setup, BOX_BYTES, Box, lambda box: box.packed)


def _members(setup: Setup) -> Field:
    return bit_map(setup.index)


def _signatures(setup: Setup) -> Field:
    return table(SIGNATURE_BYTES, setup.index if setup.active else ())


def _elements(setup: Setup) -> Field:
    """As many elements of the ring as a vector has."""
    ring = setup.ring

    def read(reader: Reader) -> Array:
        vector = np.frombuffer(reader.take(ring.width * setup.length), ring.dtype)
        reader.require(ring.contains(vector), f"entries must be below {ring.modulus}")
        return vector

    return Field("vector", lambda vector: vector.tobytes(), read)


def _shares(setup: Setup) -> Field:
    """Elements of Shamir's field, by owner."""
    found = _by_party(setup, shamir.SHARE_BYTES, shamir.from_bytes, shamir.to_bytes)

    def read(reader: Reader) -> dict[int, int]:
        shares: dict[int, int] = found.read(reader)
        in_field = all(share < shamir.PRIME for share in shares.values())
        reader.require(in_field, "a share is not an element of the field")
        return shares

    return replace(found, read=read)


@dataclass(frozen=True)
class Advertise(RoundMessage):
    """Party to server: public keys for the channel and for the masks."""

    channel: Annotated[bytes, _of_size(KEY_BYTES)]
    mask: Annotated[bytes, _of_size(KEY_BYTES)]
    signature: Annotated[bytes, _signature] = b""  # over both keys, when active
    kind: ClassVar[int] = 1

    def packed(self) -> bytes:
        """Join keys and signature without a frame."""
        return self.channel + self.mask + self.signature

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Split the bytes of `packed` into keys and signature."""
        return cls(data[:KEY_BYTES], data[KEY_BYTES : 2 * KEY_BYTES], data[2 * KEY_BYTES :])


@dataclass(frozen=True)
class Keys(RoundMessage):
    """Server to party: the advertisements of its neighbours."""

    keys: Annotated[Mapping[int, Advertise], _keys]
    kind: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Box:
    """A holder's shares of both secrets of an owner, sealed, and what everybody may see of them.

    The server relays very many boxes, so a box is split only when it is read.
    """

    packed: bytes

    @classmethod
    def of(cls, sealed: bytes, prints: tuple[bytes, bytes]) -> Self:
        """Join the sealed shares and their two prints."""
        return cls(sealed + b"".join(prints))

    @property
    def sealed(self) -> bytes:
        """Both shares, sealed for the holder."""
        return self.packed[:SEALED_BYTES]

    @property
    def prints(self) -> tuple[bytes, bytes]:
        """Prints of the share of the self mask and of the share of the mask key."""
        middle = SEALED_BYTES + PRINT_BYTES
        return self.packed[SEALED_BYTES:middle], self.packed[middle:]


@dataclass(frozen=True)
class Shares(RoundMessage):
    """Party to server: sealed shares of both its secrets, one box per neighbour."""

    commitment: Annotated[bytes, _of_size(COMMITMENT_BYTES)]
    boxes: Annotated[Mapping[int, Box], _boxes]  # by receiver
    kind: ClassVar[int] = 3


@dataclass(frozen=True)
class Boxes(RoundMessage):
    """Server to party: the boxes its neighbours sent it."""

    boxes: Annotated[Mapping[int, Box], _boxes]  # by sender
    kind: ClassVar[int] = 4


@dataclass(frozen=True, eq=False)
class Masked(RoundMessage):
    """Party to server: its vector under all its masks."""

    signature: Annotated[bytes, _signature] = field(default=b"", kw_only=True)  # when active
    vector: Annotated[Array, _elements]
    kind: ClassVar[int] = 5

    def signed(self, about: bytes) -> bytes:
        """Bytes that the signature is over: the vector and what is summed."""
        return digest(self.vector.data.cast("B"), about)


@dataclass(frozen=True)
class Survivors(RoundMessage):
    """Server to party, active variant: whose masked vectors arrived."""

    members: Annotated[frozenset[int], _members]
    kind: ClassVar[int] = 6


@dataclass(frozen=True)
class Confirmed(RoundMessage):
    """Party to server, active variant: its signature over the survivors it was shown."""

    signature: Annotated[bytes, _of_size(SIGNATURE_BYTES)]
    kind: ClassVar[int] = 7


@dataclass(frozen=True)
class Request(RoundMessage):
    """Server to party: reveal self-mask shares of survivors and key shares of the dropped.

    Signatures, over the survivors, belong to the active variant.
    """

    survivors: Annotated[frozenset[int], _members]
    dropped: Annotated[frozenset[int], _members]
    signatures: Annotated[Mapping[int, bytes], _signatures] = field(default_factory=dict)
    kind: ClassVar[int] = 8


@dataclass(frozen=True)
class Revealed(RoundMessage):
    """Party to server: one share per owner, of the kind the request named for it.

    An owner whose box was forged or damaged is missing: that is how its holders complain.
    """

    shares: Annotated[Mapping[int, int], _shares]  # by owner
    kind: ClassVar[int] = 9
