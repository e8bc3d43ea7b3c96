"""Privacy budget that a run has spent, for people."""

from typing import Any

from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import guarantee_of

NEIGHBOURS = {
    "local": "one user's updates, of all rounds, replaced by any others",
    "distributed": "one user's updates, of all rounds, present or all zero",
}
ADDED_BY = {
    "local": "each party, enough for itself",
    "distributed": "all parties together, under secure sums",
}
NOT_COVERED = (
    "J, RMSE, MAE and every other error or figure of a list are computed on raw ratings and are "
    "not inside epsilon; nor is a choice of settings by them."
)


def spent(settings: Any, rounds_used: int) -> dict[str, Any]:
    """Epsilon of the rounds that were used and of those that the noise allows.

    Args:
        settings: of the run.
        rounds_used: of all runs of an ensemble together.
    """
    guarantee, delta = guarantee_of(settings), settings.dp_delta
    return {
        "epsilon": accounting.epsilon(guarantee.multiplier, rounds_used, delta),
        "delta": delta,
        "rounds_used": rounds_used,
        "rounds_paid": guarantee.rounds,
        "epsilon_paid": accounting.epsilon(guarantee.multiplier, guarantee.rounds, delta),
        "noise_multiplier": guarantee.multiplier,
        "clip": guarantee.clip,
        "noise": guarantee.noise,
        "added_by": ADDED_BY[guarantee.noise],
        "neighbours": NEIGHBOURS[guarantee.noise],
        "not_covered": NOT_COVERED,
    }
