"""Views of an attacker: what left the parties, and what is public."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines.contract import Engine
from fedmmf.errors import DataError, SettingsError
from fedmmf.masks.fitting import MaskPlan
from fedmmf.masks.population import Population

MAX_LEVELS = 1000  # of a scale; attacks weigh each level of each rating
MAX_SPANS = 1e6  # masked ratings are at most so many spans of the scale; real ones are below 2


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """The attacked users' rated items, and public knowledge about these items."""

    users: Array  # codes of the attacked users; they name the attacker's random streams. (n_users,)
    lists: RatedItems  # the items that each of them rated
    scale: RatingScale  # of the ratings; public
    # probability of each level of the scale, from other users' ratings or uniform. (n, n_levels)
    prior: Array

    @property
    def facts(self) -> dict[str, Any]:
        """Fields that every kind of view has, to make one of another kind."""
        return {name: getattr(self, name) for name in ("users", "lists", "scale", "prior")}

    @property
    def ranges(self) -> Iterator[slice]:
        """Slices of the rows of each user."""
        return map(self.lists.of, range(self.lists.n_users))

    @property
    def prior_guess(self) -> Array:
        """The most probable rating of each item, by the prior alone. (n,)."""
        return np.asarray(levels_of(self.scale)[self.prior.argmax(axis=1)])

    def rows_of(self, keep: Array) -> Array:
        """Whether a row belongs to a user where `keep` (n_users,) holds. (n,) bool."""
        return np.asarray(keep[self.lists.users])


@dataclass(frozen=True, eq=False, kw_only=True)
class Exposed(View):
    """View of a server that has the masked ratings of parties that share in the clear."""

    masked: Array  # r - f_u(i); finite. (n,)
    features: Array  # public item features. (n_items, d)
    population: Population  # which masks shrink towards
    plan: MaskPlan  # how the masks were made, as the federation's settings say
    engine: Engine  # what the attacker trains the masks' family with
    knows_strength: bool = True  # whether the attacker knows the plan's strength
    # each user's smallest and largest rating, which the paper's recovery attack is given and no
    # other uses; None: unknown. (n_users, 2)
    extremes: Array | None = None

    def __post_init__(self) -> None:
        most = MAX_SPANS * self.scale.span
        if not (np.abs(self.masked) <= most).all():  # and not NaN
            raise DataError(
                f"attacks need finite masked ratings within {most:g} of 0; leave out the users "
                "that have none"
            )

    def only(self, keep: Array) -> Self:
        """Return the view of the users where `keep` (n_users,) holds."""
        rows = self.rows_of(keep)
        indptr = np.concatenate(([0], np.cumsum(self.lists.lengths[keep])))
        return replace(
            self,
            users=self.users[keep],
            lists=RatedItems(indptr, self.lists.items[rows]),
            prior=self.prior[rows],
            masked=self.masked[rows],
            extremes=None if self.extremes is None else self.extremes[keep],
        )

    @cached_property
    def base(self) -> Array:
        """Rating of the default user for the item of each masked rating. (n,)."""
        return self.population.base(self.features, self.scale)[self.lists.items]

    @cached_property
    def unit_masked(self) -> Array:
        """Masked ratings as the masks' models see them: centred, divided by the span. (n,)."""
        offset = 0.0 if self.plan.family.is_centred else self.base
        return np.asarray((self.masked.astype(np.float64) - offset) / self.scale.span)


def levels_of(scale: RatingScale) -> Array:
    """All ratings of the scale. (n_levels,)."""
    n_levels = round(scale.span / scale.step) + 1
    if n_levels > MAX_LEVELS:
        raise SettingsError(
            f"attacks need a rating scale of at most {MAX_LEVELS} levels; {scale} has "
            f"{n_levels:,}. Give the scale that ratings were meant on"
        )
    return scale.min + scale.step * np.arange(n_levels)


def nearest_level(ratings: Array, scale: RatingScale) -> Array:
    """Number of the level nearest to each value, kept on the scale. (n,) int64."""
    steps = np.rint((np.asarray(ratings, np.float64) - scale.min) / scale.step)
    return np.clip(steps, 0, len(levels_of(scale)) - 1).astype(np.int64)


def uniform_prior(n: int, scale: RatingScale) -> Array:
    """Give every level the same probability, where nothing is known of the items. (n, l)."""
    n_levels = len(levels_of(scale))
    return np.full((n, n_levels), 1.0 / n_levels)


def extremes_of(lists: RatedItems, ratings: Array, scale: RatingScale) -> Array:
    """Each user's smallest and largest rating; the middle for users without any. (n_users, 2)."""
    found = np.full((lists.n_users, 2), scale.midpoint)
    for user in np.flatnonzero(lists.lengths).tolist():
        mine = ratings[lists.of(user)]
        found[user] = mine.min(), mine.max()
    return found


def per_user_mean(values: Array, lists: RatedItems) -> Array:
    """Mean over each user's rows; NaN for users without any. (n_users,).

    Each user's rows are added up by themselves, so that a user alone gets the same number, to the
    last bit, as among others.
    """
    sums = np.bincount(lists.users, values, lists.n_users)
    counts = lists.lengths
    means: Array = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means
