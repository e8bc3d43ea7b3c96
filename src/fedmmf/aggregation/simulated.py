"""An aggregation scheme in a simulation: who is summed with whom, and what a round costs.

The cost of a round has one type for every scheme, in simulations and in real runs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort
from fedmmf.solvers.contract import ItemSums, Solver, UpdateShape
from fedmmf.wire.messages import Expected


@dataclass(frozen=True, eq=False)
class CostInput:
    """Inputs that decide the cost of a round."""

    settings: Any
    solver: Solver
    update_shape: UpdateShape
    n_items: int  # that are summed
    span: float  # of the scale
    round_bytes: int  # of the broadcast, as it is encoded
    n_users: int
    ratings_per_user: float
    n_clear: int = 0  # users who share in the clear

    @property
    def sizes(self) -> Expected:
        """Sizes of one user's update: rows of all items, and totals."""
        n_totals = HELD_OUT_TOTALS + self.update_shape.n_totals
        return Expected(self.n_items, self.n_items, self.update_shape, n_totals)


@dataclass(frozen=True)
class Cost:
    """Cost of one round for one user: bytes as encoded, and CPU seconds beyond plain addition.

    The server's seconds are for everybody together.
    """

    up_bytes: float
    down_bytes: float
    party_s: float = 0.0
    server_s: float = 0.0
    how: str = "sums in the clear need no protocol"


@dataclass(frozen=True, eq=False)
class Group:
    """Users of a simulation who are summed together."""

    cohort: Cohort
    members: Array  # (n_users,) bool
    counts: Array  # (n_items,) raters as the sum shows them
    # of each entry of the sum; such a sum has totals only where these are clipped with the rows
    noise_std: float = 0.0
    is_collected: bool = False  # its masked ratings are with the server; it holds nothing out
    is_clear: bool = False  # updates are seen one by one, and have no totals of the solver

    @property
    def has_totals(self) -> bool:
        """Whether the solver's totals of these users are summed."""
        return not (self.noise_std or self.is_collected or self.is_clear)

    def sums(
        self, rows: Array, totals: Array, held_out: Array, noise: np.random.Generator
    ) -> ItemSums:
        """Return the sums that the server would get.

        Args:
            rows: summed over the cohort, as the engine gives them. (n_items, width)
            totals: likewise. (n_totals,)
            held_out: totals of every user's held-out ratings. (n_users, 2)
            noise: where simulated noise comes from.
        """
        cohort = self.cohort
        if cohort.is_fixed:
            rows = (rows / cohort.scale).astype(np.float32)
        if self.noise_std:
            rows = rows + self.noise_std * noise.standard_normal(rows.shape, np.float32)
        tested = cohort.totals_in_steps(held_out[self.members]).sum(axis=0)
        both = np.concatenate((tested, totals)) / (cohort.total_scale or 1.0)
        if self.noise_std or self.is_collected:
            both = self._noisy_totals(both, len(tested), noise)
        if self.is_clear:
            both[len(tested) :] = 0.0
        return ItemSums(rows, self.counts, both, self.noise_std)

    def _noisy_totals(self, both: Array, n_tested: int, noise: np.random.Generator) -> Array:
        """Totals with noise where they may leave at all, else zeros; none of held-out ratings."""
        found = np.zeros_like(both)
        if self.cohort.clips_totals:
            draws = noise.standard_normal(len(both) - n_tested)
            found[n_tested:] = both[n_tested:] + self.noise_std * draws
        return found


@dataclass(frozen=True, eq=False)
class Simulated:
    """The users of a simulation, whom an aggregation scheme puts into groups."""

    lists: RatedItems  # of the items that are summed, by their places in the layout
    n_items: int  # that are summed
    span: float
    in_clear: Array  # (n_users,) bool
    settings: Any
    solver: Solver
    update_shape: UpdateShape
