"""Paillier's cryptosystem (1999): the product of ciphertexts is a ciphertext of the sum. Exact.

Keys, encryption and decryption are those of the package phe; gmpy2 does the arithmetic. Primes and
the blinding factor of each ciphertext come from `random.SystemRandom`, that is, the operating
system; `raw_encrypt` draws a fresh factor at every call. Nothing here runs in constant time. 2048
bits, as Chai et al. 2020 and most work after it, are worth 112 bits of security (NIST SP 800-57).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.aggregation.homomorphic import import_he
from fedmmf.arrays import Array
from fedmmf.errors import DataError, SettingsError, WireError

MIN_BITS = 2048


def slot_bits(limit: int) -> int:
    """Width w of a slot in which sums s within [-limit, limit] cannot carry into the next slot.

    Plaintexts sum_j x_j 2^(w j) add up to sum_j s_j 2^(w j), whatever the signs on the way. Raised
    by `limit` in every slot, that is a number in base 2^w whose digits s_j + limit are within
    [0, 2 limit], and 2 limit < 2^w. Digits are unique, so all s_j can be read.
    """
    return (2 * limit).bit_length()


def join(integers: list[int], width: int) -> int:
    """Return sum_j x_j 2^(width j)."""
    number = 0
    for integer in reversed(integers):
        number = (number << width) + integer
    return number


def split(number: int, slots: int, limit: int) -> list[int]:
    """Return the s_j of a sum of joined numbers, each within [-limit, limit].

    A larger one, which only a party that breaks the rules can bring about, is noticed in the top
    slot; in a lower one it may carry instead, and spoil its neighbour.
    """
    width = slot_bits(limit)
    raised = number + join([limit] * slots, width)
    digits = [raised >> (width * j) & ((1 << width) - 1) for j in range(slots)]
    if raised < 0 or raised >> (width * slots) or max(digits) > 2 * limit:
        raise DataError(f"a sum is beyond {limit}, which honest parties cannot reach")
    return [digit - limit for digit in digits]


@dataclass(frozen=True)
class PaillierPublic:
    """The modulus, which encrypts and adds."""

    n: int  # the modulus
    packed: bool  # whether a ciphertext holds as many numbers as fit; else one, as in Chai et al.

    @classmethod
    def of(cls, data: bytes, *, packed: bool) -> "PaillierPublic":
        """Read a modulus, as `PaillierSecret.public` gives it; raises `WireError` for others."""
        n = int.from_bytes(data, "little")
        if n.bit_length() < MIN_BITS or n % 2 == 0:
            raise WireError(
                f"a Paillier modulus is odd and has at least {MIN_BITS} bits; got "
                f"{n.bit_length()} bits"
            )
        return cls(n, packed=packed)

    def slots(self, limit: int) -> int:
        """Number of integers in one ciphertext; their slots together stay below n."""
        return (self.n.bit_length() - 1) // slot_bits(limit) if self.packed else 1

    def encrypt(self, integers: Array, limit: int) -> bytes:
        """Encrypt a vector of int64 (length,) into ciphertexts."""
        key = import_he("phe").PaillierPublicKey(self.n)
        numbers, slots, width = integers.tolist(), self.slots(limit), slot_bits(limit)
        plaintexts = (
            join(numbers[begin : begin + slots], width) for begin in range(0, len(numbers), slots)
        )
        return self.write([key.raw_encrypt(number % self.n) for number in plaintexts])

    def read(self, data: bytes, length: int, limit: int) -> list[Any]:
        """Read the ciphertexts of a vector of that length; raise `WireError` for anything else."""
        n_ciphertexts, step = math.ceil(length / self.slots(limit)), self._ciphertext_bytes
        if len(data) != n_ciphertexts * step:
            raise WireError(f"{n_ciphertexts * step} bytes of ciphertext are due; got {len(data)}")
        mpz = import_he("gmpy2").mpz
        parts = [data[begin : begin + step] for begin in range(0, len(data), step)]
        ciphertexts = [mpz(int.from_bytes(part, "little")) for part in parts]
        if not self._are_units(ciphertexts):
            raise WireError("a ciphertext is not invertible modulo n^2")
        return ciphertexts

    def add(self, total: list[Any], part: list[Any]) -> list[Any]:
        """Return the ciphertexts of the sum of two vectors."""
        square = self.n * self.n
        return [one * other % square for one, other in zip(total, part, strict=True)]

    def write(self, ciphertexts: list[Any]) -> bytes:
        """Serialize ciphertexts for `read`, each in the bytes of the squared modulus."""
        size = self._ciphertext_bytes
        return b"".join(int(number).to_bytes(size, "little") for number in ciphertexts)

    @property
    def _ciphertext_bytes(self) -> int:
        return ((self.n * self.n).bit_length() + 7) // 8

    def _are_units(self, ciphertexts: list[Any]) -> bool:
        # one greatest common divisor of the product instead of one for each ciphertext
        square, product = self.n * self.n, 1
        for number in ciphertexts:
            if number >= square:
                return False
            product = product * number % self.n
        return bool(import_he("gmpy2").gcd(product, self.n) == 1)


class PaillierSecret:
    """The factors of the modulus, which decrypt; see `generate`."""

    def __init__(self, key: Any, *, packed: bool) -> None:
        self._key = key
        self._public = PaillierPublic(key.public_key.n, packed=packed)
        self.name = "paillier-packed" if packed else "paillier"

    @classmethod
    def generate(cls, bits: int = MIN_BITS, *, packed: bool = False) -> "PaillierSecret":
        """Draw a key with a modulus of so many bits; `packed`: for several numbers a ciphertext."""
        if bits < MIN_BITS:
            raise SettingsError(f"a Paillier key must have at least {MIN_BITS} bits; got {bits}")
        _, key = import_he("phe").generate_paillier_keypair(n_length=bits)
        return cls(key, packed=packed)

    @property
    def public(self) -> bytes:
        """The modulus n as little-endian bytes."""
        n = self._public.n
        return n.to_bytes((n.bit_length() + 7) // 8, "little")

    def decrypt(self, total: bytes, length: int, limit: int) -> Array:
        """Decrypt a sum to its integers. (length,) int64."""
        n, slots, numbers = self._public.n, self._public.slots(limit), []
        for ciphertext in self._public.read(total, length, limit):
            number = self._key.raw_decrypt(int(ciphertext))
            centred = number - n if number > n // 2 else number
            numbers += split(centred, slots, limit)
        return np.array(numbers[:length], np.int64)

    def largest_error(self, n_parties: int, limit: int) -> float:
        """Return 0, since Paillier's sums are exact."""
        return 0.0
