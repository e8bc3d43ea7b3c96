"""The population: what users have in common. Masks shrink towards it; it is the default user.

Both halves are here: what each user adds to one sum (`user_totals`), and what the sum says together
with how many rated each item (`Population.of_totals`). Sums over x x^T of rated items are not among
the totals: they follow from the items' raters and features, which are public, if every rating
counts alike; with weights of users they would tell who rated what.

The sum is over the items that rounds sum, and of these without any that public features single out
(`CommonItems`). A sum of x r over items with one column for each feature is a set of linear
equations in the items' sums of ratings. Where some combination of the columns is nearly 0 but at
one item, it says that item's sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale

ASSUMED_PULL = 1.0  # shrinkage in ratings, where there was no survey
MIN_SHRINKAGE, MAX_SHRINKAGE = 0.5, 50.0
PULLS = 2.0  # of what the levels of users call for: item factors explain a part of them
LINE_RIDGE = 5.0  # shrinkage of the line towards a constant, in users
MAX_LINE_COLUMNS = 128  # of a line; of more features it is a constant
LARGEST_FEATURE = 4.0  # larger values count as this, so that sums have bounds
LARGEST_WEIGHT = 1e6  # largest weight of a line, so that its ratings are finite
TOTAL_BOUND = 2.0**16  # largest total of one user: half of 4 for each of many ratings
_BLOCK = 1 << 15  # ratings that are worked on at once, user by user
MAX_LEVERAGE = 0.9  # largest leverage of few items on any combination of the summed columns
_N_LEVELS = 6  # totals of the users' levels and their variances
_RANK = 1e-12  # relative to the largest singular value: smaller ones count as 0
_LIMIT = MAX_LEVERAGE + 1e-9  # with room for machines that differ in the last digits


@dataclass(frozen=True, eq=False)
class CommonItems:
    """Items whose ratings count for the population, and their features.

    Parties and server work them out for themselves, from what is public.

    Attributes:
        items: codes, increasing. (n,)
        features: of these items; zeros where no feature may count. (n, d)
    """

    items: Array
    features: Array

    @classmethod
    def of(cls, items: Array, features: Array, min_raters: int) -> "CommonItems":
        """Select items of a layout, without those that the features single out.

        An item is left out where it, alone or in a group of fewer than `min_raters` items, has more
        than `MAX_LEVERAGE` of the length of some combination of the columns. That is repeated
        until nothing is singled out. If fewer than half of the items would stay, the features are
        too many for the items: then all items count, and no feature does.

        Args:
            items: of the layout, increasing. (n,)
            features: of the whole catalogue, as many as the line has. (n_catalogue, d)
            min_raters: the fewest raters of an item that is summed.
        """
        items = np.asarray(items)
        known, size = np.ascontiguousarray(features[items]), max(min_raters - 1, 1)
        told = repr((known.shape, known.dtype.str, size)).encode() + items.tobytes()
        name = sha256(told + known.tobytes()).digest()
        found = _last.get(name)
        if found is None:
            found = cls._without_singled_out(items, known, size)
            _last.clear()
            _last[name] = found
        return found

    @classmethod
    def _without_singled_out(cls, items: Array, features: Array, size: int) -> "CommonItems":
        kept, known = items, features
        while features.shape[1] and 2 * len(kept) >= len(items) > 0:
            is_out = singled_out(_design(known), size)
            if not is_out.any():
                return cls(kept, known)
            kept, known = kept[~is_out], known[~is_out]
        kept = items if size <= MAX_LEVERAGE * len(items) else items[:0]
        return cls(kept, np.zeros((len(kept), features.shape[1])))


_last: dict[bytes, CommonItems] = {}  # the last answer, which many parties of a process ask for


def singled_out(columns: Array, size: int) -> Array:
    """Flag rows that nearly make up some combination of columns, alone or in a group. (n,) bool.

    The leverage of a group is the largest share of the squared length of any combination of the
    columns that lies on its rows: the largest eigenvalue of its block of the hat matrix. Where some
    rows are too large alone, these are the answer: groups are judged without them.

    Args:
        columns: (n, m)
        size: of the largest group.
    """
    basis = _orthonormal(columns)  # (n, r)
    leverage = np.square(basis).sum(axis=1)  # (n,)
    is_out = np.asarray(leverage > _LIMIT)
    if size == 1 or is_out.any():
        return is_out
    # A group's leverage is at most the sum of its rows': one of them has its share of that.
    for row in np.flatnonzero(size * leverage > MAX_LEVERAGE).tolist():
        is_out[row] = _is_in_group(row, basis, leverage, size)
    return is_out


def _is_in_group(row: int, basis: Array, leverage: Array, size: int) -> bool:
    """Whether a group of at most `size` rows, with this one, has too much leverage.

    All pairs are tried. A larger group is grown from the best pair, each time by the row that has
    most of the combination that the group has most of.
    """
    pairs = _leverages_of_pairs(row, leverage, basis @ basis[row])  # (n,)
    if pairs.max() > _LIMIT:
        return True
    group = [row, int(pairs.argmax())]
    while len(group) < min(size, len(basis)):
        top = np.linalg.svd(basis[group], full_matrices=False)[2][0]  # (r,)
        shares = np.square(basis @ top)  # (n,)
        shares[group] = -1.0
        group.append(int(shares.argmax()))
        if float(np.linalg.norm(basis[group], 2)) ** 2 > _LIMIT:
            return True
    return False


def _orthonormal(columns: Array) -> Array:
    """Orthonormal basis of the column space. (n, r)."""
    q, r = np.linalg.qr(columns)
    turn, values, _ = np.linalg.svd(r)
    return np.asarray(q @ turn[:, : len(values)][:, values > _RANK * values.max(initial=0.0)])


def _leverages_of_pairs(row: int, leverage: Array, products: Array) -> Array:
    """Leverages of a row with each other row, from their block of the hat matrix. (n,)."""
    half = (leverage - leverage[row]) / 2
    pairs = (leverage + leverage[row]) / 2 + np.sqrt(half**2 + products**2)
    pairs[row] = leverage[row]
    return np.asarray(pairs)


@dataclass(frozen=True, eq=False)
class Population:
    """Ratings of the default user for each item, and the shrinkage towards them.

    Attributes:
        line: weights of 1 and of the first item features, as many as there are. (m,)
        shrinkage: ratings' worth of shrinkage of a user's own level towards the line.
    """

    line: Array
    shrinkage: float

    @classmethod
    def unknown(cls, scale: RatingScale) -> "Population":
        """Return the middle of the scale, for runs without a survey."""
        return cls.at(scale.midpoint)

    @classmethod
    def at(cls, level: float) -> "Population":
        """Return a population with the same rating for every item."""
        return cls(np.array([level]), ASSUMED_PULL)

    @classmethod
    def of_totals(
        cls, totals: Array, n_raters: Array, features: Array, scale: RatingScale
    ) -> "Population":
        """Compute the population from a sum over all users.

        Args:
            totals: (n_totals(m),)
            n_raters: of each item whose ratings are in the sum. (n_items,)
            features: of these items, as many as the line has. (n_items, m - 1)
            scale: of the ratings.
        """
        levels, moments = totals[:_N_LEVELS], totals[_N_LEVELS:]  # (6,), (m,)
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
        return cls(np.concatenate(([float(start)], slopes)), _shrinkage(levels))

    def is_like(self, other: "Population") -> bool:
        """Whether masks would be the same under the other population."""
        return self.shrinkage == other.shrinkage and np.array_equal(self.line, other.line)

    def base(self, features: Array, scale: RatingScale) -> Array:
        """Ratings of the default user for each item, on the scale. (n,)."""
        known = _bounded(features[:, : len(self.line) - 1])
        return np.asarray(scale.clip(self.line[0] + known @ self.line[1:]))


def n_totals(n_columns: int) -> int:
    """Number of entries of the sum."""
    return _N_LEVELS + n_columns


def user_totals(
    lists: RatedItems, ratings: Array, features: Array, scale: RatingScale
) -> Iterator[Array]:
    """Yield what users add to the sum, some users at a time. (n_some, n_totals).

    How users' levels differ, and sums over each one's ratings of x (r - middle) / span, with
    x = (1, features of the item).
    """
    for some in lists.blocks(_BLOCK):
        y = _centred(ratings[some.entries], scale)
        x = _design(features[some.items[some.entries]])  # (n, m)
        moments = some.means(x * y[:, np.newaxis]) * some.lengths[:, np.newaxis]
        yield np.hstack((_levels(some, y), moments))


def everybodys_totals(
    lists: RatedItems, ratings: Array, features: Array, scale: RatingScale
) -> Array:
    """Sum of `user_totals` over all users, computed item by item. (n_totals,)."""
    levels, by_item = np.zeros(_N_LEVELS), np.zeros(len(features))
    for some in lists.blocks():
        y = _centred(ratings[some.entries], scale)
        levels += _levels(some, y).sum(axis=0)
        by_item += np.bincount(some.items[some.entries], y, len(features))
    return np.concatenate((levels, _design(features).T @ by_item))


def _levels(lists: RatedItems, y: Array) -> Array:
    """Totals of users' levels and variances. (n_users, 6).

    1, the level, its square; of those with two ratings or more 1, the variance of ratings, that of
    the level by chance. A second sum of levels, over these users alone, would differ from the first
    by those who have one rating: where that is one user, by the rating.
    """
    level, n = lists.means(y), np.maximum(lists.lengths, 2)
    within = np.maximum(lists.means(y * y) - level**2, 0.0) * n / (n - 1)
    ones = np.ones(len(n))
    first = np.column_stack((ones, level, level**2))
    rest = np.column_stack((ones, within, within / n))
    lengths = lists.lengths[:, np.newaxis]
    return np.hstack((np.where(lengths > 0, first, 0.0), np.where(lengths > 1, rest, 0.0)))


def _centred(ratings: Array, scale: RatingScale) -> Array:
    return np.asarray(scale.to_unit(ratings.astype(np.float64)) - 0.5)


def _design(features: Array) -> Array:
    return np.column_stack((np.ones(len(features)), _bounded(features)))


def _shrinkage(levels: Array) -> float:
    """Shrinkage: variance within users over that between their levels, corrected for chance.

    The level of somebody with a single rating varies by chance as ratings within users do.
    """
    n_users, total, squares, n_several, within, by_chance = levels.tolist()
    if min(n_users, n_several) < 1.5 or within + squares <= 0:
        return ASSUMED_PULL
    by_chance += (n_users - n_several) * within / n_several
    between = squares / n_users - (total / n_users) ** 2 - by_chance / n_users
    shrinkage = PULLS * (within / n_several) / max(between, 1e-9)
    return float(np.clip(shrinkage, MIN_SHRINKAGE, MAX_SHRINKAGE))


def _bounded(features: Array) -> Array:
    return np.clip(features, -LARGEST_FEATURE, LARGEST_FEATURE)
