"""Updates as dense vectors of integers over all summed items, for sums that hide who rated what.

Masks of two parties cancel only where both upload (errata 31), so everybody uploads every
coordinate: the rows of the whole layout, and the totals; zeros where a party has nothing to say.
Numbers of every user are bounded and rounded before they are added, so that a party with many users
adds exactly what they would have added one by one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.aggregation.contract import Contribution
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import DataError, SettingsError
from fedmmf.secagg.fixed_point import FixedPoint
from fedmmf.secagg.ring import RING64, Ring, ring_named
from fedmmf.solvers.contract import Bounds, ItemSums
from fedmmf.wire.messages import Expected

_EXACT = 1 << 53  # float64 holds every integer up to here


def n_entries(sizes: Expected, n_limbs: int) -> int:
    """Number of entries of the vector: rows of all items, and totals as limbs."""
    return sizes.n_items * sizes.update_shape.width + sizes.n_totals * n_limbs


@dataclass(frozen=True)
class Limbs:
    """Totals split into digits, since they are longer than an element of a small ring.

    A sum over users of the digits at one place stays within the ring, and the sums of all places
    give the sum of the numbers, exactly.
    """

    bits: int  # of a digit
    n: int  # digits of a total

    @classmethod
    def whole(cls, n_users: int, ring: Ring) -> "Limbs":
        """Return the one digit of numbers that fit the ring as they are."""
        return cls((ring.largest // n_users).bit_length(), 1)

    @classmethod
    def of(cls, n_users: int, ring: Ring) -> "Limbs":
        """Return the fewest digits that carry every integer that a float64 holds exactly."""
        room = (ring.largest // n_users).bit_length() - 1
        needed = (_EXACT // n_users).bit_length() + 1
        if room < 1:
            raise SettingsError(f"{n_users} users leave no room in the ring {ring.name}")
        return cls(room, -(-needed // room))

    def split(self, integers: Array) -> Array:
        """Split into digits, the lowest first; the highest has the sign. (n,) -> (n, n_limbs)."""
        digits = [(integers >> (self.bits * place)) & self._mask for place in range(self.n - 1)]
        return np.column_stack((*digits, integers >> (self.bits * (self.n - 1))))

    def join(self, digits: Array) -> Array:
        """Turn sums of digits into sums of numbers. (n, n_limbs) -> (n,)."""
        return np.asarray(digits @ self.places)

    @property
    def places(self) -> Array:
        """Value of a digit at each position. (n_limbs,)."""
        return np.int64(1) << (self.bits * np.arange(self.n, dtype=np.int64))

    @property
    def _mask(self) -> int:
        return (1 << self.bits) - 1


@dataclass(frozen=True, eq=False)
class SumCodec:
    """Encodes contributions as vectors of integers, and decodes sums of such vectors."""

    sizes: Expected  # of an update
    bounds: Bounds  # of one user's numbers
    n_users: int  # in the sum at most
    ring: Ring  # where it is made

    @cached_property
    def rows(self) -> FixedPoint:
        """Fixed point of the rows of an update."""
        return FixedPoint(self.n_users, self.bounds.row, self.ring)

    @cached_property
    def totals(self) -> FixedPoint:
        """Fixed point of the totals, which travel as limbs; with noise, as rows do."""
        ring = self.ring if self._has_noise else RING64
        return FixedPoint(self.n_users, self.bounds.total, ring)

    @cached_property
    def limbs(self) -> Limbs:
        """Split of the totals into digits that fit the ring.

        Totals with noise are not split. The noise is accounted for in sums of numbers; a sum of
        their highest digits is no function of these, and shows more.
        """
        return (Limbs.whole if self._has_noise else Limbs.of)(self.n_users, self.ring)

    @property
    def _has_noise(self) -> bool:
        return self.sizes.update_shape.n_noisy_totals > 0

    @property
    def length(self) -> int:
        """Number of entries of the vector of an update."""
        return n_entries(self.sizes, self.limbs.n)

    @property
    def largest(self) -> int:
        """The largest absolute value that an entry of an honest sum can have, as an integer."""
        digit = int(self.totals.bound) if self.limbs.n == 1 else 1 << self.limbs.bits
        return self.n_users * max(int(self.rows.bound), digit)

    def cohort(self, left_out: Array | None) -> Cohort:
        """Bounds and rounding of each user's numbers, as an engine takes them."""
        return Cohort(
            left_out=left_out,
            bound=self.bounds.row,
            scale=float(self.rows.scale),
            total_bound=self.bounds.total,
            total_scale=float(self.totals.scale),
        )

    def vector(self, part: Contribution) -> Array:
        """Encode a contribution in fixed point as integers. (length,) int64."""
        n_items, width = self.sizes.n_items, self.sizes.update_shape.width
        vector = np.zeros(self.length, np.int64)
        dense = vector[: n_items * width].reshape(n_items, width)
        dense[part.items] = part.rows
        vector[dense.size :] = self.limbs.split(np.asarray(part.totals, np.int64)).ravel()
        return vector

    def sums(self, total: Array, n_raters: Array | None = None, error: float = 0.0) -> ItemSums:
        """Decode the sums in a vector of integers, known up to `error`.

        Args:
            total: (length,) int64
            n_raters: as they were counted before; None: they are what was summed. (n_items,)
            error: how far an entry may be from the true integer.
        """
        n_items, width = self.sizes.n_items, self.sizes.update_shape.width
        dense = total[: n_items * width].reshape(n_items, width)
        rows = self._decode(self.rows, dense, error)
        counts = np.rint(rows[:, 0]).astype(np.int64) if n_raters is None else n_raters
        totals = self._totals(total[dense.size :].reshape(-1, self.limbs.n), error)
        return ItemSums(rows.astype(np.float32), counts, totals)

    def _totals(self, digits: Array, error: float) -> Array:
        self._require_reached(digits, self.n_users << self.limbs.bits, error)
        slack = error * float(self.limbs.places.sum())
        return self._decode(self.totals, self.limbs.join(digits), slack)

    def _decode(self, part: FixedPoint, integers: Array, error: float) -> Array:
        reach = self.n_users * int(part.bound)
        self._require_reached(integers, reach, error)
        return np.asarray(np.clip(integers, -reach, reach) / part.scale)

    def _require_reached(self, integers: Array, reach: int, error: float) -> None:
        """Refuse sums that honest users cannot reach; the smallest int64 has no absolute value."""
        if ((integers > reach + error) | (integers < -reach - error)).any():
            raise DataError(
                f"the sum exceeds what {self.n_users} honest users can reach: some party did not "
                "bound its numbers"
            )


def codec_of(sizes: Expected, bounds: Bounds, n_users: int, ring: str) -> SumCodec:
    """Make the codec of a sum over so many users."""
    return SumCodec(sizes, bounds, n_users, ring_named(ring))


def as_flags(items: Array, n_items: int) -> Array:
    """Turn item codes into flags. (n_items,) bool."""
    flags: Array = np.zeros(n_items, bool)
    flags[np.asarray(items)] = True
    return flags
