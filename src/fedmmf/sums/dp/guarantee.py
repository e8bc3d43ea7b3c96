"""What a party demands of every update that leaves it: bounded length, and Gaussian noise.

DP-FedAvg (McMahan et al. 2018) for the rows of one round: each user's rows are shrunk together to
length `clip` at most, and the party adds noise to every entry of the whole catalogue.

- `local`: each party adds enough noise for itself; nobody has to be trusted. One update is compared
  with any other (sensitivity 2 clip).
- `distributed`: each party adds its part, and secure aggregation shows the sum alone (Dwork et al.
  2006, Our data, ourselves). The sum with a user is compared with the sum without it (sensitivity
  clip). Parties that drop out take their noise with them and corrupt ones may add none, so each
  adds a little more, and a round with too few survivors gives no sum at all.

The noise is drawn from AES-CTR with 53-bit uniforms and, in secure sums, rounded with the update.
Accounting takes it for an exact Gaussian; what rounding and floating point add is not in epsilon.
"""

import math
import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.secagg import RING64
from fedmmf.secagg.prg import SEED_BYTES, expand
from fedmmf.secagg.shamir import Entropy
from fedmmf.solvers.contract import Bounds

COUNTED_ON = 0.9  # share of the parties whose noise makes a sum private
SURVIVING = 0.95  # share that must stay: one in twenty of all may then still be corrupt
_TAIL = 12.0  # standard deviations of noise that fixed point has room for


@dataclass(frozen=True)
class Guarantee:
    """What a party demands of every update that leaves it.

    Args:
        clip: largest length of a user's update, all its rows taken together.
        multiplier: standard deviation of the noise over the sensitivity.
        noise: who adds it.
        rounds: how many updates the multiplier pays for.
        entropy: where the noise comes from; anything but the operating system is for tests.
    """

    clip: float
    multiplier: float
    noise: Literal["local", "distributed"]
    rounds: int
    entropy: Entropy = os.urandom

    def noise_std(self, n_parties: int) -> float:
        """Standard deviation of the noise that one party of `n_parties` adds to each entry."""
        if self.noise == "local":
            return 2.0 * self.clip * self.multiplier
        return self.clip * self.multiplier / math.sqrt(counted_on(n_parties))

    def add(self, rows: Array, n_parties: int) -> Array:
        """Rows over the whole catalogue with the noise of one party out of so many."""
        noise = gaussian(rows.size, self.entropy) * self.noise_std(n_parties)
        return (rows + noise.reshape(rows.shape)).astype(np.float32)

    def check_sum(self, n_parties: int, minimum: int) -> None:
        """Raise `WireError` where a sum could end with less noise than is due."""
        needed = least_survivors(n_parties)
        if self.noise == "distributed" and (n_parties < 2 or minimum < needed):
            raise WireError(
                f"noise that parties share needs a sum of at least {needed} of {n_parties}; the "
                f"server's minimum is {minimum}"
            )

    def bounds(self, n_parties: int) -> Bounds:
        """Bounds of fixed point that leave room for the noise."""
        return Bounds(row=self.clip + _TAIL * self.noise_std(n_parties), total=1.0)


def guarantee_of(settings: Any) -> Guarantee:
    """What every party demands under these settings."""
    from fedmmf.sums.dp.accounting import multiplier

    rounds = settings.ensemble * settings.max_rounds
    noise = multiplier(settings.dp_epsilon, rounds, settings.dp_delta)
    return Guarantee(settings.dp_clip, noise, settings.dp_noise, rounds)


def counted_on(n_parties: int) -> int:
    """How many honest parties' noise makes a distributed sum private."""
    return math.ceil(COUNTED_ON * n_parties)


def least_survivors(n_parties: int) -> int:
    """How many parties have to stay in a round with distributed noise."""
    return math.ceil(SURVIVING * n_parties)


def gaussian(n: int, entropy: Entropy = os.urandom) -> Array:
    """Standard normal numbers nobody can predict (Box and Muller 1958). (n,) float64."""
    half = (n + 1) // 2
    words = expand(entropy(SEED_BYTES), RING64, 2 * half)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53  # (2 * half,) inside (0, 1)
    radius = np.sqrt(-2.0 * np.log(uniform[:half]))
    angle = 2.0 * np.pi * uniform[half:]
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:n]
