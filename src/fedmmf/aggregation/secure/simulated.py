"""Secure aggregation in a simulation: the exact sum of fixed-point updates, without masks."""

import numpy as np

from fedmmf.aggregation.rare_items import are_rare
from fedmmf.aggregation.simulated import Group, Simulated
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import SettingsError
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.secagg.ring import RING64


def groups(crowd: Simulated) -> list[Group]:
    """Return one group of all users, whose updates are summed in fixed point."""
    everybody = np.ones(crowd.lists.n_users, bool)
    require_crowd(crowd, everybody)
    return [hidden_group(crowd, everybody)]


def is_crowd(crowd: Simulated, members: Array) -> bool:
    """Whether a sum over so many users hides each of them."""
    return int(members.sum()) >= fewest_users(crowd)


def fewest_users(crowd: Simulated) -> int:
    """Smallest number of users in a sum that hides each of them."""
    return int(crowd.settings.smallest_cohort)


def require_crowd(crowd: Simulated, members: Array) -> None:
    """Refuse a cohort that is too small."""
    if not is_crowd(crowd, members):
        raise SettingsError(
            f"a sum that hides its summands needs at least {fewest_users(crowd)} users; got "
            f"{int(members.sum())}. Add users, or simulate without protection: sharing 'plain'"
        )


def hidden_group(crowd: Simulated, members: Array) -> Group:
    """Group whose sum hides single updates, without items that too few of its members rated."""
    counts = crowd.lists.counts(crowd.n_items, None if members.all() else members)
    is_rare = are_rare(counts, crowd.settings.min_raters, crowd.settings.batch)
    bounds, ring, n = crowd.solver.bounds(crowd.span), ring_named(crowd.solver.ring), members.sum()
    rows, totals = FixedPoint(int(n), bounds.row, ring), FixedPoint(int(n), bounds.total, RING64)
    cohort = Cohort(
        members=None if members.all() else members,
        left_out=is_rare if is_rare.any() else None,
        bound=bounds.row,
        scale=float(rows.scale),
        total_bound=bounds.total,
        total_scale=float(totals.scale),
    )
    return Group(cohort, members, np.where(is_rare, 0, counts))
