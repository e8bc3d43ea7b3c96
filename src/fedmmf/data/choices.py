"""The compiled part of the synthetic sets: which items each user chooses."""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

_PATIENCE = 20  # draws per item of the catalogue before a user takes what is left
_LIKING = 1.0  # how strongly liking an item makes a user choose it


def table_of(weights: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Return what `choose` needs to draw an item by weight in constant time.

    These are the cumulative probabilities, (n_items,), and the first item to look at in each of
    n_items equal steps of probability.
    """
    cumulative = np.cumsum(weights) / weights.sum()
    steps = np.arange(len(weights)) / len(weights)
    return cumulative, np.searchsorted(cumulative, steps)


@numba.njit(cache=True)
def _draw(generator: Any, table: Any) -> Any:
    cumulative, guide = table
    point = generator.random()
    item = guide[int(point * len(guide))]
    while item < len(guide) - 1 and cumulative[item] < point:
        item += 1
    return item


@numba.njit(cache=True)
def _score(world: Any, user: int, item: int) -> Any:
    """How much better than the average item this user finds the item."""
    traits, tastes, quality = world
    score = quality[item]
    for trait in range(traits.shape[1]):
        score += traits[item, trait] * tastes[user, trait]
    return score


@numba.njit(cache=True)
def _fill(generator: Any, user: int, table: Any, world: Any, taken: Any, items: Any) -> None:
    """Fill `items` with items that are not `taken`: met by popularity, accepted by liking."""
    n_items = len(taken)
    patience = _PATIENCE * n_items
    filled = 0
    while filled < len(items):
        patience -= 1
        # Who has had nearly everything popular would draw for ever, and so takes anything.
        item = _draw(generator, table) if patience > 0 else generator.integers(0, n_items)
        if taken[item]:
            continue
        against = np.exp(-_LIKING * _score(world, user, item))
        if patience <= 0 or generator.random() * (1.0 + against) < 1.0:
            taken[item] = True
            items[filled] = item
            filled += 1


@numba.njit(cache=True)
def choose(
    generator: Any, counts: Any, table: Any, reserved: Any, world: Any, items: Any, scores: Any
) -> None:
    """Choose `counts[user]` distinct items for every user, and score them.

    Args:
        generator: A numpy generator.
        counts: How many items each user chooses, (n_users,).
        table: From `table_of`.
        reserved: Items and the user who must choose each, (2, n_items), sorted by user.
        world: Traits (n_items, n_traits), tastes (n_users, n_traits) and quality (n_items,).
        items: Filled with item codes, user by user and sorted within users, (n,).
        scores: Filled with what the users think of those items, (n,).
    """
    taken = np.zeros(reserved.shape[1], dtype=np.bool_)
    start = 0
    first = 0  # of the reservations not yet dealt with
    for user in range(len(counts)):
        mine = items[start : start + counts[user]]
        last = first
        while last < len(taken) and reserved[1, last] == user:
            last += 1
        mine[: last - first] = reserved[0, first:last]
        taken[reserved[0, first:last]] = True
        _fill(generator, user, table, world, taken, mine[last - first :])
        mine.sort()
        for at, item in enumerate(mine):
            scores[start + at] = _score(world, user, item)
        taken[mine] = False
        start += counts[user]
        first = last
