"""Plain aggregation in a simulation."""

import numpy as np

from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated
from fedmmf.engines.contract import Cohort
from fedmmf.wire.codec import NAME_BYTES
from fedmmf.wire.frames import HEADER_BYTES


def groups(users: Simulated) -> list[Group]:
    """One group of all users in floating point; updates are seen singly if the solver allows it."""
    everybody, counts = np.ones(users.lists.n_users, bool), users.lists.counts(users.n_items)
    return [Group(Cohort(), everybody, counts, is_clear=users.solver.may_be_clear)]


def cost(given: CostInput) -> Cost:
    """Cost of one broadcast down, and of the rows of the rated items up."""
    return Cost(update_bytes(given, given.ratings_per_user), ask_bytes(given))


def ask_bytes(given: CostInput) -> int:
    """Bytes of a broadcast and the question about it."""
    return given.round_bytes + HEADER_BYTES + NAME_BYTES


def update_bytes(given: CostInput, n_rows: float) -> float:
    """Bytes of one user's `Update`; a mean number of rows gives a mean length."""
    sizes = given.sizes
    fields = 4 + 4 + 4 + 8 + 4  # round; counts before items, counts and totals; shape of the rows
    return HEADER_BYTES + fields + 4 * n_rows * (1 + sizes.update_shape.width) + 8 * sizes.n_totals
