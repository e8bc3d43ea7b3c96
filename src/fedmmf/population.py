"""What users have in common: masks shrink towards it, and somebody unknown is taken for it.

Both halves are here: what each user adds to one sum (`user_totals`), and what the sum says together
with how many rated each item (`Population.of_totals`). Sums over x x^T of rated items are not among
the totals: they follow from the items' raters and features, which are public, if every rating
counts alike; with weights of users they would tell who rated what.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.lists import UserLists
from fedmmf.scale import RatingScale

ASSUMED_PULL = 1.0  # ratings' worth, where nobody was asked
LEAST_PULL, MOST_PULL = 0.5, 50.0
PULLS = 2.0  # of what the levels of users call for: item factors explain a part of them
LINE_RIDGE = 5.0  # users' worth of pull of the line towards a constant
MOST_COLUMNS = 128  # of a line; of more features it is a constant
LARGEST_FEATURE = 4.0  # what is beyond counts as this, so that sums have bounds
LARGEST_WEIGHT = 1e6  # of a line, so that what it says is finite
TOTAL_BOUND = 2.0**16  # of what one user adds: half of 4 for each of many ratings
_BLOCK = 1 << 15  # ratings that are worked on at once, user by user
_N_LEVELS = 7  # totals that say where users are, and how much they differ


@dataclass(frozen=True, eq=False)
class Population:
    """What somebody unknown gives an item, and how much to trust it.

    Attributes:
        line: weights of 1 and of the first item features, as many as there are. (m,)
        pull: ratings' worth of pull of a user's own level towards the line.
    """

    line: Array
    pull: float

    @classmethod
    def unknown(cls, scale: RatingScale) -> "Population":
        """Where nobody was asked: the scale's middle."""
        return cls.at(scale.midpoint)

    @classmethod
    def at(cls, level: float) -> "Population":
        """The same rating for every item."""
        return cls(np.array([level]), ASSUMED_PULL)

    @classmethod
    def of_totals(
        cls, totals: Array, n_raters: Array, features: Array, scale: RatingScale
    ) -> "Population":
        """Read a sum over all users.

        Args:
            totals: (n_totals(m),)
            n_raters: of each item. (n_items,)
            features: of each item, as many as the line has. (n_items, m - 1)
            scale: of the ratings.
        """
        levels, moments = totals[:_N_LEVELS], totals[_N_LEVELS:]  # (7,), (m,)
        if levels[0] < 0.5:
            return cls.unknown(scale)
        x, weights = _design(features), np.maximum(np.asarray(n_raters, np.float64), 0.0)
        normal = x.T @ (weights[:, np.newaxis] * x)
        ridge = np.full(len(normal), LINE_RIDGE * max(weights.sum() / levels[0], 1.0))
        ridge[0] = 1e-9
        normal[np.diag_indices(len(normal))] += ridge
        slopes = scale.span * np.linalg.solve(normal, moments)[1:]
        slopes = np.clip(slopes, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        level = scale.clip(scale.midpoint + scale.span * levels[1] / levels[0])
        middle = weights @ x[:, 1:] / max(weights.sum(), 1.0)  # features of what people rate
        start = np.clip(level - middle @ slopes, -LARGEST_WEIGHT, LARGEST_WEIGHT)
        return cls(np.concatenate(([float(start)], slopes)), _pull(levels[2:]))

    def is_like(self, other: "Population") -> bool:
        """Whether masks would be the same."""
        return self.pull == other.pull and np.array_equal(self.line, other.line)

    def base(self, features: Array, scale: RatingScale) -> Array:
        """What somebody unknown gives each item, on the scale. (n,)."""
        known = _bounded(features[:, : len(self.line) - 1])
        return np.asarray(scale.clip(self.line[0] + known @ self.line[1:]))


def n_totals(n_columns: int) -> int:
    """How many numbers the sum has."""
    return _N_LEVELS + n_columns


def user_totals(
    lists: UserLists, ratings: Array, features: Array, scale: RatingScale
) -> Iterator[Array]:
    """What users add to the sum, some users at a time. (n_some, n_totals).

    How users' levels differ, and sums over each one's ratings of x (r - middle) / span, with
    x = (1, features of the item).
    """
    for some in lists.blocks(_BLOCK):
        y = _centred(ratings[some.entries], scale)
        x = _design(features[some.items[some.entries]])  # (n, m)
        moments = some.means(x * y[:, np.newaxis]) * some.lengths[:, np.newaxis]
        yield np.hstack((_levels(some, y), moments))


def everybodys_totals(
    lists: UserLists, ratings: Array, features: Array, scale: RatingScale
) -> Array:
    """The sum of `user_totals`, of x item by item. (n_totals,)."""
    levels, by_item = np.zeros(_N_LEVELS), np.zeros(len(features))
    for some in lists.blocks():
        y = _centred(ratings[some.entries], scale)
        levels += _levels(some, y).sum(axis=0)
        by_item += np.bincount(some.items[some.entries], y, len(features))
    return np.concatenate((levels, _design(features).T @ by_item))


def _levels(lists: UserLists, y: Array) -> Array:
    """Where users are, and how those with two ratings or more differ. (n_users, 7).

    1, the level; 1, the level, its square, the variance of ratings, that of the level by chance.
    """
    level, n = lists.means(y), np.maximum(lists.lengths, 2)
    within = np.maximum(lists.means(y * y) - level**2, 0.0) * n / (n - 1)
    ones = np.ones(len(n))
    first = np.column_stack((ones, level))
    rest = np.column_stack((ones, level, level**2, within, within / n))
    lengths = lists.lengths[:, np.newaxis]
    return np.hstack((np.where(lengths > 0, first, 0.0), np.where(lengths > 1, rest, 0.0)))


def _centred(ratings: Array, scale: RatingScale) -> Array:
    return np.asarray(scale.to_unit(ratings.astype(np.float64)) - 0.5)


def _design(features: Array) -> Array:
    return np.column_stack((np.ones(len(features)), _bounded(features)))


def _pull(levels: Array) -> float:
    """Variance within users by that between their levels, as far as chance does not explain it."""
    n_users, total, squares, within, by_chance = levels.tolist()
    if n_users < 1.5 or within + squares <= 0:
        return ASSUMED_PULL
    between = squares / n_users - (total / n_users) ** 2 - by_chance / n_users
    pull = PULLS * (within / n_users) / max(between, 1e-9)
    return float(np.clip(pull, LEAST_PULL, MOST_PULL))


def _bounded(features: Array) -> Array:
    return np.clip(features, -LARGEST_FEATURE, LARGEST_FEATURE)
