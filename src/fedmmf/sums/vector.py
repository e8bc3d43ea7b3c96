"""Updates as dense vectors of integers over the whole catalogue, for sums that hide who rated what.

Masks of two parties cancel only where both upload (errata 31), so everybody uploads every
coordinate: the rows of all items, and the totals; zeros where a party has nothing to say. Numbers
of every user are bounded and rounded before they are added, so that a party with many users adds
exactly what they would have added one by one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import DataError
from fedmmf.secagg.codec import FixedPoint
from fedmmf.secagg.ring import Ring, ring_named
from fedmmf.solvers.contract import Bounds, ItemSums
from fedmmf.sums.contract import Contribution
from fedmmf.wire.messages import Expected


def n_entries(sizes: Expected) -> int:
    """Entries of a vector."""
    return sizes.catalogue.n_items * sizes.width + sizes.n_totals


@dataclass(frozen=True, eq=False)
class SumCodec:
    """Contributions to vectors of integers, and a sum of these back to numbers.

    Args:
        sizes: of an update.
        bounds: of one user's numbers.
        n_users: in the sum at most.
        ring: where it is made.
    """

    sizes: Expected
    bounds: Bounds
    n_users: int
    ring: Ring

    @cached_property
    def rows(self) -> FixedPoint:
        """Fixed point of the rows."""
        return FixedPoint(self.n_users, self.bounds.row, self.ring)

    @cached_property
    def totals(self) -> FixedPoint:
        """Fixed point of the totals."""
        return FixedPoint(self.n_users, self.bounds.total, self.ring)

    @property
    def length(self) -> int:
        """Entries of a vector."""
        return n_entries(self.sizes)

    @property
    def largest(self) -> int:
        """The largest absolute value that an entry of an honest sum can have, as an integer."""
        return self.n_users * max(int(part.bound) for part in (self.rows, self.totals))

    def cohort(self, left_out: Array | None) -> Cohort:
        """How an engine bounds and rounds rows."""
        return Cohort(left_out=left_out, bound=self.bounds.row, scale=float(self.rows.scale))

    def vector(self, part: Contribution) -> Array:
        """A contribution in fixed point as integers. (length,) int64."""
        n_items, width = self.sizes.catalogue.n_items, self.sizes.width
        vector = np.zeros(self.length, np.int64)
        dense = vector[: n_items * width].reshape(n_items, width)
        dense[part.items] = part.rows
        vector[dense.size :] = part.totals
        return vector

    def sums(self, total: Array, n_raters: Array | None = None, error: float = 0.0) -> ItemSums:
        """The sums in a vector of integers, known up to `error`.

        Args:
            total: (length,) int64
            n_raters: as they were counted before; None: they are what was summed. (n_items,)
            error: how far an entry may be from the true integer.
        """
        n_items, width = self.sizes.catalogue.n_items, self.sizes.width
        dense = total[: n_items * width].reshape(n_items, width)
        rows = self._decode(self.rows, dense, error)
        counts = np.rint(rows[:, 0]).astype(np.int64) if n_raters is None else n_raters
        totals = self._decode(self.totals, total[dense.size :], error)
        return ItemSums(rows.astype(np.float32), counts, totals)

    def _decode(self, part: FixedPoint, integers: Array, error: float) -> Array:
        reach = self.n_users * int(part.bound)
        if ((integers > reach + error) | (integers < -reach - error)).any():
            raise DataError(
                f"the sum exceeds what {self.n_users} honest users can reach: some party did not "
                "bound its numbers"
            )
        return np.asarray(np.clip(integers, -reach, reach) / part.scale)


def codec_of(sizes: Expected, bounds: Bounds, n_users: int, ring: str) -> SumCodec:
    """The codec of a sum over so many users."""
    return SumCodec(sizes, bounds, n_users, ring_named(ring))


def as_flags(items: Array, n_items: int) -> Array | None:
    """Item codes as flags; None where there are none. (n_items,) bool."""
    if len(items) == 0:
        return None
    flags = np.zeros(n_items, bool)
    flags[np.asarray(items)] = True
    return flags
