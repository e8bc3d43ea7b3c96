"""Differentially private sums, worked out."""

import numpy as np

from fedmmf.engines.contract import Cohort
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.sums.costs import Cost, CostInput
from fedmmf.sums.dp.guarantee import guarantee_of
from fedmmf.sums.plain.simulated import ask_bytes, update_bytes
from fedmmf.sums.secure.cost import cost as secure_cost
from fedmmf.sums.simulated import Group, Simulated


def groups(crowd: Simulated) -> list[Group]:
    """Every user's rows are bounded, and everybody seems to have rated everything."""
    n, guarantee = crowd.lists.n_users, guarantee_of(crowd.settings)
    bounds = guarantee.bounds(n)
    scale = FixedPoint(n, bounds.row, ring_named(crowd.solver.ring)).scale
    cohort = Cohort(bound=bounds.row, scale=float(scale), clip=guarantee.clip)
    noise_std = guarantee.noise_std(n) * float(np.sqrt(n))
    everybody, counts = np.ones(n, bool), np.full(crowd.n_items, n)
    return [Group(cohort, everybody, counts, noise_std=noise_std)]


def cost(given: CostInput) -> Cost:
    """As secure sums, or as plain ones over the whole catalogue."""
    if given.settings.dp_noise == "distributed":
        return secure_cost(given)
    return Cost(update_bytes(given, given.catalogue.n_items), ask_bytes(given))
