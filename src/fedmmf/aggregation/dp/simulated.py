"""Differentially private aggregation in a simulation."""

from dataclasses import replace

import numpy as np

from fedmmf.aggregation.dp.guarantee import guarantee_of
from fedmmf.aggregation.plain.simulated import ask_bytes, update_bytes
from fedmmf.aggregation.secure.simulated import cost as secure_cost
from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated
from fedmmf.secagg import ring_named

NOISE_S = 6e-8  # CPU seconds of one draw: `fedmmf bench noise`


def groups(users: Simulated) -> list[Group]:
    """One group; rows are bounded as a party would, and everybody counts as rater of everything.

    The noise is as large as parties' noise together, and no more than that: it comes from a seed.
    """
    n, guarantee = users.lists.n_users, guarantee_of(users.settings)
    scale = guarantee.scale_among(n, ring_named(users.solver.ring))
    shape = users.update_shape
    grid = guarantee.grid(scale, n, users.n_items * shape.width, shape.n_noisy_totals)
    noise_std = guarantee.noise_std(n) * float(np.sqrt(n))
    everybody, counts = np.ones(n, bool), np.full(users.n_items, n)
    return [Group(grid.cohort, everybody, counts, noise_std=noise_std)]


def cost(given: CostInput) -> Cost:
    """Cost of secure sums, or of plain sums over the whole catalogue, with noise in every entry."""
    n_items = given.n_items
    noise_s = NOISE_S * n_items * given.update_shape.width
    if given.settings.dp_noise == "distributed":
        found = secure_cost(given)
        how = f"{found.how}, and {1e6 * NOISE_S:.2f} us for the noise of each entry"
        return replace(found, party_s=found.party_s + noise_s, how=how)
    how = f"{1e6 * NOISE_S:.2f} us for the noise of each entry"
    return Cost(update_bytes(given, n_items), ask_bytes(given), noise_s, how=how)
