"""The cost of a round, by the same arithmetic for every aggregation scheme."""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.simulated import Cost, CostInput
from fedmmf.arrays import Array
from fedmmf.reports.results import TradeoffPoint
from fedmmf.secagg import PolicyError
from fedmmf.settings import Settings
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, UpdateShape
from fedmmf.wire import Round


@dataclass(frozen=True)
class RoundSizes:
    """Sizes that decide how many bytes a round sends."""

    update_shape: UpdateShape
    n_items: int  # that are summed
    span: float  # of the scale

    @property
    def published_bytes(self) -> int:
        """Bytes of a round's broadcast, as it is encoded."""
        update_shape = self.update_shape
        one = Broadcast(
            update_shape.rank,
            np.zeros(update_shape.n_parameters),
            np.zeros((1, update_shape.broadcast_width)),
        )
        row = 4 * update_shape.broadcast_width
        return len(Round.of(one, 1, 0, is_last=False).encode()) + (self.n_items - 1) * row


def cost_input(
    settings: Settings, sizes: RoundSizes, n_users: int, ratings_per_user: float, n_clear: int
) -> CostInput:
    """Return the sizes that decide the cost of a run's rounds."""
    return CostInput(
        settings=settings,
        solver=SOLVERS[settings.solver],
        update_shape=sizes.update_shape,
        n_items=sizes.n_items,
        span=sizes.span,
        round_bytes=sizes.published_bytes,
        n_users=n_users,
        ratings_per_user=ratings_per_user,
        n_clear=n_clear,
    )


def expected_cost(given: CostInput) -> Cost:
    """Compute the cost of a round with the aggregation scheme of the settings."""
    return AGGREGATIONS[given.settings.scheme_name].cost(given)


def tradeoff(given: CostInput, j: Array, n: int = 41) -> tuple[TradeoffPoint, ...]:
    """Share of users in the clear, and bytes, by threshold_j: at n values and at the run's own."""
    found, highest = [], float(np.nanmax(j))
    evenly = np.linspace(0.0, highest, n)[:-1].round(6).tolist()
    # The last is not rounded, or somebody's J would be above it.
    for threshold in sorted({*evenly, highest, float(given.settings.threshold_j)}):
        n_clear = int(np.count_nonzero(j <= threshold))
        try:
            up = AGGREGATIONS["adaptive"].cost(replace(given, n_clear=n_clear)).up_bytes
        except PolicyError:  # the users in sums are too few for such batches
            continue
        found.append(
            TradeoffPoint(
                threshold_j=threshold,
                share_in_clear=n_clear / given.n_users,
                up_bytes_per_user_round=round(up, 1),
            )
        )
    return tuple(found)
