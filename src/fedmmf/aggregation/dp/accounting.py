"""Privacy cost of a run: concentrated differential privacy of sums of discrete Gaussians.

What is accounted for is what is run: integers of bounded length, to which m parties add integers of
their own. Conversion and search are dp-accounting's (Google).
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fedmmf.registry import import_extra

EXCESS = 1e-9  # largest `excess` that epsilon allows for; a grid that needs more is refused


def excess(sigma: float, n_parties: int, n_entries: int) -> float:
    """Distance of a sum of discrete Gaussians from a discrete Gaussian: tau sqrt(d).

    Kairouz, Liu and Steinke 2021 (The distributed discrete Gaussian mechanism, proposition 14):
    tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 sigma^2 k / (k + 1)), of which the first summand is the
    largest, and is taken for all. A lone discrete Gaussian is exact: tau is 0.

    Args:
        sigma: of one party's noise, in steps; at least 1/2 where there are several.
        n_parties: who add noise, at most.
        n_entries: of the vector, d.
    """
    tau = 10.0 * (n_parties - 1) * math.exp(-((math.pi * sigma) ** 2))
    return tau * math.sqrt(n_entries)


def concentrated(multiplier: float, beyond: float = EXCESS) -> float:
    """Rho of one round: its Renyi divergence of order alpha is at most rho alpha.

    Kairouz, Liu and Steinke 2021, proposition 14, last bound: with noise of m parties of variance
    sigma^2 each and integers of length Delta, rho = (Delta / (sqrt(m) sigma) + tau sqrt(d))^2 / 2.

    Args:
        multiplier: sqrt(m) sigma / Delta.
        beyond: tau sqrt(d), as `excess` has it, or a bound on it.
    """
    return (1.0 / multiplier + beyond) ** 2 / 2.0


def epsilon(multiplier: float, rounds: int, delta: float, beyond: float = EXCESS) -> float:
    """Return epsilon at `delta` after that many rounds.

    Rho adds up over rounds, and every user takes part in every round: nothing is won by sampling.
    The conversion is proposition 12 of Canonne, Kamath and Steinke 2020 (The discrete Gaussian).
    """
    return composed(((multiplier, rounds),), delta, beyond)


def composed(
    releases: tuple[tuple[float, int], ...], delta: float, beyond: float = EXCESS
) -> float:
    """Return epsilon at `delta` after some releases, one after the other.

    Args:
        releases: each the noise over the sensitivity, and how many rounds release it.
        delta: of the whole.
        beyond: as `concentrated` has it.
    """
    rho = sum(rounds * concentrated(multiplier, beyond) for multiplier, rounds in releases)
    if rho == 0:
        return 0.0
    return float(_accountant().compose(_tools().ZCDpEvent(rho)).get_epsilon(delta))


@lru_cache(maxsize=64)
def multiplier(epsilon: float, rounds: int, delta: float) -> float:
    """Smallest noise, over the sensitivity, at which that many rounds cost at most `epsilon`."""
    accounting = _tools()
    unit = math.sqrt(rounds) / epsilon  # the order of magnitude of the answer
    found = accounting.calibrate_dp_mechanism(
        _accountant,
        lambda share: accounting.ZCDpEvent(rounds * concentrated(share * unit)),
        epsilon,
        delta,
        accounting.LowerEndpointAndGuess(1e-6, 1.0),
        tol=1e-7,
    )
    return float(found) * unit


def _accountant() -> Any:
    """Accountant with orders so fine that epsilon is right to more digits than are shown."""
    orders = 1.0 + np.geomspace(0.0101, 1e7, 4000)  # dp-accounting uses no order below 1.01
    return _tools(".rdp").RdpAccountant(orders)


def _tools(part: str = "") -> Any:
    return import_extra(f"dp_accounting{part}", "accounting for differential privacy", "dp")
