"""The groups that masked vectors live in: Z_2^32 (fast, default), Z_2^64, and Z_p, p = 2^61 - 1.

Masks need a finite group and nothing more, so a power of two serves as well as the prime of the
paper (errata 29) and its arithmetic is what the processor does anyway. Arrays are little-endian
unsigned integers below the modulus.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import DataError, SettingsError


@dataclass(frozen=True)
class Ring:
    """Integers modulo `modulus`, `width` bytes each."""

    name: str
    modulus: int
    width: int

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Little-endian unsigned integer type of the elements."""
        return np.dtype(f"<u{self.width}")

    @property
    def is_binary(self) -> bool:
        """Whether every word is an element, so that arithmetic needs no reduction."""
        return self.modulus == 1 << (8 * self.width)

    @property
    def largest(self) -> int:
        """Largest m such that all of -m .. m are different elements."""
        return (self.modulus - 1) // 2

    def add_into(self, total: Array, values: Array) -> None:
        """Compute total <- total + values, in place."""
        np.add(total, values, out=total)
        if not self.is_binary:
            self._reduce(total)

    def subtract_into(self, total: Array, values: Array) -> None:
        """Compute total <- total - values, in place."""
        np.subtract(total, values, out=total)
        if not self.is_binary:
            np.add(total, self.dtype.type(self.modulus), out=total)
            self._reduce(total)

    def lift(self, values: Array) -> Array:
        """Return the representatives nearest to zero, int64 (centred lift)."""
        if self.is_binary:
            return values.view(f"<i{self.width}").astype(np.int64)
        signed = values.astype(np.int64)
        return np.where(signed > self.largest, signed - self.modulus, signed)

    def lower(self, integers: Array) -> Array:
        """Return the elements that represent int64 `integers` within [-largest, largest]."""
        if self.is_binary:
            return integers.astype(self.dtype)
        return np.where(integers < 0, integers + self.modulus, integers).astype(self.dtype)

    def checked(self, values: Array, length: int) -> Array:
        """Return `values` if they are `length` elements of the ring."""
        if values.dtype != self.dtype or values.shape != (length,):
            raise DataError(
                f"values must be {self.dtype} of shape ({length},); "
                f"got {values.dtype} of shape {values.shape}. Encode them with FixedPoint."
            )
        if not self.contains(values):
            raise DataError(f"values must be below the modulus {self.modulus}")
        return values

    def contains(self, values: Array) -> bool:
        """Whether all words are elements."""
        return self.is_binary or bool((values < self.modulus).all())

    def _reduce(self, total: Array) -> None:
        # a word below 2 m becomes the smaller of x and x - m, which wraps round when x < m
        np.minimum(total, total - self.dtype.type(self.modulus), out=total)


RING32 = Ring("2^32", 1 << 32, 4)
RING64 = Ring("2^64", 1 << 64, 8)
PRIME61 = Ring("2^61-1", (1 << 61) - 1, 8)
RINGS = {ring.name: ring for ring in (RING32, RING64, PRIME61)}


def ring_named(name: str) -> Ring:
    """Return the ring of that name."""
    if name not in RINGS:
        raise SettingsError(f"ring must be one of {sorted(RINGS)}; got {name!r}")
    return RINGS[name]
