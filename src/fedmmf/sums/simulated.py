"""What a way to sum is in a simulation: who is summed with whom, and how."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.lists import UserLists
from fedmmf.secagg.codec import FixedPoint
from fedmmf.solvers.contract import ItemSums, Solver


@dataclass(frozen=True, eq=False)
class Group:
    """Users of a simulation who are summed together."""

    cohort: Cohort
    members: Array  # (n_users,) bool
    counts: Array  # (n_items,) raters as the sum shows them
    totals: FixedPoint | None = None  # None: floating point
    noise_std: float = 0.0  # of each entry of the sum; such a sum has no totals
    is_collected: bool = False  # its masked ratings are with the server; it holds nothing out

    def sums(self, rows: Array, totals: Array, noise: np.random.Generator) -> ItemSums:
        """What the server gets: rows of this cohort, totals of its members.

        Args:
            rows: summed over the cohort, as the engine gives them. (n_items, width)
            totals: of every user. (n_users, n_totals)
            noise: where simulated noise comes from.
        """
        if self.cohort.is_fixed:
            rows = (rows / self.cohort.scale).astype(np.float32)
        if self.noise_std:
            rows = rows + self.noise_std * noise.standard_normal(rows.shape, np.float32)
        mine = totals[self.members]
        if self.noise_std or self.is_collected:
            mine = np.zeros_like(mine)
        if self.totals is None:
            return ItemSums(rows, self.counts, mine.sum(axis=0))
        total = self.totals.quantize(mine).sum(axis=0) / self.totals.scale
        return ItemSums(rows, self.counts, total)


@dataclass(frozen=True, eq=False)
class Simulated:
    """The users of a simulation, for whom a way to sum says who is summed with whom."""

    lists: UserLists
    n_items: int
    span: float
    in_clear: Array  # (n_users,) bool
    settings: Any
    solver: Solver
