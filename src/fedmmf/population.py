"""What users have in common: masks shrink towards it, and somebody unknown is taken for it.

Both halves are here: what each user adds to one sum (`user_totals`), and what the sum says
(`Population.of_totals`).
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
TOTAL_BOUND = LARGEST_FEATURE**2  # of what one user adds
_BLOCK = 1 << 15  # ratings that are worked on at once, user by user
_N_LEVELS = 5  # totals that say how much users differ


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
    def of_totals(cls, totals: Array, n_columns: int, scale: RatingScale) -> "Population":
        """Read a sum over all users. (n_totals(n_columns),)."""
        levels, moments = np.split(totals[: _N_LEVELS + n_columns], [_N_LEVELS])
        normal = _unpacked(totals[_N_LEVELS + n_columns :], n_columns)
        if normal[0, 0] < 0.5:
            return cls.unknown(scale)
        normal[np.diag_indices(n_columns)] += LINE_RIDGE
        normal[0, 0] -= LINE_RIDGE
        line = scale.span * np.linalg.solve(normal, moments)
        line[0] += scale.midpoint
        return cls(np.clip(line, -LARGEST_WEIGHT, LARGEST_WEIGHT), _pull(levels))

    def is_like(self, other: "Population") -> bool:
        """Whether masks would be the same."""
        return self.pull == other.pull and np.array_equal(self.line, other.line)

    def base(self, features: Array, scale: RatingScale) -> Array:
        """What somebody unknown gives each item, on the scale. (n,)."""
        known = _bounded(features[:, : len(self.line) - 1])
        return np.asarray(scale.clip(self.line[0] + known @ self.line[1:]))


def n_totals(n_columns: int) -> int:
    """How many numbers the sum has."""
    return _N_LEVELS + n_columns + n_columns * (n_columns + 1) // 2


def user_totals(
    lists: UserLists, ratings: Array, features: Array, scale: RatingScale
) -> Iterator[Array]:
    """What users add to the sum, some users at a time. (n_some, n_totals).

    How users' levels differ, and means over each one's ratings of x (r - middle) / span and of
    x x^T, x = (1, features of the item); zeros of whoever has no ratings.
    """
    for some in lists.blocks(_BLOCK):
        y = _centred(ratings[some.entries], scale)
        x = _design(features[some.items[some.entries]])  # (n, m)
        rows, columns = np.tril_indices(x.shape[1])
        parts = (some.means(x * y[:, np.newaxis]), some.means(x[:, rows] * x[:, columns]))
        yield np.hstack((_levels(some, y), *parts))


def everybodys_totals(
    lists: UserLists, ratings: Array, features: Array, scale: RatingScale
) -> Array:
    """The sum of `user_totals`; of x x^T item by item. (n_totals,)."""
    levels, n_items = np.zeros(_N_LEVELS), len(features)
    weights, weighted = np.zeros((2, n_items))  # of each item: sums of 1 / n_u and of y / n_u
    for some in lists.blocks():
        y, items = _centred(ratings[some.entries], scale), some.items[some.entries]
        levels += _levels(some, y).sum(axis=0)
        share = np.repeat(1.0 / np.maximum(some.lengths, 1), some.lengths)
        weights += np.bincount(items, share, n_items)
        weighted += np.bincount(items, share * y, n_items)
    x = _design(features)
    gram = x.T @ (weights[:, np.newaxis] * x)
    return np.concatenate((levels, x.T @ weighted, gram[np.tril_indices(len(gram))]))


def _levels(lists: UserLists, y: Array) -> Array:
    """How users with two ratings or more differ. (n_users, 5).

    1, the level, its square, the variance of ratings, and that of the level by chance.
    """
    level, n = lists.means(y), np.maximum(lists.lengths, 2)
    within = np.maximum(lists.means(y * y) - level**2, 0.0) * n / (n - 1)
    each = np.column_stack((np.ones(len(n)), level, level**2, within, within / n))
    return np.where(lists.lengths[:, np.newaxis] > 1, each, 0.0)


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


def _unpacked(packed: Array, m: int) -> Array:
    matrix = np.zeros((m, m))
    matrix[np.tril_indices(m)] = packed
    return matrix + np.tril(matrix, -1).T
