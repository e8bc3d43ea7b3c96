"""Differences of two models on the same splits: what they share of a split's luck cancels out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class PairedDifference:
    """Mean of first minus second, split by split, and its 95 % interval.

    Random splits of one data set overlap, so their differences are not independent, and the
    interval is a little too short (Nadeau and Bengio 2003).
    """

    mean: float
    low: float | None  # None: a single split has no interval
    high: float | None

    def __str__(self) -> str:
        """Such as `+0.0012 (+0.0003 to +0.0021)`."""
        if self.low is None:
            return f"{self.mean:+.4f}"
        return f"{self.mean:+.4f} ({self.low:+.4f} to {self.high:+.4f})"


def paired_difference(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Student's t over the splits."""
    differences = np.subtract(first, second)
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return PairedDifference(round(mean, 5), None, None)
    reach = float(stats.t.ppf(0.975, n - 1) * differences.std(ddof=1) / np.sqrt(n))
    return PairedDifference(round(mean, 5), round(mean - reach, 5), round(mean + reach, 5))
