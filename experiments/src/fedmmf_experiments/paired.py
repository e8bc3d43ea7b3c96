"""Differences of two models on the same splits: what they share of a split's luck cancels out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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
    from scipy.special import stdtrit  # here: who compares nothing does not wait for it

    spread = float(differences.std(ddof=1)) * np.sqrt(1.0 / n + test / (1.0 - test))
    reach = float(stdtrit(n - 1, 0.975)) * spread
    return PairedDifference(round(mean, 5), round(mean - reach, 5), round(mean + reach, 5))
