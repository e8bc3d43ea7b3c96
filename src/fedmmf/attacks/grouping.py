"""Whole steps within groups: items with equal features share f, in any deterministic family.

Within such a group of one user's items (and fold, where masks are cross-fitted), masked ratings
differ by exactly what the ratings differ by. The spread of a group on the scale, and the prior,
then decide where each group stands. No training is undone, and no family has to be known.
"""

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.levels import OFF_SCALE_COST
from fedmmf.attacks.view import Exposed, levels_of


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
