"""Lists of items: those that users have rated, and top-n lists of the others."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array

_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class RatedItems:
    """Which items each user has rated, ordered by user."""

    indptr: Array  # (n_users + 1,) where each user's items begin
    items: Array  # (n,) item codes

    @classmethod
    def of_one(cls, items: Array) -> "RatedItems":
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
        """User code of each entry. (n,)."""
        return np.repeat(np.arange(self.n_users), self.lengths)

    def of(self, user: int) -> slice:
        """Slice of one user's entries."""
        return slice(int(self.indptr[user]), int(self.indptr[user + 1]))

    def blocks(self, size: int = _BLOCK) -> Iterator["RatedItems"]:
        """The same users in turn, in lists of about `size` entries; `indptr` stays as it is.

        So a block's entries, and its rows of anything with a row per entry, are at `entries`.
        """
        begin = 0
        while begin < self.n_users:
            end = int(np.searchsorted(self.indptr, self.indptr[begin] + size, side="right")) - 1
            end = min(max(end, begin + 1), self.n_users)
            yield RatedItems(self.indptr[begin : end + 1], self.items)
            begin = end

    @property
    def entries(self) -> slice:
        """Slice of the entries of these users."""
        return slice(int(self.indptr[0]), int(self.indptr[-1]))

    def means(self, values: Array) -> Array:
        """Means over each user's entries, 0 where there are none. (n, ...) -> (n_users, ...)."""
        found = np.zeros((self.n_users, *values.shape[1:]))
        known = self.lengths > 0
        if known.any():
            sums = np.add.reduceat(values, (self.indptr[:-1] - self.indptr[0])[known])
            found[known] = (sums.T / self.lengths[known]).T
        return found

    def within(self, items: Array, n_items: int) -> tuple["RatedItems", Array]:
        """Only the entries among `items`, by their places there, and which they are. (n,) bool."""
        if len(items) == n_items:
            return self, np.ones(len(self.items), bool)
        places = np.full(n_items, -1, np.int32)
        places[items] = np.arange(len(items), dtype=np.int32)
        found = places[self.items]
        keep = found >= 0
        kept = np.zeros(self.n_users, np.int64)
        has_any = self.lengths > 0
        kept[has_any] = np.add.reduceat(keep, self.indptr[:-1][has_any], dtype=np.int64)
        return RatedItems(np.concatenate(([0], np.cumsum(kept))), found[keep]), keep

    def counts(self, n_items: int, members: Array | None = None) -> Array:
        """How many of the users, or of the members (n_users,) bool, rated each item. (n_items,)."""
        items = self.items if members is None else self.items[members[self.users]]
        return count_codes(items, n_items)


def count_codes(codes: Array, n: int) -> Array:
    """How often each of n codes occurs; in blocks, since numpy widens what it counts. (n,)."""
    counts = np.zeros(n, np.int64)
    for begin in range(0, len(codes), _BLOCK):
        counts += np.bincount(codes[begin : begin + _BLOCK], minlength=n)
    return counts


def top_n(scores: Array, n: int) -> Array:
    """Positions of the n largest scores, the best first, equal ones by position. (n or fewer,).

    What is -inf is never among them. Only scores that can be among the n are sorted.
    """
    n = min(n, len(scores))
    if n == 0:
        return np.zeros(0, np.int64)
    least = max(_lower_bound(scores, n), np.finfo(scores.dtype).min)
    found = np.flatnonzero(scores >= least)
    return found[np.argsort(-scores[found], kind="stable")[:n]]


def _lower_bound(scores: Array, n: int) -> float:
    """A number that at least n scores reach, and few others do.

    The n largest of the maxima of groups are n scores. That is faster than the n-th largest score
    itself, by far where many are equal: items that nobody has rated often are.
    """
    n_groups = 16 * n
    size = len(scores) // n_groups
    if size > 1:
        scores = scores[: size * n_groups].reshape(size, n_groups).max(axis=0)
    return float(np.partition(scores, len(scores) - n)[len(scores) - n])
