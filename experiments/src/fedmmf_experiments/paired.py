"""Paired differences: what two methods share of their luck cancels out.

Of two models on the same splits, and of an attack beside public knowledge, user by user.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array

RESAMPLES = 2000


@dataclass(frozen=True)
class PairedDifference:
    """Mean of first minus second, split by split, and its 95 % interval."""

    mean: float
    low: float | None  # None: a single split has no interval
    high: float | None

    def __str__(self) -> str:
        """Such as `+0.0012 (+0.0003 to +0.0021)`."""
        if self.low is None:
            return f"{self.mean:+.4f}"
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired_difference(
    first: Sequence[float], second: Sequence[float], test: float
) -> PairedDifference:
    """Student's t over random splits of one data set, with what they share taken into account.

    Their training parts overlap, so that their differences are not independent: the variance of
    the mean is (1/n + test/train) s^2 instead of s^2/n (Nadeau and Bengio 2003, Inference for the
    generalization error, Eq. 11).

    Args:
        first: a figure of each split.
        second: likewise, of what it is compared with.
        test: the share of the ratings that each split tests on; 0: splits are independent.
    """
    differences = np.subtract(first, second)
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return PairedDifference(round(mean, 5), None, None)
    reach = _reach(differences, 1.0 / n + test / (1.0 - test))
    return PairedDifference(round(mean, 5), round(mean - reach, 5), round(mean + reach, 5))


@dataclass(frozen=True)
class Gain:
    """Mean of attack minus public knowledge, user by user, and its 95 % interval."""

    mean: float  # over all users
    low: float  # end of the interval, and so high
    high: float
    # what it would be on other draws of: cohorts, whose users share their luck, or, where there is
    # one cohort alone, users
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
    mean, reach = float(means.mean()), _reach(means, 1.0 / len(means))
    return Gain(mean, mean - reach, mean + reach, "cohorts")


def _reach(values: Array, share: float) -> float:
    """Half of a 95 % interval by Student's t, where the mean has that share of the variance."""
    from scipy.special import stdtrit  # here: who compares nothing does not wait for it

    return float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) * np.sqrt(share))


def _over_users(values: Array, seed: int) -> Gain:
    draws = rng.stream(seed, "gains").integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return Gain(float(values.mean()), float(low), float(high), "users")
