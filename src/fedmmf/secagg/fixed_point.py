"""Fixed point: real numbers to ring elements and back, without any overflow of the sum.

clip, scale, round. The scale is a power of two, so scaling is exact and only rounding loses
anything, at most half a step per party. It is the largest one at which the sum over all parties
stays within the centred half of the ring and within the 53 bits of a float64: an overflow is
impossible by construction (errata 29: l > 2 n clip scale).
"""

import math
from dataclasses import dataclass, field

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import DataError, SettingsError
from fedmmf.secagg.ring import RING32, Ring

_EXACT = 1 << 53  # float64 holds every integer up to here
_SMALLEST, _LARGEST = 2.0**-500, 2.0**500  # clips whose scales and sums are far from overflow


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Encoder and decoder of vectors that will be summed over at most `n_parties`.

    Args:
        n_parties: largest number of vectors in one sum.
        clip: bound on absolute values; one number, or one per coordinate; within 2^-500 .. 2^500.
            Public.
        ring: where the sum is made.
    """

    n_parties: int
    clip: float | Array
    ring: Ring = RING32
    scale: Array = field(init=False)  # () or (length,), powers of two
    bound: Array = field(init=False)  # largest encoded integer of one party, int64

    def __post_init__(self) -> None:
        clip = _checked(self.clip)  # () or (length,)
        if self.n_parties < 1:
            raise SettingsError(f"n_parties must be at least 1; got {self.n_parties}")
        budget = largest_integer(self.n_parties, self.ring)
        scale = largest_scale(clip, budget)
        bound = np.rint(clip * scale).astype(np.int64)
        if (bound > budget).any() or (bound < 1).any():
            raise SettingsError(
                f"{self.n_parties} parties leave no room in the ring {self.ring.name}; use 2^64"
            )
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "bound", bound)

    def encode(self, values: Array) -> Array:
        """Return ring elements; values beyond the clip are cut to it."""
        integers = self.quantize(values)
        return self.ring.lower(integers)

    def quantize(self, values: Array) -> Array:
        """Return round(clip(values) * scale) as int64: what one party adds to the sum."""
        if not np.isfinite(values).all():
            raise DataError("only finite numbers can be encoded")
        if np.ndim(self.clip) and np.shape(values)[-1:] != np.shape(self.clip):
            raise DataError(
                f"values must have one entry per clip, {np.shape(self.clip)}; "
                f"got shape {np.shape(values)}"
            )
        clipped = np.clip(np.asarray(values, np.float64), -self.clip, self.clip)
        integers = np.rint(clipped * self.scale).astype(np.int64)
        if _beyond(integers, self.bound):
            raise DataError("an encoded value exceeds its bound")  # cannot happen; checked
        return integers

    def decode(self, total: Array) -> Array:
        """Return the real numbers of a sum, float64; exactly its integers over the scale."""
        integers = self.ring.lift(total)
        if _beyond(integers, self.n_parties * self.bound):
            raise DataError(
                f"the sum exceeds what {self.n_parties} honest parties can reach: some party did "
                "not clip, or the sum has more parties than the codec was made for"
            )
        return integers / self.scale


def largest_integer(n_parties: int, ring: Ring) -> int:
    """Return the largest m such that n parties' integers in [-m, m] cannot overflow."""
    return min(ring.largest, _EXACT) // n_parties


def largest_scale(clip: Array, budget: int) -> Array:
    """Return the largest powers of two with clip * scale <= budget."""
    mantissa, exponent = np.frexp(clip)  # clip = mantissa * 2^exponent, mantissa in [1/2, 1)
    top, power = math.frexp(max(budget, 1))
    return np.asarray(np.ldexp(1.0, power - exponent - (mantissa > top)))


def _checked(clip: float | Array) -> Array:
    """Return the clip as float64, or say what is wrong with it."""
    rule = "clip must be one number or a vector of them, positive and within 2^-500 .. 2^500"
    try:
        numbers = np.asarray(clip, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"{rule}; got {type(clip).__name__}: {error}") from error
    if numbers.ndim > 1 or numbers.shape == (0,):
        raise SettingsError(f"{rule}; got shape {numbers.shape}")
    wrong = numbers[~((numbers >= _SMALLEST) & (numbers <= _LARGEST))]  # nan is neither
    if wrong.size:
        raise SettingsError(f"{rule}; got {wrong[0]:g}")
    return numbers


def _beyond(integers: Array, bound: Array) -> bool:
    """Whether any is outside [-bound, bound]; the smallest int64 has no absolute value."""
    return bool(((integers > bound) | (integers < -bound)).any())
