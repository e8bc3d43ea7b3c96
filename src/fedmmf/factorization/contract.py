"""What a solver is: a half that lives in each party and a half that lives on the server.

Between them go three arrays. Down: `parameters`, a few public numbers, and `item_rows` (n_items,
width), whose first k columns are the item factors. Up: `rows`, one per rated item, which the server
only needs as a sum over raters, and `totals`, which it only needs as a sum over parties. Whatever
can add vectors can carry them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.factorization.sides import Cohort


@dataclass(frozen=True, eq=False)
class ItemSums:
    """What a round's aggregation gives the server."""

    rows: Array  # (n_items, width) summed over each item's raters
    n_raters: Array  # (n_items,)
    totals: Array  # (n_totals,) summed over parties


@dataclass(frozen=True, eq=False)
class Public:
    """What the server publishes in a round."""

    factors: int  # k
    parameters: Array  # (n_parameters,) float64
    item_rows: Array  # (n_items, width) float32

    @property
    def item_factors(self) -> Array:
        """q_i, or their means. (n_items, k)."""
        return self.item_rows[:, : self.factors]

    def take(self, items: Array) -> Self:
        """The same for some items only."""
        return type(self)(self.factors, self.parameters, self.item_rows[items])


class LocalSolver(Protocol):
    """The party's half; holds p_u."""

    user_factors: Array  # (k,)

    def update(self, masked_ratings: Array, public: Public, t: int) -> tuple[Array, Array]:
        """Take part in round t with the rows of the rated items; return (rows, totals)."""

    def settle(self, masked_ratings: Array, public: Public) -> None:
        """Find p_u for finished item factors, without a round."""

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


class ItemSolver(Protocol):
    """The server's half; holds the items."""

    def public(self) -> Public:
        """What to publish for the coming round."""

    def advance(self, sums: ItemSums, t: int) -> None:
        """Finish round t."""

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


class CrowdSolver(Protocol):
    """The party's half for all parties at once."""

    user_factors: Array  # (n_users, k)

    def update(
        self, public: Public, t: int, cohorts: Sequence[Cohort]
    ) -> tuple[list[Array], Array]:
        """Take part in round t.

        Returns:
            For each cohort the rows, summed over raters, (n_items, width); and the totals of every
            party, (n_users, n_totals).
        """

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


def added(parts: Sequence[ItemSums]) -> ItemSums:
    """Sums over several groups of parties together."""
    return ItemSums(
        np.sum([part.rows for part in parts], axis=0),
        np.sum([part.n_raters for part in parts], axis=0),
        np.sum([part.totals for part in parts], axis=0),
    )


def unrated(sums: ItemSums) -> Array:
    """Items that nobody has rated. (n_items,) bool."""
    return np.asarray(sums.n_raters == 0)
