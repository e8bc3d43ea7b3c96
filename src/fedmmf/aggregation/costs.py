"""Cost of a round: one type for every aggregation scheme, in simulations and in real runs."""

from dataclasses import dataclass
from typing import Any

from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.solvers.contract import Solver, UpdateShape
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
