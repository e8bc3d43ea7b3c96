"""Items with too few raters: a row of one rater is that rater's, whoever adds zeros to it.

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
from fedmmf.arrays import Array

MAX_OFTEN = 0.01  # how often, by item and round, fewer raters may stay than have to


def few_stay(n_raters: int, min_raters: int, batch: int = 1) -> float:
    """Probability that at least one of an item's raters stays in a round, but too few of them."""
    stays, leaves = log(1 - lost_share(batch)), log(lost_share(batch))
    chances = [
        exp(_log_comb(n_raters, stay) + stay * stays + (n_raters - stay) * leaves)
        for stay in range(1, min(min_raters, n_raters + 1))
    ]
    return sum(chances)


def _log_comb(n: int, k: int) -> float:
    """Of a number of choices that may be too large for a float."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


@cache
def raters_needed(min_raters: int, batch: int = 1) -> int:
    """How many raters an item needs for `min_raters` of them to stay, nearly always."""
    needed = min_raters
    while few_stay(needed, min_raters, batch) > MAX_OFTEN:
        needed += 1
    return needed


def are_rare(n_raters: Array, min_raters: int, batch: int = 1) -> Array:
    """Items that are left out, those without any known rater too: one may yet come. (n_items,)."""
    return np.asarray(n_raters < raters_needed(min_raters, batch))


def summed_items(n_raters: Array, settings: Any) -> Array:
    """The others, by their codes. (n,) int32."""
    is_rare = are_rare(n_raters, settings.min_raters, settings.batch)
    return np.flatnonzero(~is_rare).astype(np.int32)
