"""The guarantee that a party demands for every update that leaves it: bounded length, and noise.

DP-FedAvg (McMahan et al. 2018) for the rows of one round: each user's rows are shrunk together and
rounded to a grid, so that the integers have length `clip` at most, and the party adds noise to
every entry of the whole catalogue: whole steps of the same grid, from a discrete Gaussian
(Kairouz, Liu and Steinke 2021). Nothing is clipped or rounded afterwards. Sums are exact in their
ring, and a wrap-around costs accuracy, not privacy.

- `local`: each party adds enough noise for itself; nobody has to be trusted. One update is compared
  with any other (sensitivity 2 clip).
- `distributed`: each party adds its part, and secure aggregation shows the sum alone (Dwork et al.
  2006, Our data, ourselves). The sum with a user is compared with the sum without it (sensitivity
  clip). Parties that drop out take their noise with them and corrupt ones may add none, so each
  adds a little more, and a round with too few survivors gives no sum at all. Where one site brings
  many parties, all of them may be corrupt at once: corruption is counted by site.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from fedmmf.aggregation.contract import CORRUPT
from fedmmf.aggregation.dp import accounting, releases
from fedmmf.aggregation.dp.releases import TableEntry
from fedmmf.aggregation.dp.sampler import MAX_SIGMA, rounded_up, whole_gaussian
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import WireError
from fedmmf.registry import import_extra
from fedmmf.secagg import RING32, FixedPoint, Ring
from fedmmf.solvers.contract import UPDATES, Bounds, RequestedRelease

ONE_IN = round(1 / CORRUPT)  # of so many, one may drop out of a round and another may be corrupt
_TAIL = 12.0  # standard deviations of a sum's noise that the ring has room for
_ADDED_UP = 1e-9  # relative error of costs that are added one by one, and more
_FLOATING = 2.0**-20  # relative error of a length in 64-bit arithmetic, up to 2^32 entries
NEIGHBOURS = {
    "local": "one user's updates, of all rounds, replaced by any others",
    "distributed": "one user's updates, of all rounds, present or all zero",
}
ADDED_BY = {
    "local": "each party, enough for itself",
    "distributed": "all parties together, under secure sums",
}
NOT_COVERED = (
    "J, RMSE, MAE and every other error or figure of a list are computed on raw ratings and are "
    "not inside epsilon; nor is a choice of settings by them. The catalogue and the scale, where "
    "they come from the file of ratings, and the number of users are taken for public."
)


@dataclass(frozen=True, eq=False)
class NoisyGrid:
    """Grid on which users' updates become integers, and the size of a party's noise."""

    cohort: Cohort  # how an engine shrinks and rounds each user's rows, and totals
    sigma: float  # of the party's noise, in steps

    def add(self, steps: Array) -> Array:
        """Rows of the whole catalogue, in steps, with noise. (n_items, width) int64."""
        return steps + discrete_gaussian(steps.size, self.sigma).reshape(steps.shape)

    def add_to_totals(self, steps: Array) -> Array:
        """Totals, in steps, with noise; zeros where totals do not leave. (n_totals,) int64."""
        if not self.cohort.clips_totals:
            return np.zeros(len(steps), np.int64)
        return self.add(steps.astype(np.int64))


@dataclass(frozen=True)
class Guarantee:
    """The guarantee that a party demands for every update that leaves it."""

    # largest length of a user's update, all its rows taken together, once it is rounded
    clip: float
    multiplier: float  # standard deviation of the noise over the sensitivity
    noise: Literal["local", "distributed"]  # who adds it
    rounds: int  # how many updates the multiplier pays for
    # parties that may add no noise, if that is more than 5 % of those in a sum: all that the
    # corrupt sites may bring
    corrupt: int = 0
    # names of the releases of one run and their rounds, in order; none: updates alone
    order: tuple[tuple[str, int], ...] = ()

    def check_release(self, number: int, requested: RequestedRelease) -> None:
        """Refuse what is not the release due in that round of a run.

        Raises:
            WireError: it is not in the table of releases at that place, or has another clip.
        """
        releases.check(self.order or ((UPDATES, self.rounds),), self.clip, number, requested)

    @property
    def rho(self) -> float:
        """Cost of one round, in concentrated differential privacy."""
        return accounting.concentrated(self.multiplier)

    def pays_after(self, rho_spent: float) -> bool:
        """Whether the budget of all rounds has room for one more after what was spent.

        What earlier trainings spent counts too, whatever the noise of their rounds was.
        """
        return rho_spent + self.rho <= self.rounds * self.rho * (1.0 + _ADDED_UP)

    @property
    def sensitivity(self) -> float:
        """How far one user can move what is released, by the neighbours that are compared."""
        return self.clip * (2.0 if self.noise == "local" else 1.0)

    def noise_std(self, n_parties: int) -> float:
        """Standard deviation of the noise that one party of `n_parties` adds to each entry."""
        if self.noise == "local":
            return 2.0 * self.clip * self.multiplier
        return self.clip * self.multiplier / math.sqrt(counted_on(n_parties, self.corrupt))

    @property
    def own_scale(self) -> float:
        """Steps per unit of the grid where a party's update is not summed in a ring."""
        return float(FixedPoint(1, self.bounds(1).row, RING32).scale)

    def scale_among(self, n_users: int, ring: Ring = RING32) -> float:
        """Steps per unit among parties of one user each, who sum in a ring if they share noise."""
        if self.noise == "local":
            return self.own_scale
        return float(FixedPoint(n_users, self.bounds(n_users).row, ring).scale)

    def grid(self, scale: float, n_parties: int, n_entries: int, n_totals: int = 0) -> NoisyGrid:
        """Put updates and noise on a grid.

        Rounding moves an entry by half a step at most, and so a vector of d entries by sqrt(d) / 2:
        updates are shrunk by that much more, and the integers are no longer than clip * scale. Rows
        and totals are one vector.

        Args:
            scale: steps per unit, a power of two.
            n_parties: in the sum, who share the noise.
            n_entries: of rows over the whole catalogue, d.
            n_totals: that are clipped with the rows and get noise; 0: totals do not leave.

        Raises:
            WireError: steps are too large for that, or for epsilon.
        """
        n_all = n_entries + n_totals
        room = (self.clip - math.sqrt(n_all) / (2.0 * scale)) * (1.0 - _FLOATING)
        sigma = self.noise_std(n_parties) * scale
        shared = n_parties if self.noise == "distributed" else 1
        beyond = accounting.excess(sigma, shared, n_all)
        if room < self.clip / 2 or beyond > accounting.EXCESS:
            raise WireError(
                f"steps of {1 / scale:g} are too large for updates of length {self.clip:g} with "
                f"{n_all:,} entries and noise of {sigma:.3g} steps: there are too many users "
                "for the ring, or the update has too many entries"
            )
        bounds = self.bounds(n_parties)
        cohort = Cohort(bound=bounds.row, scale=scale, clip=room)
        if n_totals:
            cohort = replace(cohort, total_bound=bounds.total, total_scale=scale, clips_totals=True)
        return NoisyGrid(cohort, rounded_up(sigma))

    def check_sum(self, n_parties: int, minimum: int) -> None:
        """Raise `WireError` where a sum could end with less noise than is required."""
        needed = least_survivors(n_parties)
        if self.noise == "distributed" and (n_parties < 2 or minimum < needed):
            raise WireError(
                f"noise that parties share needs a sum of at least {needed} of {n_parties}; the "
                f"server's minimum is {minimum}"
            )

    def bounds(self, n_parties: int) -> Bounds:
        """Bounds of the fixed point at which a sum with its noise does not wrap around in the ring.

        n times the row bound is n clip, and 12 standard deviations of the noise of all; a discrete
        Gaussian's tails are no heavier than a Gaussian's, so an entry is beyond with probability
        2 exp(-72), or 1e-31. What would happen then costs accuracy, and no privacy.
        """
        noise = self.noise_std(n_parties) / math.sqrt(n_parties)
        bound = self.clip + _TAIL * noise
        return Bounds(row=bound, total=bound)


