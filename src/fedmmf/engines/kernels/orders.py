"""Ratings ordered by user and by item, as kernels traverse them, cut into parts for the threads."""

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.kernels import threads


class Raters:
    """Ratings ordered by item.

    Args:
        by_item: where each item's ratings begin. (n_items + 1,)
        order: their positions in the order by user. (n,)
        users: who gave them. (n,)
    """

    def __init__(self, by_item: Array, order: Array, users: Array) -> None:
        self.by_item, self.order = (threads.frozen(a, np.int64) for a in (by_item, order))
        self.users = threads.frozen(users, np.int32)

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Ranges of items, one for each part of the threads' work."""
        return threads.ranges(self.by_item, threads.n_threads())

    def select(self, is_kept: Array) -> "Raters":
        """Keep some of the ratings; `is_kept` is in the order by item. (n,) bool."""
        if is_kept.all():
            return self
        kept_before = np.concatenate(([0], np.cumsum(is_kept)))
        return Raters(kept_before[self.by_item], self.order[is_kept], self.users[is_kept])

    def of_cohort(self, cohort: Cohort) -> "Raters":
        """Return the ratings that a cohort sums."""
        raters = self
        if cohort.members is not None:
            raters = raters.select(cohort.members[raters.users])
        if cohort.left_out is not None:
            raters = raters.select(np.repeat(~cohort.left_out, np.diff(raters.by_item)))
        return raters


class RatingOrders:
    """Ratings ordered by user and, as `raters`, by item."""

    def __init__(self, lists: RatedItems, n_items: int) -> None:
        self.by_user = threads.frozen(lists.indptr, np.int64)
        self.items = threads.frozen(lists.items, np.int32)
        self.n_users = lists.n_users
        self.user_parts = threads.ranges(self.by_user, threads.n_threads())
        order = np.argsort(self.items, kind="stable")
        by_item = np.concatenate(([0], np.cumsum(np.bincount(self.items, minlength=n_items))))
        self.raters = Raters(by_item, order, lists.users[order])


# Sorting ten million ratings takes seconds, and the runs of an ensemble share their lists.
_ORDERS: WeakKeyDictionary[RatedItems, dict[int, RatingOrders]] = WeakKeyDictionary()


def orders_of(given: TrainingInput) -> RatingOrders:
    """Return both orders of a user group's ratings."""
    found = _ORDERS.setdefault(given.lists, {})
    if given.n_items not in found:
        found[given.n_items] = RatingOrders(given.lists, given.n_items)
    return found[given.n_items]
