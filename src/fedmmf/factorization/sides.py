"""Ratings seen from both sides, as kernels walk over them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf import threads
from fedmmf.arrays import Array


@dataclass(frozen=True, eq=False)
class Sides:
    """Who rated what, ordered by user, with the way back from each item to its raters."""

    by_user: Array  # (n_users + 1,) where each user's ratings begin
    items: Array  # (n,) the rated item
    by_item: Array  # (n_items + 1,) where each item's ratings begin in `order`
    order: Array  # (n,) positions of the ratings, ordered by item
    users: Array  # (n,) the raters, in that order

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.by_user) - 1

    @cached_property
    def n_raters(self) -> Array:
        """How many users rated each item. (n_items,)."""
        return np.diff(self.by_item)

    @cached_property
    def user_parts(self) -> list[tuple[int, int]]:
        """Users, cut for the threads."""
        return threads.ranges(self.by_user, threads.n_threads())

    @cached_property
    def item_parts(self) -> list[tuple[int, int]]:
        """Items, cut for the threads."""
        return threads.ranges(self.by_item, threads.n_threads())
