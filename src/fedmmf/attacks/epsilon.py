"""Lower bounds of epsilon from repeated runs, by a test that tells two worlds apart.

A test's score is drawn in many runs with somebody's data and in as many without. Epsilon and delta
bound how well any test can do. So a test that does well proves that epsilon is at least so much,
but for the chance of the draws, for which there is a confidence limit.

- *By means*: scores are taken for Gaussian, as sums of Gaussian noise are. The distance mu of the
  two means, in deviations, gives epsilon by the exact curve of the Gaussian mechanism (Balle and
  Wang 2018, theorem 8).
- *By counting*: nothing is assumed of scores. A threshold chosen on one half of the runs is tried
  on the other, and the errors of both kinds have Clopper and Pearson's limits (as Jagielski, Ullman
  and Oprea 2020). Few runs cannot prove a large epsilon in this way.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fedmmf.arrays import Array

LEVEL = 0.95  # of each one-sided limit that is shown
# Of each of two limits that decide: both together are wrong in at most one honest audit of a
# million, where two of 95 % would call up to one in ten broken.
SURE = 1 - 5e-7
MAX_EPSILON = 1e3
_NORMAL = NormalDist()


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a test in runs with somebody's data, and in as many without."""

    present: Array  # (n,)
    absent: Array  # (n,)

    def distance(self) -> float:
        """Distance of the means, in deviations."""
        return self._gap / self._deviation

    @property
    def _gap(self) -> float:
        return float(self.present.mean() - self.absent.mean())

    @property
    def _deviation(self) -> float:
        """Standard deviation in either world: adding a constant does not change it."""
        return math.sqrt((self.present.var(ddof=1) + self.absent.var(ddof=1)) / 2)

    def least_distance(self, level: float = LEVEL) -> float:
        """Lower limit of the distance: half of the error for the means, half for the deviation.

        The deviation's upper limit is that of chi-squared with 2 n - 2 degrees of freedom, by the
        approximation of Wilson and Hilferty 1931.
        """
        n, z = len(self.present), _NORMAL.inv_cdf(1 - (1 - level) / 2)
        freedom = 2 * n - 2
        part = 2 / (9 * freedom)
        least = freedom * (1 - part - z * math.sqrt(part)) ** 3  # quantile of chi-squared
        deviation = self._deviation * math.sqrt(freedom / least)
        gap = self._gap - z * deviation * math.sqrt(2 / n)
        return max(gap / deviation, 0.0)

    def surely(self, delta: float) -> float:
        """Lower bound of epsilon in either way, wrong in at most one case of a million."""
        by_means = epsilon_of(self.least_distance(SURE), delta)
        return max(by_means, self.by_counting(delta, SURE))

    def by_counting(self, delta: float, level: float = LEVEL) -> float:
        """Lower bound of epsilon by counting errors of a threshold; 0 where nothing is proved."""
        half = len(self.present) // 2
        each = (1 - level) / 2
        threshold = _best_threshold(self.present[:half], self.absent[:half], delta, each)
        found = int((self.present[half:] > threshold).sum())
        false = int((self.absent[half:] > threshold).sum())
        n = len(self.present) - half
        right, wrong = lower_limit(found, n, each), 1 - lower_limit(n - false, n, each)
        return max(math.log((right - delta) / wrong), 0.0) if right > delta else 0.0


def _best_threshold(present: Array, absent: Array, delta: float, error: float) -> float:
    """Threshold whose limits, each with such an error, prove most on these runs."""
    n, tried = len(present), np.quantile(np.concatenate((present, absent)), np.arange(1, 100) / 100)

    def proved(threshold: float) -> float:
        right = lower_limit(int((present > threshold).sum()), n, error)
        wrong = 1 - lower_limit(n - int((absent > threshold).sum()), n, error)
        return math.log(right / wrong) if right > delta else -math.inf

    return float(max(tried.tolist(), key=proved))


def lower_limit(found: int, n: int, error: float) -> float:
    """Clopper and Pearson's lower limit of a probability, from `found` of `n` draws."""
    if found == 0:
        return 0.0
    logs = np.array(
        [
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            for k in range(found, n + 1)
        ]
    )
    counts = np.arange(found, n + 1)
    low, high = 0.0, found / n
    for _ in range(60):  # where so many or more are as improbable as `error`
        middle = (low + high) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = logs + counts * math.log(max(middle, 1e-300))
            terms = terms + (n - counts) * math.log1p(-middle)
        low, high = (middle, high) if np.exp(terms).sum() < error else (low, middle)
    return low


def epsilon_of(distance: float, delta: float) -> float:
    """Epsilon at delta of two Gaussians that are so many deviations apart.

    Solves delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle and Wang 2018).
    """
    if distance <= 0:
        return 0.0

    def delta_at(epsilon: float) -> float:
        tail = epsilon + _log_cdf(-distance / 2 - epsilon / distance)
        return _NORMAL.cdf(distance / 2 - epsilon / distance) - math.exp(min(tail, 0.0))

    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, MAX_EPSILON
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return low


def _log_cdf(x: float) -> float:
    """Log of the normal distribution function, also far below the mean."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x) - math.log(2 * math.pi) / 2 + math.log1p(-1 / (x * x))
