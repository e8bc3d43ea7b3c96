"""Items with too few raters: the row of a single rater is that rater's update.

An item is summed if a survey has found enough raters for it. Some of them may be missing in a
round, so that a few more are asked for than have to stay; in batches, where one drop-out takes
others with it, more of them. Raters drop out independently of each other in the formula; where they
do not, docs/limitations.md says what that means.
"""

from functools import cache
from math import exp, lgamma, log
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import lost_share
from fedmmf.aggregation.server_side import ServerSide
from fedmmf.arrays import Array
from fedmmf.solvers.contract import ItemSums
from fedmmf.wire import Round

MAX_OFTEN = 0.01  # largest share, over items and rounds, in which too few raters may stay


def few_stay(n_raters: int, min_raters: int, batch: int = 1) -> float:
    """Probability that at least one of an item's raters stays in a round, but too few of them."""
    stays, leaves = log(1 - lost_share(batch)), log(lost_share(batch))
    chances = [
        exp(_log_comb(n_raters, stay) + stay * stays + (n_raters - stay) * leaves)
        for stay in range(1, min(min_raters, n_raters + 1))
    ]
    return sum(chances)


def _log_comb(n: int, k: int) -> float:
    """Logarithm of a binomial coefficient that may be too large for a float."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


@cache
def raters_needed(min_raters: int, batch: int = 1) -> int:
    """Number of raters an item needs so that `min_raters` of them nearly always stay."""
    needed = min_raters
    while few_stay(needed, min_raters, batch) > MAX_OFTEN:
        needed += 1
    return needed


def are_rare(n_raters: Array, min_raters: int, batch: int = 1) -> Array:
    """Flag items to leave out, also those without any known rater yet. (n_items,) bool."""
    return np.asarray(n_raters < raters_needed(min_raters, batch))


def summed_items(n_raters: Array, settings: Any) -> Array:
    """Codes of the items that are not rare. (n,) int32."""
    is_rare = are_rare(n_raters, settings.min_raters, settings.batch)
    return np.flatnonzero(~is_rare).astype(np.int32)


class HidingServer(ServerSide):
    """Counts raters once, in a survey; later rounds leave out items with too few of them.

    Counts of every round would reveal who took part in it, and what that party rated. Counts of
    rare items reveal that somebody rated them (errata 34); their ratings stay private.
    """

    def summed_items(self, n_raters: Array) -> Array:
        """Codes of the items that enough users have rated. (n,) int32."""
        return summed_items(n_raters, self.context.settings)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round, after the survey if there was none yet."""
        if self.layout is None:
            self.prepare()
        return super().sums(round_)
