"""CKKS (Cheon et al. 2017): 2048 numbers share a ciphertext, and sums carry a little noise.

The package TenSEAL, over Microsoft SEAL, which seeds its generator from the operating system.
Degree 4096 allows a modulus of 109 bits at 128-bit security (homomorphicencryption.org); addition
alone needs no depth, so the 60 bits of one prime hold the sum, and 40 more serve to encrypt with
little noise.

Li and Micciancio 2021: whoever sees approximate decryptions learns about the secret key. Here only
the keeper decrypts and sees the sums as decrypted. Item factors computed from noisy sums do reach
the parties; in a sum rounded to the true integers, as every sum of the ring 2^32 is, no noise is
left to learn from. A solver that calls for the ring 2^64 keeps some: use Paillier there, where
parties may collude with the server.
"""

import math
from typing import Any

import numpy as np

from fedmmf.aggregation.homomorphic import import_he
from fedmmf.arrays import Array
from fedmmf.errors import DataError, WireError
from fedmmf.wire.codec import BLOB, Reader

DEGREE = 4096
SLOTS = DEGREE // 2
PRIME_BITS = (60, 40)  # of the ciphertexts; of the prime that encryption divides its noise by


def scale_of(limit: int) -> float:
    """Return the largest power of two with limit * scale <= 2^58.

    No coefficient of a plaintext is larger than its largest slot times the scale, and half of a
    60-bit prime is above 2^58, so the sum does not wrap round.
    """
    return 2.0 ** (PRIME_BITS[0] - 2 - limit.bit_length())


def noise_std(n_parties: int, limit: int) -> float:
    """Return the standard deviation of a decrypted entry, in steps of its integer.

    Encryption ends with a division by the second prime, whose two roundings r0 + r1 s, with a
    ternary secret s, have the variance (1 + 2 N / 3) / 12 in each of the N coefficients; encoding
    adds 1 / 12. The real part of a slot sums N coefficients with weights of mean square 1/2.
    """
    variance = DEGREE / 2 * (2 + 2 * DEGREE / 3) / 12
    return math.sqrt(n_parties * variance) / scale_of(limit)


class CkksPublic:
    """A context without the secret key.

    Args:
        data: as `CkksSecret.public` gives it; anything else raises `WireError`.
    """

    def __init__(self, data: bytes) -> None:
        self._tenseal = import_he("tenseal")
        self.context = _read_context(data)

    def slots(self, limit: int) -> int:
        """Number of integers in one ciphertext."""
        return SLOTS

    def encrypt(self, integers: Array, limit: int) -> bytes:
        """Encrypt a vector of int64 (length,) into ciphertexts."""
        padded = np.zeros((math.ceil(len(integers) / SLOTS), SLOTS))
        padded.ravel()[: len(integers)] = integers
        vector, scale = self._tenseal.ckks_vector, scale_of(limit)
        return self.write([vector(self.context, row.tolist(), scale) for row in padded])

    def read(self, data: bytes, length: int, limit: int) -> list[Any]:
        """Read the ciphertexts of a vector of that length; raise `WireError` for anything else."""
        return read_vectors(self.context, data, length, limit)

    def add(self, total: list[Any], part: list[Any]) -> list[Any]:
        """Return the ciphertexts of the sum of two vectors."""
        return [one + other for one, other in zip(total, part, strict=True)]

    def write(self, ciphertexts: list[Any]) -> bytes:
        """Serialize ciphertexts for `read`, each after its size."""
        parts = [vector.serialize() for vector in ciphertexts]
        return b"".join(map(BLOB.write, parts))


class CkksSecret:
    """A fresh context with the secret key."""

    name = "ckks"

    def __init__(self) -> None:
        tenseal = import_he("tenseal")
        self.context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=list(PRIME_BITS), n_threads=1
        )

    @property
    def public(self) -> bytes:
        """Context in bytes, without the secret key and the keys of products and rotations."""
        options = {"save_secret_key": False, "save_galois_keys": False, "save_relin_keys": False}
        return bytes(self.context.serialize(**options))

    def decrypt(self, total: bytes, length: int, limit: int) -> Array:
        """Decrypt a sum to the nearest integers. (length,) int64."""
        vectors = read_vectors(self.context, total, length, limit)
        values = np.concatenate([vector.decrypt() for vector in vectors])[:length]
        if not (np.abs(values) <= 2.0 * limit).all():
            raise DataError(f"a sum is beyond {limit}, which honest parties cannot reach")
        return np.asarray(np.rint(values), np.int64)

    def largest_error(self, n_parties: int, limit: int) -> float:
        """Eight standard deviations of the noise plus the float64 error, rounded to steps."""
        return float(np.rint(8 * noise_std(n_parties, limit) + limit * 2.0**-48))


def _read_context(data: bytes) -> Any:
    tenseal = import_he("tenseal")
    try:
        context = tenseal.context_from(data, n_threads=1)
    except (ValueError, RuntimeError) as error:  # what SEAL raises for bytes it cannot read
        raise WireError(f"a public key cannot be read: {error}") from None
    has_key = context.is_public() and context.has_public_key()
    found = context.seal_context().data.key_context_data()
    sizes = (found.parms().poly_modulus_degree(), found.total_coeff_modulus_bit_count())
    is_ckks = found.parms().scheme() == tenseal.SCHEME_TYPE.CKKS.value
    if not (has_key and is_ckks) or sizes != (DEGREE, sum(PRIME_BITS)):
        raise WireError("a public key has other parameters than the ones due, or is a secret one")
    return context


def read_vectors(context: Any, data: bytes, length: int, limit: int) -> list[Any]:
    """Read the ciphertexts of a vector, and check each against what is expected."""
    due = math.ceil(length / SLOTS)
    reader = Reader(data, lambda rule: WireError(f"{due} ciphertexts are due: {rule}"))
    parts = [BLOB.read(reader) for _ in range(due)]
    reader.end()
    return [_read_vector(context, part, scale_of(limit)) for part in parts]


def _read_vector(context: Any, data: bytes, scale: float) -> Any:
    try:
        vector = import_he("tenseal").ckks_vector_from(context, data)
        parts = vector.ciphertext()
    except (ValueError, RuntimeError) as error:  # what SEAL raises for bytes it cannot read
        raise WireError(f"a ciphertext cannot be read: {error}") from None
    is_due = len(parts) == 1 and vector.size() == SLOTS and parts[0].size() == 2
    if not is_due or parts[0].scale != scale or parts[0].is_transparent():
        raise WireError("a ciphertext has another shape or scale than the one due")
    return vector
