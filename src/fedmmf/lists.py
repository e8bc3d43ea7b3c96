"""Lists of items, one after the other: what one user has rated is one list."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array


@dataclass(frozen=True, eq=False)
class UserLists:
    """Which items each user has rated, ordered by user."""

    indptr: Array  # (n_users + 1,) where each user's items begin
    items: Array  # (n,) item codes

    @classmethod
    def of_one(cls, items: Array) -> "UserLists":
        """The list of a single user."""
        return cls(np.array([0, len(items)]), items)

    @property
    def n_users(self) -> int:
        """How many lists there are."""
        return len(self.indptr) - 1

    @cached_property
    def lengths(self) -> Array:
        """How many items each user has rated. (n_users,)."""
        return np.diff(self.indptr)

    @cached_property
    def users(self) -> Array:
        """Whose each entry is. (n,)."""
        return np.repeat(np.arange(self.n_users), self.lengths)

    def of(self, user: int) -> slice:
        """Where a user's entries are."""
        return slice(int(self.indptr[user]), int(self.indptr[user + 1]))

    def counts(self, n_items: int, members: Array | None = None) -> Array:
        """How many of the users, or of the members (n_users,) bool, rated each item. (n_items,)."""
        items = self.items if members is None else self.items[members[self.users]]
        return np.bincount(items, minlength=n_items)
