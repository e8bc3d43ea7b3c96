"""What the keeper says to all parties, past the server: sealed under a secret that they share."""

import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf.aggregation.homomorphic.messages import NONCE_BYTES, HomomorphicKey, Sealed
from fedmmf.errors import WireError
from fedmmf.secagg.keys import derive, digest


def channel_key(key: HomomorphicKey) -> bytes:
    """The AES key of everything that goes down, for this public key alone."""
    return derive(key.channel, digest(key.public), b"homomorphic rounds")


def seal(key: HomomorphicKey, round_: int, frame: bytes) -> Sealed:
    """Encrypt and authenticate what all parties are sent in a round."""
    nonce = os.urandom(NONCE_BYTES)
    box = AESGCM(channel_key(key)).encrypt(nonce, frame, _associated(round_))
    return Sealed(round_, nonce, box)


def unseal(key: HomomorphicKey, message: Sealed) -> bytes:
    """What is in the box; raises where anything about it is not as it was sealed."""
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
