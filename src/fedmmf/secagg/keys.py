"""Key agreement, key derivation, authenticated encryption and signatures, all by OpenSSL.

The primitives that Bonawitz et al. 2017 ask for: X25519 for both key pairs of a party, HKDF-SHA256
that binds round, purpose, both public keys and both names, AES-256-GCM, Ed25519. A key that seals
belongs to one round, one sender and one receiver and seals one message, so its nonce may be
constant and no nonce is ever used twice.

The curve and cipher code of OpenSSL runs in constant time. Shares (module `shamir`) and bytes
objects are Python's: they are neither constant-time nor wiped from memory, only released.
"""

import struct
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmmf.secagg.errors import PolicyError

KEY_BYTES = 32
TAG_BYTES = 16
SIGNATURE_BYTES = 64
DIGEST_BYTES = 32
PRINT_BYTES = 16
CHECK_BYTES = 16
_NONCE = bytes(12)


@dataclass(frozen=True, eq=False)
class KeyPair:
    """An X25519 key pair; `secret` is never part of a message."""

    secret: bytes
    private: X25519PrivateKey
    public: bytes

    @classmethod
    def from_secret(cls, secret: bytes) -> "KeyPair":
        """Make the pair of a 32-byte secret."""
        private = X25519PrivateKey.from_private_bytes(secret)
        return cls(secret, private, private.public_key().public_bytes_raw())

    def agree(self, peer: bytes) -> bytes | None:
        """Return the shared secret with a public key; None if that is no proper key."""
        try:
            return self.private.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:  # a point of low order: the result would not be secret
            return None

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"


_PROBE = KeyPair.from_secret(bytes(KEY_BYTES))


def is_proper(public: bytes) -> bool:
    """Whether a public key is none of the few points of low order."""
    return _PROBE.agree(public) is not None


@dataclass(frozen=True)
class End:
    """One end of a pair: a party and its public key."""

    party: int
    public: bytes

    def encode(self) -> bytes:
        """Encode party and public key for key derivation."""
        return struct.pack("<I", self.party) + self.public


def derive(secret: bytes, context: bytes, purpose: bytes, *parts: bytes) -> bytes:
    """Return a 32-byte key for one purpose of one round (HKDF-SHA256, RFC 5869)."""
    info = b"\0".join([b"fedmmf secagg 1", purpose, b"".join(parts)])
    return HKDF(SHA256(), KEY_BYTES, salt=context, info=info).derive(secret)


def pair_seed(secret: bytes, context: bytes, one: End, other: End, about: bytes = b"") -> bytes:
    """Return s_uv, the seed of the pairwise mask; the same at both ends.

    It is the same only if both have the same name of what is summed; else masks do not cancel.
    """
    low, high = sorted((one, other), key=lambda end: end.party)
    return derive(secret, context, b"pair mask", low.encode(), high.encode(), about)


def self_seed(secret: bytes, context: bytes, party: int) -> bytes:
    """Return the seed of the self mask of a party from its secret b_u."""
    return derive(secret, context, b"self mask", struct.pack("<I", party))


def commitment(secret: bytes, context: bytes, party: int) -> bytes:
    """Return what a party publishes of b_u, so that a wrong share is noticed."""
    return digest(b"fedmmf secagg 1 commitment", context, struct.pack("<I", party), secret)


def share_print(context: bytes, owner: int, holder: int, share: bytes, *, of_key: bool) -> bytes:
    """Return what an owner publishes of a holder's share, so that a wrong one is known by itself.

    A share is as hard to guess as a key, so that nothing needs to hide it.
    """
    place = struct.pack("<II?", owner, holder, of_key)
    return digest(b"fedmmf secagg 2 share", context, place, share)[:PRINT_BYTES]


def channel_key(secret: bytes, context: bytes, sender: End, receiver: End) -> bytes:
    """Return the key of the one message that goes from sender to receiver in this round."""
    return derive(secret, context, b"channel", sender.encode(), receiver.encode())


def seal(key: bytes, text: bytes, context: bytes, sender: int, receiver: int) -> bytes:
    """Encrypt and authenticate, with sender, receiver and round bound in."""
    return AESGCM(key).encrypt(_NONCE, text, _associated(context, sender, receiver))


def unseal(key: bytes, box: bytes, context: bytes, sender: int, receiver: int) -> bytes | None:
    """Return the text; None if anything about it is not as it was sealed."""
    try:
        return AESGCM(key).decrypt(_NONCE, box, _associated(context, sender, receiver))
    except InvalidTag:
        return None


def check(context: bytes, *parts: bytes | memoryview) -> bytes:
    """Return 16 bytes that change with any of the parts, 30 times as fast as SHA-256.

    Its key is public: it detects damage, not forgery.
    """
    return AESGCM(context).encrypt(_NONCE, b"", b"".join(parts))


def sign(identity: bytes, purpose: bytes, context: bytes, text: bytes) -> bytes:
    """Return the Ed25519 signature of a text for one purpose of one round."""
    return Ed25519PrivateKey.from_private_bytes(identity).sign(_signed(purpose, context, text))


def is_signed(public: bytes, signature: bytes, purpose: bytes, context: bytes, text: bytes) -> bool:
    """Whether the signature is valid under a public identity."""
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, _signed(purpose, context, text))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_identity(identity: bytes) -> bytes:
    """Return the Ed25519 public key of a 32-byte identity."""
    if len(identity) != KEY_BYTES:
        raise PolicyError(f"an identity must have {KEY_BYTES} bytes; got {len(identity)}")
    return Ed25519PrivateKey.from_private_bytes(identity).public_key().public_bytes_raw()


def digest(*parts: bytes | memoryview) -> bytes:
    """Return SHA-256 of parts, each preceded by its length."""
    state = sha256()
    for part in parts:
        state.update(struct.pack("<Q", len(part)))
        state.update(part)
    return state.digest()


def _signed(purpose: bytes, context: bytes, text: bytes) -> bytes:
    return b"fedmmf secagg 1 signature" + digest(purpose, context, text)


def _associated(context: bytes, sender: int, receiver: int) -> bytes:
    return context + struct.pack("<II", sender, receiver)
