"""The contract of an additively homomorphic scheme, and the schemes by name.

Vectors of integers go in; sums of at most so many parties come out. `limit` is public: no entry of
an honest sum is larger in absolute value. The public half encrypts and adds; it cannot decrypt.
"""

from functools import lru_cache

from fedmmf.aggregation.homomorphic.ckks import CkksPublic, CkksSecret
from fedmmf.aggregation.homomorphic.paillier import PaillierPublic, PaillierSecret
from fedmmf.errors import SettingsError, WireError

_PAILLIER = ("paillier", "paillier-packed")
_RULE = "scheme must be paillier, paillier-packed or ckks"
PublicKey = CkksPublic | PaillierPublic  # with which a party encrypts and a server adds
SecretKey = CkksSecret | PaillierSecret  # with which the keeper decrypts


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
