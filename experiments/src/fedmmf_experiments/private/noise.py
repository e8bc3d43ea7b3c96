"""Central Gaussian noise, accounted for exactly: what the peers get.

Our own rows pay for integers and for parties that drop out (`fedmmf.aggregation.dp`): their noise
is about a tenth larger at the same epsilon. Peers get the smallest noise that is known to suffice,
added once by a curator who is trusted.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError


@dataclass(frozen=True)
class Privacy:
    """The guarantee of a whole training for one user; an infinite epsilon means no noise."""

    epsilon: float
    delta: float

    def budget(self) -> "Budget":
        """Return the whole budget, of which nothing is spent."""
        return Budget(self)


@lru_cache(maxsize=64)
def multiplier(epsilon: float, delta: float) -> float:
    """Noise over sensitivity at which one Gaussian release costs epsilon (0 if infinite).

    Balle and Wang 2018 (Improving the Gaussian mechanism for differential privacy, theorem 8).
    """
    if math.isinf(epsilon):
        return 0.0

    def excess(log_multiplier: float) -> float:
        m = math.exp(log_multiplier)
        second = math.exp(epsilon + special.log_ndtr(-0.5 / m - epsilon * m))
        return float(special.ndtr(0.5 / m - epsilon * m)) - second - delta

    return math.exp(float(optimize.brentq(excess, math.log(1e-3), math.log(1e6), xtol=1e-12)))


class Budget:
    """A budget that releases share: squared sensitivities over variances add up.

    Gaussian releases compose exactly (Dong, Roth and Su 2022, Gaussian differential privacy,
    corollary 3.3), so that shares of the whole are all there is to count.
    """

    def __init__(self, privacy: Privacy) -> None:
        self._multiplier = multiplier(privacy.epsilon, privacy.delta)
        self.left = 1.0

    def std(self, share: float, sensitivity: float) -> float:
        """Spend a share; return the standard deviation of the noise in each entry of a release.

        Args:
            share: of the whole budget.
            sensitivity: largest length of what one user adds to the release.

        Raises:
            SettingsError: so much is not left.
        """
        if not 0.0 < share <= self.left + 1e-9:
            raise SettingsError(
                f"a release needs a share in (0, {self.left:.6g}], which is what is left of the "
                f"budget; got {share:.6g}. Give smaller shares to the releases before it"
            )
        self.left -= share
        return sensitivity * self._multiplier / math.sqrt(share)


def add_noise(values: Array, std: float, stream: np.random.Generator) -> Array:
    """Add independent Gaussian noise to every entry; the shape stays."""
    return np.asarray(values + std * stream.standard_normal(values.shape))
