"""The keeper's broadcasts to all parties, sealed against the server by a secret that they share."""

import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf.aggregation.homomorphic.messages import NONCE_BYTES, HomomorphicKey, Sealed
from fedmmf.errors import WireError
from fedmmf.secagg.keys import derive, digest


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
