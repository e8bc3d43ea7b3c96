"""Whole steps within groups: items with equal features share f, in any deterministic family.

Within such a group of one user's items (and fold, where masks are cross-fitted), masked ratings
differ by exactly what the ratings differ by. The spread of a group on the scale, and the prior,
then decide where each group stands. No training is undone, and no family has to be known.

`place` finds which whole steps a user's ratings are, once their differences are known. Ratings up
to a common shift are decided by what is public: no rating is off the scale, items have known
distributions, and the user's mean mask is near the sum of its masked ratings by the shrinkage: this
penalty of the intercept b makes shrinkage b = sum(masked) where training has converged.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import Exposed, levels_of

# These were chosen while looking at the true levels of ML-100K; figures on other data are the
# independent ones.
TILT_SPREAD, BEND_SPREAD = 0.5, 0.15  # how users differ from the public, see `user_kinds`
TILTS, BENDS = 11, 5
OFF_SCALE_COST = 20.0  # nats per rating off the scale, where rounding must have gone wrong
INTERCEPT_WIDTH = 0.5  # steps; half-width of a Cauchy distribution, as training may stop early


def place(cells: Array, prior: Array, mean_mask: Array | None = None) -> Array:
    """Find the levels of one user's ratings, given up to a common shift. (n,) int64.

    Args:
        cells: whole numbers, right up to one shift. (n,)
        prior: probability of each level, from other users. (n, n_levels)
        mean_mask: (mask, sum of masked): the mask's mean in steps if the shift were 0, and where
            its intercept should be; None where neither is known.
    """
    n_levels = prior.shape[1]
    shifts = np.arange(n_levels) - int(np.median(cells))  # the median is on the scale
    people = People.meeting(prior)
    scores = [people.score(cells + shift) for shift in shifts]
    if mean_mask is not None:
        misses = mean_mask[0] + shifts - mean_mask[1]
        scores -= np.log1p(np.square(misses / INTERCEPT_WIDTH))
    level = cells + shifts[int(np.argmax(scores))]
    return np.asarray(np.clip(level, 0, n_levels - 1))


@dataclass(frozen=True, eq=False)
class People:
    """Kinds of users who may have rated some items, with everything that no shift changes."""

    prior: Array  # (n, n_levels)
    variants: Array  # (n_variants, n_levels) see `user_kinds`
    log_starts: Array  # (n_variants,) how probable a kind is, less what makes its levels add to 1

    @classmethod
    def meeting(cls, prior: Array) -> Self:
        """Compute all kinds of users for these items."""
        variants, log_weights = user_kinds(prior.shape[1])
        log_norms = np.log(prior @ np.exp(variants).T).sum(axis=0)  # (n_variants,)
        return cls(prior, variants, log_weights - log_norms)

    def score(self, levels: Array) -> float:
        """Log probability of one user's levels, averaged over kinds of users."""
        n_levels = self.prior.shape[1]
        on_scale = np.clip(levels, 0, n_levels - 1)
        counts = np.bincount(on_scale, minlength=n_levels)
        likely = np.log(self.prior[np.arange(len(levels)), on_scale]).sum()
        by_variant = self.variants @ counts + self.log_starts
        off_scale = np.abs(levels - on_scale).sum()
        return float(likely + np.logaddexp.reduce(by_variant) - OFF_SCALE_COST * off_scale)


def user_kinds(n_levels: int) -> tuple[Array, Array]:
    """Kinds of users, who multiply the prior of level l by exp(tilt l + bend l^2); l in [-2, 2].

    A generous user has a positive tilt, one who says the same of everything a negative bend.
    """
    level = np.linspace(-2.0, 2.0, n_levels)
    tilts, bends = np.linspace(-2.5, 2.5, TILTS), np.linspace(-2.0, 2.0, BENDS)
    tilt, bend = (grid.ravel() for grid in np.meshgrid(tilts, bends))  # in spreads
    variants = np.outer(TILT_SPREAD * tilt, level) + np.outer(BEND_SPREAD * bend, level**2)
    return variants, -0.5 * (tilt**2 + bend**2)


def group_of(view: Exposed) -> Array:
    """Group number of each rating; groups of different users are different. (n,)."""
    lists, plan = view.lists, view.plan
    keys = [lists.users]
    if plan.family.needs_features:
        alike = np.unique(view.features, axis=0, return_inverse=True)[1].ravel()  # (n_items,)
        keys.append(alike[lists.items])
    if plan.cross_fit:
        keys.append((np.arange(len(lists.users)) - lists.indptr[lists.users]) % plan.folds)
    return np.unique(np.column_stack(keys), axis=0, return_inverse=True)[1].ravel()


def decode_groups(view: Exposed) -> Array:
    """Guess the most probable ratings with the differences seen within each group. (n,)."""
    if len(view.lists.items) == 0:
        return np.zeros(0)
    groups = group_of(view)
    above = steps_above_lowest(view, groups)  # (n,)
    n_levels = view.prior.shape[1]
    log_prior = np.log(view.prior)
    scores = np.empty((n_levels, groups.max() + 1))
    for lowest in range(n_levels):
        level = above + lowest  # (n,)
        on_scale = np.minimum(level, n_levels - 1)
        likely = log_prior[np.arange(len(level)), on_scale] - OFF_SCALE_COST * (level - on_scale)
        scores[lowest] = np.bincount(groups, likely)  # (n_groups,)
    level = np.minimum(above + scores.argmax(axis=0)[groups], n_levels - 1)
    return np.asarray(levels_of(view.scale)[level])


def steps_above_lowest(view: Exposed, groups: Array) -> Array:
    """Whole steps of each rating above the lowest one of its group. (n,) int64."""
    lowest = np.full(groups.max() + 1, np.inf)
    np.minimum.at(lowest, groups, view.masked.astype(np.float64))
    return np.rint((view.masked - lowest[groups]) / view.scale.step).astype(np.int64)


GROUPING = Attack(
    name="grouping",
    knows="The masked ratings, which items have equal features, and other people's ratings.",
    outputs="A rating for each masked rating; differences within a group are certain.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=decode_groups,
)