def guarantee_of(settings: Any, corrupt: int = 0) -> Guarantee:
    """Return the guarantee that these settings give, where so many parties may be corrupt."""
    rounds = settings.ensemble * settings.max_rounds
    noise = accounting.multiplier(settings.dp_epsilon, rounds, settings.dp_delta)
    order = releases.in_order(settings)
    return Guarantee(settings.dp_clip, noise, settings.dp_noise, rounds, corrupt, order)


def counted_on(n_parties: int, known_corrupt: int = 0) -> int:
    """Number of honest parties whose noise makes a distributed sum private.

    The fewest survivors, less all corrupt parties: 5 %, or as many as corrupt sites may bring.
    Where those may be all others, a party counts on itself alone. A lone party shares noise with
    nobody, and `Guarantee.check_sum` refuses it.
    """
    return max(least_survivors(n_parties) - max(corrupt(n_parties), known_corrupt), 1)


def least_survivors(n_parties: int) -> int:
    """Number of parties that must stay in a round with distributed noise: 95 %, rounded up."""
    return n_parties - n_parties // ONE_IN


def corrupt(n_parties: int) -> int:
    """Number of all parties that may add no noise: 5 %, rounded up."""
    return -(-n_parties // ONE_IN)


def spent(settings: Any, rounds_used: int) -> dict[str, Any]:
    """What the releases of all runs of an ensemble cost, made so far and paid for, with the table.

    Args:
        settings: of the run.
        rounds_used: that parties have answered, in all runs together.
    """
    guarantee, delta = guarantee_of(settings), settings.dp_delta
    table = table_of(settings, guarantee)
    epsilon = accounting.epsilon(guarantee.multiplier, rounds_used, delta)
    paid = accounting.composed(tuple((one.multiplier, one.rounds) for one in table), delta)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "rounds_used": rounds_used,
        "rounds_paid": guarantee.rounds,
        "epsilon_paid": paid,
        "noise_multiplier": guarantee.multiplier,
        "clip": guarantee.clip,
        "noise": guarantee.noise,
        "added_by": ADDED_BY[guarantee.noise],
        "neighbours": NEIGHBOURS[guarantee.noise],
        "not_covered": NOT_COVERED,
        "releases": list(releases.entries(table, delta)),
    }


