"""The paired gain of an attack over public knowledge, with an interval that knows its clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from fedmmf import rng
from fedmmf.arrays import Array

RESAMPLES = 2000


@dataclass(frozen=True)
class Gain:
    """Mean of attack minus public knowledge, user by user, and its 95 % interval.

    Attributes:
        mean: over all users.
        low: end of the interval, and so high.
        over: what it would be on other draws of: cohorts, whose users share their luck, or, where
            there is one cohort alone, users.
    """

    mean: float
    low: float
    high: float
    over: str

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired_gain(differences: Sequence[Array], seed: int = 0) -> Gain:
    """By Student's t over the means of cohorts; where there is but one, by bootstrap over users.

    Args:
        differences: of each cohort, each user's attack minus baseline; NaN where there is neither.
        seed: of the resampling.
    """
    kept = [values[~np.isnan(values)] for values in differences]
    kept = [values for values in kept if len(values)]
    if len(kept) > 1:
        return _over_cohorts(np.array([values.mean() for values in kept]))
    return _over_users(np.concatenate(kept), seed)


def _over_cohorts(means: Array) -> Gain:
    mean, spread = float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))
    reach = float(stats.t.ppf(0.975, len(means) - 1)) * spread
    return Gain(mean, mean - reach, mean + reach, "cohorts")


def _over_users(values: Array, seed: int) -> Gain:
    draws = rng.stream(seed, "gains").integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return Gain(float(values.mean()), float(low), float(high), "users")
