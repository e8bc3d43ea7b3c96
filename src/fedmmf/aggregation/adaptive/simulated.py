"""Adaptive aggregation in a simulation."""

import numpy as np

from fedmmf.aggregation.plain.simulated import cost as plain_cost
from fedmmf.aggregation.secure.simulated import can_hide, cost_among, hidden_group, require_enough
from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated
from fedmmf.engines.contract import Cohort
from fedmmf.secagg import MINIMUM_COHORT

NOTHING = Cost(0.0, 0.0)


def groups(users: Simulated) -> list[Group]:
    """The clear group, and the secure group if it has enough users to hide each of them."""
    in_clear, found = users.in_clear, []
    if in_clear.any():
        counts = users.lists.counts(users.n_items, in_clear)
        cohort = Cohort(members=in_clear)
        collected = users.settings.collect_masked
        found.append(Group(cohort, in_clear, counts, is_collected=collected, is_clear=True))
    if can_hide(users, ~in_clear):
        found.append(hidden_group(users, ~in_clear))
    if not found:
        require_enough(users, np.zeros_like(in_clear))
    return found


def cost(given: CostInput) -> Cost:
    """Mean cost over both groups; masked ratings that are collected once are not counted."""
    n_summed, settings = given.n_users - given.n_clear, given.settings
    clear = NOTHING if settings.collect_masked else plain_cost(given)
    is_enough = n_summed >= MINIMUM_COHORT
    summed = cost_among(given, n_summed) if is_enough else NOTHING
    share = given.n_clear / given.n_users
    return Cost(
        share * clear.up_bytes + (1 - share) * summed.up_bytes,
        share * clear.down_bytes + (1 - share) * summed.down_bytes,
        (1 - share) * summed.party_s,
        summed.server_s,
        summed.how,
    )