def table_of(settings: Any, guarantee: Guarantee) -> tuple[TableEntry, ...]:
    """Everything that the noise pays for, in the order of one run."""
    return tuple(
        TableEntry(name, settings.ensemble * n, guarantee.sensitivity, guarantee.multiplier)
        for name, n in guarantee.order
    )


def discrete_gaussian(n: int, sigma: float) -> Array:
    """Draw independent integers, each x with probability proportional to exp(-x^2 / 2 sigma^2).

    By the rejection sampler of Canonne, Kamath and Steinke 2020 (algorithm 3), in whole numbers of
    any size, from random bytes of the operating system or OpenSSL. Nothing is rounded, so nothing
    of Mironov 2012 applies. It has no seed: two draws never agree. Where sigma is a whole number
    the sampler is ours, many draws at once; else it is OpenDP's, which is slower and takes any
    sigma.

    Args:
        n: how many.
        sigma: any positive float64, taken as the fraction that it is.

    Returns:
        (n,) int64
    """
    is_whole = sigma <= MAX_SIGMA and sigma == int(sigma)
    return whole_gaussian(n, int(sigma)) if is_whole else fractional_gaussian(n, sigma)


def fractional_gaussian(n: int, sigma: float) -> Array:
    """Draw as `discrete_gaussian` does, by OpenDP. (n,) int64."""
    opendp = partial(import_extra, user="noise of differential privacy", extra="dp")
    # OpenDP's code without a formal proof, vetted by people
    opendp("opendp.mod").enable_features("contrib")
    domains, measurements = opendp("opendp.domains"), opendp("opendp.measurements")
    space = domains.vector_domain(domains.atom_domain(T="i64"))
    distance = opendp("opendp.metrics").l2_distance(T="i64")
    mechanism = measurements.make_gaussian(space, distance, sigma)
    return np.array(mechanism([0] * n), np.int64)
