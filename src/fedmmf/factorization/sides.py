"""Ratings seen from both sides, as kernels walk over them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf import threads
from fedmmf.arrays import Array


@dataclass(frozen=True, eq=False)
class Raters:
    """Ratings ordered by item."""

    by_item: Array  # (n_items + 1,) where each item's ratings begin
    order: Array  # (n,) their positions in the order by user
    users: Array  # (n,) who gave them

    @cached_property
    def counts(self) -> Array:
        """How many users rated each item. (n_items,)."""
        return np.diff(self.by_item)

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Items, cut for the threads."""
        return threads.ranges(self.by_item, threads.n_threads())

    def select(self, is_kept: Array) -> "Raters":
        """Only some of the ratings; `is_kept` is in the order here. (n,) bool."""
        if is_kept.all():
            return self
        kept_before = np.concatenate(([0], np.cumsum(is_kept)))
        by_item = kept_before[self.by_item].astype(self.by_item.dtype)
        return Raters(by_item, self.order[is_kept], self.users[is_kept])


@dataclass(frozen=True, eq=False)
class Sides:
    """Who rated what, ordered by user, with the way back from each item to its raters."""

    by_user: Array  # (n_users + 1,) where each user's ratings begin
    items: Array  # (n,) the rated item
    raters: Raters

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.by_user) - 1

    @cached_property
    def user_parts(self) -> list[tuple[int, int]]:
        """Users, cut for the threads."""
        return threads.ranges(self.by_user, threads.n_threads())


@dataclass(frozen=True, eq=False)
class Cohort:
    """Parties whose rows are summed together, and how."""

    raters: Raters
    bound: float = np.inf  # largest absolute entry of a row
    scale: float = 0.0  # of fixed point; 0: floating point
    clip: float = np.inf  # largest length of all rows of a party together
