"""Differentially private sums, worked out."""

import numpy as np

from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.sums.costs import Cost, CostInput
from fedmmf.sums.dp.guarantee import Guarantee, guarantee_of
from fedmmf.sums.plain.simulated import ask_bytes, update_bytes
from fedmmf.sums.secure.cost import cost as secure_cost
from fedmmf.sums.simulated import Group, Simulated


def groups(crowd: Simulated) -> list[Group]:
    """Every user's rows are bounded as a party would, and everybody seems to have rated everything.

    The noise is as large as parties' noise together, and no more than that: it comes from a seed.
    """
    n, guarantee = crowd.lists.n_users, guarantee_of(crowd.settings)
    width = crowd.solver.width(crowd.solver.rank(crowd.settings))
    grid = guarantee.grid(_scale(crowd, guarantee), n, crowd.n_items * width)
    noise_std = guarantee.noise_std(n) * float(np.sqrt(n))
    everybody, counts = np.ones(n, bool), np.full(crowd.n_items, n)
    return [Group(grid.cohort, everybody, counts, noise_std=noise_std)]


def _scale(crowd: Simulated, guarantee: Guarantee) -> float:
    """Steps per unit, as a party has them."""
    if guarantee.noise == "local":
        return guarantee.own_scale
    n, ring = crowd.lists.n_users, ring_named(crowd.solver.ring)
    return float(FixedPoint(n, guarantee.bounds(n).row, ring).scale)


def cost(given: CostInput) -> Cost:
    """As secure sums, or as plain ones over the whole catalogue."""
    if given.settings.dp_noise == "distributed":
        return secure_cost(given)
    return Cost(update_bytes(given, given.catalogue.n_items), ask_bytes(given))
