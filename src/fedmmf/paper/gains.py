"""The paired gain of an attack over public knowledge, with an interval that knows its clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array

RESAMPLES = 2000
LEAST_CLUSTERS = 5  # cohorts that an interval over cohorts needs; with fewer it is over users


@dataclass(frozen=True)
class Gain:
    """Mean of attack minus public knowledge, user by user, and its 95 % interval.

    Attributes:
        mean: over all users.
        low: end of the interval, and so high.
        over: what was resampled: whole cohorts, whose users share their luck, or users.
    """

    mean: float
    low: float
    high: float
    over: str

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired_gain(differences: Sequence[Array], seed: int = 0) -> Gain:
    """Bootstrap over cohorts where there are enough of them, else over users.

    Args:
        differences: of each cohort, each user's attack minus baseline; NaN where there is neither.
        seed: of the resampling.
    """
    kept = [values[~np.isnan(values)] for values in differences]
    by_cohort = len(kept) >= LEAST_CLUSTERS
    everybody = np.concatenate(kept)
    units = (
        kept if by_cohort else [everybody[number : number + 1] for number in range(len(everybody))]
    )
    sums, sizes = np.array([unit.sum() for unit in units]), np.array([len(unit) for unit in units])
    draws = rng.stream(seed, "gains").integers(len(units), size=(RESAMPLES, len(units)))
    means = sums[draws].sum(axis=1) / np.maximum(sizes[draws].sum(axis=1), 1)  # (RESAMPLES,)
    low, high = np.quantile(means, (0.025, 0.975))
    mean = float(sums.sum() / max(sizes.sum(), 1))
    return Gain(mean, float(low), float(high), "cohorts" if by_cohort else "users")
