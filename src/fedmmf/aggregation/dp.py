"""Differential privacy for a whole user: updates of bounded length, with Gaussian noise.

DP-FedAvg (McMahan et al. 2018) for the rows of one round: a party shrinks all its rows together to
length `clip` at most, spreads them over the whole catalogue, and adds noise to every entry.

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
from typing import Literal

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.layout import Bounds
from fedmmf.arrays import Array
from fedmmf.secagg import RING64
from fedmmf.secagg.prg import SEED_BYTES, expand
from fedmmf.secagg.shamir import Entropy

COUNTED_ON = 0.9  # share of the parties whose noise makes a sum private
SURVIVING = 0.95  # share that must stay: one in twenty of all may then still be corrupt
_TAIL = 12.0  # standard deviations of noise that fixed point has room for


@dataclass(frozen=True)
class Guarantee:
    """What a party demands of every update that leaves it.

    Args:
        clip: largest length of an update, all its rows taken together.
        multiplier: standard deviation of the noise over the sensitivity.
        noise: who adds it.
        rounds: how many updates the multiplier pays for.
    """

    clip: float
    multiplier: float
    noise: Literal["local", "distributed"]
    rounds: int

    def noise_std(self, n_parties: int) -> float:
        """Standard deviation of the noise that one party of `n_parties` adds to each entry."""
        if self.noise == "local":
            return 2.0 * self.clip * self.multiplier
        return self.clip * self.multiplier / math.sqrt(counted_on(n_parties))

    def protect(
        self, update: wire.Update, n_items: int, n_parties: int, entropy: Entropy = os.urandom
    ) -> wire.Update:
        """The update, clipped and noisy, over the whole catalogue; its totals are left out."""
        rows = np.zeros((n_items, update.rows.shape[1]))
        rows[update.items] = clipped(update.rows, self.clip)
        noise = gaussian(rows.size, entropy) * self.noise_std(n_parties)
        noisy = (rows + noise.reshape(rows.shape)).astype(np.float32)
        items = np.arange(n_items, dtype=np.int32)
        return wire.Update(update.round, items, noisy, np.zeros_like(update.totals))

    def bounds(self, n_parties: int) -> Bounds:
        """Bounds of fixed point that leave room for the noise."""
        return Bounds(row=self.clip + _TAIL * self.noise_std(n_parties), total=1.0)


def counted_on(n_parties: int) -> int:
    """How many honest parties' noise makes a distributed sum private."""
    return math.ceil(COUNTED_ON * n_parties)


def least_survivors(n_parties: int) -> int:
    """How many parties have to stay in a round with distributed noise."""
    return math.ceil(SURVIVING * n_parties)


def clipped(rows: Array, clip: float) -> Array:
    """Rows, shrunk together to Euclidean length `clip` at most. (n, width) float64."""
    rows = np.asarray(rows, np.float64)
    length = float(np.sqrt(np.sum(rows * rows)))
    return rows * min(1.0, clip / length) if length > 0 else rows


def gaussian(n: int, entropy: Entropy = os.urandom) -> Array:
    """Standard normal numbers nobody can predict (Box and Muller 1958). (n,) float64."""
    half = (n + 1) // 2
    words = expand(entropy(SEED_BYTES), RING64, 2 * half)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53  # (2 * half,) inside (0, 1)
    radius = np.sqrt(-2.0 * np.log(uniform[:half]))
    angle = 2.0 * np.pi * uniform[half:]
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:n]
