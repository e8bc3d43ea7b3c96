"""Signatures of documents, and public keys as people compare them.

The keys that sign cards and lists also sign in secure sums. `fedmmf.secagg.keys.sign` binds a
purpose, and those below are used nowhere else: no signature of one kind passes for another.
"""

from hashlib import sha256

from fedmmf.secagg.keys import is_signed, sign

CARD_PURPOSE = b"identity card 1"
LIST_PURPOSE = b"identity trust list 1"
_NO_ROUND = b""  # in the place of the round that signatures of secure sums are bound to

_PRIME = 2**255 - 19
_SIGN_BIT = 1 << 255
# y of the points whose order divides 8 (RFC 8032's curve): signatures that fit any text exist
# under them without a secret, so that they prove nothing.
_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_LOW_ORDER = {0, 1, _PRIME - 1, _OF_ORDER_8, _PRIME - _OF_ORDER_8}


def is_proper(public: bytes) -> bool:
    """Whether a public key has its canonical encoding and no low order."""
    y = int.from_bytes(public, "little") & ~_SIGN_BIT
    return y < _PRIME and y not in _LOW_ORDER


def sign_text(secret: bytes, purpose: bytes, text: bytes) -> bytes:
    """Return the signature of a document's text."""
    return sign(secret, purpose, _NO_ROUND, text)


def is_text_signed(public: bytes, signature: bytes, purpose: bytes, text: bytes) -> bool:
    """Whether a document's text was signed by the owner of a public key."""
    return is_signed(public, signature, purpose, _NO_ROUND, text)


def fingerprint(public: bytes) -> str:
    """Half of SHA-256 of a public key, in groups to read aloud; 128 bits are not found by trying.

    >>> fingerprint(bytes(32))
    '6668-7aad-f862-bd77-6c8f-c18b-8e9f-8e20'
    """
    digits = sha256(public).hexdigest()[:32]
    return "-".join(digits[start : start + 4] for start in range(0, 32, 4))
