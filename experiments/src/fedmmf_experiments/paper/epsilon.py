"""Epsilon by three accounting methods: how far ours is from the best known.

Ours is of what is run, sums of discrete Gaussians. The others are of a continuous Gaussian of the
same size, which is not what is run, but says how much of epsilon is the method's.
"""

import math
from dataclasses import asdict, dataclass
from typing import Literal

from scipy import optimize, special

from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import Guarantee


@dataclass(frozen=True)
class Configuration:
    """The settings that decide the noise."""

    noise: Literal["local", "distributed"]
    asked: float  # epsilon
    delta: float
    clip: float
    rounds: int
    n_parties: int
    n_entries: int  # of an update


CONFIGURATIONS = (
    Configuration("distributed", 8.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("distributed", 1.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("distributed", 2.0, 1e-6, 0.1, 60, 6040, 14_824),
    Configuration("distributed", 4.0, 1e-5, 5.0, 10, 21, 200),
    Configuration("distributed", 8.0, 1e-5, 1.0, 30, 3, 1682),
    Configuration("distributed", 20.0, 1e-7, 0.5, 1, 100, 10_000),
    Configuration("distributed", 0.5, 1e-5, 2.0, 150, 400, 35_000),
    Configuration("local", 8.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("local", 1.0, 1e-6, 0.3, 5, 1, 500),
    Configuration("local", 50.0, 1e-5, 10.0, 200, 50, 5000),
)


@dataclass(frozen=True)
class EpsilonRow(Configuration):
    """One configuration: its noise, and its epsilon by three methods."""

    multiplier: float
    steps: float  # standard deviation of one party's noise, in steps of the grid
    epsilon: float  # ours
    analytic: float
    losses: float


def epsilon_table() -> list[EpsilonRow]:
    """Compute the row of every configuration."""
    return [_row(configuration) for configuration in CONFIGURATIONS]


def _row(about: Configuration) -> EpsilonRow:
    multiplier = accounting.multiplier(about.asked, about.rounds, about.delta)
    guarantee = Guarantee(about.clip, multiplier, about.noise, about.rounds)
    n = about.n_parties
    return EpsilonRow(
        **asdict(about),
        multiplier=multiplier,
        steps=guarantee.grid(guarantee.scale_among(n), n, about.n_entries).sigma,
        epsilon=accounting.epsilon(multiplier, about.rounds, about.delta),
        analytic=analytic_gaussian(multiplier / math.sqrt(about.rounds), about.delta),
        losses=loss_distribution(multiplier, about.rounds, about.delta),
    )


def analytic_gaussian(multiplier: float, delta: float) -> float:
    """Epsilon of one continuous Gaussian (Balle and Wang 2018, theorem 8).

    T rounds are together one whose multiplier is smaller by sqrt(T) (Dong, Roth and Su 2022,
    Gaussian differential privacy, corollary 3.3).
    """

    def missing(epsilon: float) -> float:
        a, b = 1 / (2 * multiplier), epsilon * multiplier
        log_second = epsilon + special.log_ndtr(-a - b)
        return float(special.ndtr(a - b) - math.exp(log_second)) - delta

    return float(optimize.brentq(missing, 0.0, 1000.0, xtol=1e-10))


def loss_distribution(multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon of that many continuous Gaussians, by their privacy loss distribution."""
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(multiplier), rounds)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    return float(accountant.compose(event).get_epsilon(delta))
