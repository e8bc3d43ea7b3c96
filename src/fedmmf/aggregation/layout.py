"""Updates as dense vectors over the whole catalogue, for sums that hide who rated what.

Masks of two parties cancel only where both upload (errata 31), so everybody uploads every
coordinate: the rows of all items, one count per item, and the totals; zeros where a party has
nothing to say.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.factorization.contract import ItemSums
from fedmmf.secagg import RING32, RING64, FixedPoint, Ring


@dataclass(frozen=True)
class Layout:
    """Where things are in the vector."""

    n_items: int
    width: int
    n_totals: int

    @property
    def length(self) -> int:
        """Entries of the vector."""
        return self.n_items * (self.width + 1) + self.n_totals

    def pack(self, items: Array, rows: Array, totals: Array) -> Array:
        """One party's update as a vector. (length,) float64."""
        dense = np.zeros((self.n_items, self.width + 1))
        dense[items, : self.width] = rows
        dense[items, self.width] = 1.0
        return np.concatenate((dense.ravel(), totals))

    def unpack(self, vector: Array) -> ItemSums:
        """The sums in a vector."""
        dense = vector[: self.n_items * (self.width + 1)].reshape(self.n_items, self.width + 1)
        counts = np.rint(dense[:, self.width]).astype(np.int64)
        rows = dense[:, : self.width].astype(np.float32)
        return ItemSums(rows, counts, vector[dense.size :])


def rare_items(sums: ItemSums, min_raters: int) -> tuple[int, ...]:
    """Items that somebody rated, but fewer than `min_raters` (errata 34); increasing."""
    is_rare = (sums.n_raters > 0) & (sums.n_raters < min_raters)
    return tuple(np.flatnonzero(is_rare).tolist())


@dataclass(frozen=True)
class Bounds:
    """How large an honest party's numbers are at most; public. What exceeds them is clipped."""

    row: float
    total: float

    @classmethod
    def of(cls, solver: str, span: float) -> "Bounds":
        """Bounds that training does not reach: gradients are a few spans, moments some squares."""
        if solver == "vb":
            return cls(row=256.0 * max(span, 1.0) ** 2, total=2.0**20 * max(span, 1.0) ** 2)
        return cls(row=4.0 * span, total=2.0**10 * max(span, 1.0) ** 2)

    def codec(self, layout: Layout, solver: str, n_parties: int) -> FixedPoint:
        """Fixed point for sums over `n_parties`."""
        clip = np.full(layout.length, self.total)
        dense = clip[: layout.n_items * (layout.width + 1)].reshape(layout.n_items, -1)
        dense[:] = self.row
        dense[:, layout.width] = 1.0
        return FixedPoint(n_parties, clip, ring_of(solver))


def ring_of(solver: str) -> Ring:
    """Where a solver's updates are summed; the moments of `vb` need the wider ring."""
    return RING64 if solver == "vb" else RING32
