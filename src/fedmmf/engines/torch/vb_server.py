"""The server's half of `vb` with its arrays on a device, at places that do not change."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array, space
from fedmmf.solvers.contract import ItemSums
from fedmmf.solvers.vb.reading import MAX_PRECISION, MIN_PRECISION, Spread
from fedmmf.solvers.vb.server import VbServer
from fedmmf.solvers.vb.start import Items

FEW_FACTORS, FEW_COLUMNS = 32, 64  # largest sizes of matrices that a GPU inverts at once


def is_small(half: VbServer) -> bool:
    """Whether all matrices of a server are small and nothing has to be sorted."""
    shape, state = half.update_shape, half.state()
    n_known = 1 + half.context.regressors.shape[1] + state["raters"].shape[1]
    n_columns = max(n_known, len(state["user_weights"]))
    return shape.rank <= FEW_FACTORS and n_columns <= FEW_COLUMNS and not shape.n_levels


class VbServerInPlace(VbServer):
    """A server whose rounds write to the arrays that it began with, so that they can be recorded.

    Args:
        half: the server to continue; it is not changed.
        placed: puts an array on the device.
        linalg: `inv`, `solve`, `cholesky` and `eigh` for what is there.
    """

    def __init__(self, half: VbServer, placed: Callable[[Array], Any], linalg: Any) -> None:
        super().__init__(half.update_shape, half.context, tuple(half.unrated), placed, linalg)
        self.membership_rounds = half.membership_rounds
        self.restore(half.state())

    def advance(self, sums: ItemSums, t: int) -> None:
        """Update every q_i from the parties' sums, with every array in its place."""
        before, spread = self._now, self._spread
        super().advance(sums, t)
        after = (self._now, self._spread)
        self._now, self._spread = before, spread
        self._put(*after)

    def count_round(self) -> None:
        """Count a round whose equations were replayed from a recording."""
        self._now = replace(self._now, n_done=self._now.n_done + 1)

    def take(self, other: "VbServerInPlace") -> None:
        """Copy another server's values into the arrays of this one."""
        self._put(other._now, other._spread)

    def _put(self, now: Items, spread: Spread) -> None:
        for part in fields(Items):
            if part.name != "n_done":
                getattr(self._now, part.name)[...] = getattr(now, part.name)
        self._spread.basis[...], self._spread.spectrum[...] = spread.basis, spread.spectrum
        self._now = replace(self._now, n_done=now.n_done)

    def is_like(self, other: VbServer) -> bool:
        """Whether another server differs only in its current values."""
        mine, theirs = self.context, other.context
        same = (self.update_shape, mine.n_items, mine.span, mine.level) == (
            other.update_shape,
            theirs.n_items,
            theirs.span,
            theirs.level,
        )
        arrays = ((mine.regressors, theirs.regressors), (mine.design, theirs.design))
        return same and all(
            np.array_equal(a, b) for a, b in (*arrays, (self.unrated, other.unrated))
        )

    def is_usual(self) -> Array:
        """Whether variances and precisions are in the range that parties accept. ()."""
        now, xp = self._now, space(self._now.mean)
        parts = (now.user_precision, now.item_precision, now.joint_precision)
        numbers = xp.hstack((now.tau.reshape(1), *parts))
        usual: Array = ((numbers > MIN_PRECISION) & (numbers < MAX_PRECISION)).all()
        return usual
