"""The contract of an additively homomorphic scheme, and the schemes by name.

Vectors of integers go in; sums of at most so many parties come out. `limit` is public: no entry of
an honest sum is larger in absolute value. The public half encrypts and adds; it cannot decrypt.
"""

from functools import lru_cache
from typing import Any, Protocol

from fedmmf.aggregation.homomorphic.ckks import CkksPublic, CkksSecret
from fedmmf.aggregation.homomorphic.paillier import PaillierPublic, PaillierSecret
from fedmmf.arrays import Array
from fedmmf.errors import SettingsError, WireError

_PAILLIER = ("paillier", "paillier-packed")
_RULE = "scheme must be paillier, paillier-packed or ckks"


class PublicKey(Protocol):
    """The key with which a party encrypts and a server adds."""

    def slots(self, limit: int) -> int:
        """Number of integers in one ciphertext."""

    def encrypt(self, integers: Array, limit: int) -> bytes:
        """Encrypt a vector of int64 (length,) into ciphertexts."""

    def read(self, data: bytes, length: int, limit: int) -> list[Any]:
        """Read the ciphertexts of a vector of that length; raise `WireError` for anything else."""

    def add(self, total: list[Any], part: list[Any]) -> list[Any]:
        """Return the ciphertexts of the sum of two vectors."""

    def write(self, ciphertexts: list[Any]) -> bytes:
        """Serialize ciphertexts as `read` expects them."""


class SecretKey(Protocol):
    """The key with which the keeper decrypts."""

    name: str  # of the scheme

    @property
    def public(self) -> bytes:
        """The public half, for `load_public`."""

    def decrypt(self, total: bytes, length: int, limit: int) -> Array:
        """Decrypt a sum to its integers. (length,) int64."""

    def largest_error(self, n_parties: int, limit: int) -> float:
        """Largest distance of an entry of a decrypted sum from the true integer."""


# Parties of one process share one key object: a CKKS context takes 1.6 MB.
@lru_cache(maxsize=4)
def load_public(scheme: str, data: bytes) -> PublicKey:
    """Load the public half of a key; raise `WireError` for anything else."""
    if scheme == "ckks":
        return CkksPublic(data)
    if scheme in _PAILLIER:
        return PaillierPublic.of(data, packed=scheme == "paillier-packed")
    raise WireError(f"{_RULE}; got {scheme[:40]!r}")


def generate(scheme: str) -> SecretKey:
    """Draw a fresh key of the scheme's default size."""
    if scheme == "ckks":
        return CkksSecret()
    if scheme in _PAILLIER:
        return PaillierSecret.generate(packed=scheme == "paillier-packed")
    raise SettingsError(f"{_RULE}; got {scheme!r}")
