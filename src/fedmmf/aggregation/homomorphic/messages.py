"""The messages of homomorphic aggregation, and how the keeper's broadcasts are sealed.

All parties share a secret, under which broadcasts are sealed against the server.
"""

import os
import struct
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf.errors import WireError
from fedmmf.secagg.keys import derive, digest
from fedmmf.wire import Kind, Message
from fedmmf.wire.codec import BLOB, TEXT, WHOLE, fixed, require

NONCE_BYTES = 12


@dataclass(frozen=True)
class HomomorphicKey(Message):
    """Keeper to party, over a channel that the server cannot read: how to encrypt updates.

    No party answers it; it is given to `Party.hold`, so that a server cannot put its own key in the
    place of the keeper's.
    """

    kind: ClassVar[int] = Kind.HOMOMORPHIC_KEY
    scheme: Annotated[str, TEXT]
    n_users: Annotated[int, WHOLE]  # in one sum at most
    channel: Annotated[bytes, fixed(32)] = field(repr=False)  # known to the parties alone
    public: Annotated[bytes, BLOB] = field(repr=False)  # the public key, as the scheme writes it

    def check(self, known: Any) -> None:
        """Raise `WireError` unless the sum has at least one user."""
        require(0 < self.n_users < 1 << 31, f"1 to 2^31 users are summed; got {self.n_users}")


@dataclass(frozen=True)
class Sealed(Message):
    """Keeper to all parties: a broadcast under AES-256-GCM, with its round bound in."""

    kind: ClassVar[int] = Kind.SEALED
    round: Annotated[int, WHOLE]  # 0: a survey or a layout
    nonce: Annotated[bytes, fixed(NONCE_BYTES)]  # never used twice
    box: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Ciphertexts(Message):
    """Party to server: its update in fixed point, encrypted.

    The server adds these, and the keeper alone can decrypt the sum.
    """

    kind: ClassVar[int] = Kind.CIPHERTEXTS
    round: Annotated[int, WHOLE]
    data: Annotated[bytes, BLOB]


def channel_key(key: HomomorphicKey) -> bytes:
    """Derive the AES key of all broadcasts under this public key."""
    return derive(key.channel, digest(key.public), b"homomorphic rounds")


def seal(key: HomomorphicKey, round_: int, frame: bytes) -> Sealed:
    """Encrypt and authenticate a round's broadcast."""
    nonce = os.urandom(NONCE_BYTES)
    box = AESGCM(channel_key(key)).encrypt(nonce, frame, _associated(round_))
    return Sealed(round_, nonce, box)


def unseal(key: HomomorphicKey, message: Sealed) -> bytes:
    """Decrypt a broadcast; raise `WireError` if it, its round or its key is not the sealed one."""
    try:
        aead = AESGCM(channel_key(key))
        return aead.decrypt(message.nonce, message.box, _associated(message.round))
    except InvalidTag:
        raise WireError(
            f"the box of round {message.round} was not sealed for that round by the holder of "
            "this party's key"
        ) from None


def _associated(round_: int) -> bytes:
    return b"fedmmf homomorphic round" + struct.pack("<I", round_)
