"""The nine messages of a round, in the order of the protocol (Bonawitz et al. 2017).

Each is written by `encode(setup, sender)` and read by `decode(setup, sender, data)`, which checks
length, ranges, duplicates, sender and round before anything is used, and raises `SecAggError`.
Whether a well-formed message fits the state of the protocol is for `client` and `server` to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import framing, shamir
from fedmmf.secagg.errors import require
from fedmmf.secagg.framing import require_size
from fedmmf.secagg.keys import (
    DIGEST_BYTES,
    KEY_BYTES,
    PRINT_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    digest,
)
from fedmmf.secagg.setup import Setup

SEALED_BYTES = 2 * shamir.SHARE_BYTES + TAG_BYTES
BOX_BYTES = SEALED_BYTES + 2 * PRINT_BYTES
COMMITMENT_BYTES = DIGEST_BYTES


def key_bytes(active: bool) -> int:
    """Return the size of an advertisement: two public keys and, when active, a signature."""
    return 2 * KEY_BYTES + signature_bytes(active)


def signature_bytes(active: bool) -> int:
    """Return the size of a signature, which only the active variant has."""
    return SIGNATURE_BYTES if active else 0


@dataclass(frozen=True)
class Advertise:
    """Party to server: public keys for the channel and for the masks."""

    channel: bytes
    mask: bytes
    signature: bytes = b""  # over both keys, when active
    kind: ClassVar[int] = 1

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode both keys and the signature as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, self.packed())

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check an advertisement from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        require_size(body, key_bytes(setup.active), sender)
        return cls.unpacked(bytes(body))

    def packed(self) -> bytes:
        """Join keys and signature without a frame."""
        return self.channel + self.mask + self.signature

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Split the bytes of `packed` into keys and signature."""
        return cls(data[:KEY_BYTES], data[KEY_BYTES : 2 * KEY_BYTES], data[2 * KEY_BYTES :])


@dataclass(frozen=True)
class Keys:
    """Server to party: the advertisements of its neighbours."""

    keys: Mapping[int, Advertise]
    kind: ClassVar[int] = 2

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the neighbours' advertisements as a frame from `sender`."""
        records = {party: key.packed() for party, key in self.keys.items()}
        return framing.frame(setup, self.kind, sender, framing.table(records))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a table of advertisements from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        records = framing.read_table(body, key_bytes(setup.active), setup, sender)
        return cls({party: Advertise.unpacked(record) for party, record in records.items()})


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


def _box_table(boxes: Mapping[int, Box]) -> bytes:
    return framing.table({party: box.packed for party, box in boxes.items()})


def _read_box_table(body: memoryview, setup: Setup, sender: int) -> dict[int, Box]:
    records = framing.read_table(body, BOX_BYTES, setup, sender)
    return {party: Box(record) for party, record in records.items()}


@dataclass(frozen=True)
class Shares:
    """Party to server: sealed shares of both its secrets, one box per neighbour."""

    commitment: bytes
    boxes: Mapping[int, Box]  # by receiver
    kind: ClassVar[int] = 3

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the commitment and all boxes as a frame from `sender`."""
        body = self.commitment + _box_table(self.boxes)
        return framing.frame(setup, self.kind, sender, body)

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check commitment and boxes from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        require(len(body) >= COMMITMENT_BYTES, sender, "the commitment is cut short")
        boxes = _read_box_table(body[COMMITMENT_BYTES:], setup, sender)
        return cls(bytes(body[:COMMITMENT_BYTES]), boxes)


@dataclass(frozen=True)
class Boxes:
    """Server to party: the boxes its neighbours sent it."""

    boxes: Mapping[int, Box]  # by sender
    kind: ClassVar[int] = 4

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the boxes for one party as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, _box_table(self.boxes))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a table of boxes from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        return cls(_read_box_table(body, setup, sender))


@dataclass(frozen=True, eq=False)
class Masked:
    """Party to server: its vector under all its masks."""

    vector: Array
    signature: bytes = b""  # over the vector and what is summed, when active
    kind: ClassVar[int] = 5

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode signature and masked vector as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, self.signature + self.vector.tobytes())

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode a masked vector from `sender`, checking its length and range."""
        body = framing.body_of(setup, cls.kind, sender, data)
        start = signature_bytes(setup.active)
        require_size(body, start + setup.ring.width * setup.length, sender)
        vector = np.frombuffer(body[start:], setup.ring.dtype)
        below = setup.ring.contains(vector)
        require(below, sender, f"entries must be below {setup.ring.modulus}")
        return cls(vector, bytes(body[:start]))

    def signed(self, about: bytes) -> bytes:
        """Bytes that the signature is over."""
        return digest(self.vector.data.cast("B"), about)


@dataclass(frozen=True)
class Survivors:
    """Server to party, active variant: whose masked vectors arrived."""

    members: frozenset[int]
    kind: ClassVar[int] = 6

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the set of survivors as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, framing.bit_map(setup, self.members))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a set of survivors from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        return cls(framing.read_bit_map(body, setup, sender))


@dataclass(frozen=True)
class Confirmed:
    """Party to server, active variant: its signature over the survivors it was shown."""

    signature: bytes
    kind: ClassVar[int] = 7

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the signature as a frame from `sender`."""
        return framing.frame(setup, self.kind, sender, self.signature)

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a signature from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        require_size(body, SIGNATURE_BYTES, sender)
        return cls(bytes(body))


@dataclass(frozen=True)
class Request:
    """Server to party: reveal self-mask shares of survivors and key shares of the dropped."""

    survivors: frozenset[int]
    dropped: frozenset[int]
    signatures: Mapping[int, bytes] = field(default_factory=dict)  # active: over the survivors
    kind: ClassVar[int] = 8

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode survivors, dropped parties and signatures as a frame from `sender`."""
        maps = framing.bit_map(setup, self.survivors) + framing.bit_map(setup, self.dropped)
        return framing.frame(setup, self.kind, sender, maps + framing.table(self.signatures))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode and check a request for shares from `sender`."""
        body = framing.body_of(setup, cls.kind, sender, data)
        size = framing.map_bytes(setup.n)
        survivors = framing.read_bit_map(body[:size], setup, sender)
        dropped = framing.read_bit_map(body[size : 2 * size], setup, sender)
        rest = body[2 * size :]
        require(setup.active or len(rest) == 0, sender, "signatures belong to the active variant")
        signatures = framing.read_table(rest, SIGNATURE_BYTES, setup, sender)
        return cls(survivors, dropped, signatures)


@dataclass(frozen=True)
class Revealed:
    """Party to server: one share per owner, of the kind the request named for it.

    An owner whose box was forged or damaged is missing: that is how its holders complain.
    """

    shares: Mapping[int, int]  # by owner
    kind: ClassVar[int] = 9

    def encode(self, setup: Setup, sender: int) -> bytes:
        """Encode the revealed shares as a frame from `sender`."""
        records = {owner: shamir.to_bytes(share) for owner, share in self.shares.items()}
        return framing.frame(setup, self.kind, sender, framing.table(records))

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> Self:
        """Decode shares from `sender`, checking that they are field elements."""
        body = framing.body_of(setup, cls.kind, sender, data)
        records = framing.read_table(body, shamir.SHARE_BYTES, setup, sender)
        shares = {owner: shamir.from_bytes(record) for owner, record in records.items()}
        in_field = all(share < shamir.PRIME for share in shares.values())
        require(in_field, sender, "a share is not an element of the field")
        return cls(shares)
