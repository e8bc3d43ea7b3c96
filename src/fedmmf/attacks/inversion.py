"""Linear inversion of a ridge mask: exact ratings from masked ratings, whatever J is (errata 13).

With A = (1, x) and penalties D = diag(intercept's, lambda, ..., lambda), the mask is H y with
H = A (A^T A + D)^-1 A^T, and masked = (I - H) y. The inverse needs no solving:

    (I - H)^-1 = I + A D^-1 A^T   (Woodbury), so   y = m + A D^-1 A^T m.

It is affine in 1/lambda. An attacker who does not know lambda tries the few values that put one
item on a level of the scale, and keeps the one that puts all of them on levels. Without a penalty
on the intercept the level of y is lost, and the same test finds it again. A cross-fitted mask is
linear as well, with another matrix; there an unknown lambda is looked for among the family's own.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import Exposed, levels_of
from fedmmf.masks.fitting import MaskPlan

WITNESSES = 3  # items that propose values of an unknown lambda


@dataclass(frozen=True, eq=False)
class Problem:
    """One user's masked ratings, as the models see them: y = r - base, in spans of the scale."""

    masked: Array  # (n,) m = y - f
    x: Array  # (n, d)
    base: Array  # (n,) the default user's rating, from the lowest rating on
    unit_levels: Array  # (n_levels,) the scale's ratings, from 0 to 1
    shrinkage: float  # penalty of the intercept

    def misfit(self, y: Array) -> float:
        """Root mean square distance of ratings to the nearest level, in steps; 0 for real ones."""
        return misfit(y + self.base, self.unit_levels)


def misfit(y: Array, unit_levels: Array) -> float:
    """Root mean square distance to the nearest level, in steps; 0 for real ratings."""
    step = unit_levels[1] - unit_levels[0]
    nearest = np.clip(np.rint((y - unit_levels[0]) / step), 0, len(unit_levels) - 1)
    return float(np.sqrt(np.mean(np.square((y - unit_levels[0]) / step - nearest))))


def unmask(problem: Problem, strength: float) -> Array:
    """Undo a ridge mask: y = m + A D^-1 A^T m; a free intercept is the scale's. (n,)."""
    m, x = problem.masked, problem.x
    y = m + x @ (x.T @ m) / strength
    if problem.shrinkage:
        return np.asarray(y + m.sum() / problem.shrinkage)
    return np.asarray(y + _level(y + problem.base, problem.unit_levels))


def unmask_any_strength(problem: Problem) -> Array:
    """Undo a ridge mask of unknown lambda: the 1/lambda that puts every rating on a level. (n,)."""
    m, x = problem.masked, problem.x
    start, slope = m + m.sum() / problem.shrinkage, x @ (x.T @ m)
    candidates = _inverse_strengths(start + problem.base, slope, problem.unit_levels)
    fits = [problem.misfit(start + t * slope) for t in candidates]
    return np.asarray(start + candidates[int(np.argmin(fits))] * slope)


def unmask_cross_fitted(problem: Problem, strength: float, folds: int) -> Array:
    """Undo a mask whose models had not seen the rating: solve (I - S) y = m. (n,).

    Row i of S belongs to the model of the other folds: a_i^T (A_o^T A_o + D)^-1 A_o^T.
    """
    n, d = problem.x.shape
    a = np.column_stack((np.ones(n), problem.x))
    penalties = np.diag(np.concatenate(([problem.shrinkage], np.full(d, strength))))
    fold_of = np.arange(n) % folds  # as the masks deal them
    system = np.eye(n)
    for fold in range(min(folds, n)):
        inside, outside = fold_of == fold, fold_of != fold
        normal = a[outside].T @ a[outside] + penalties
        system[np.ix_(inside, outside)] -= a[inside] @ np.linalg.solve(normal, a[outside].T)
    return np.asarray(np.linalg.lstsq(system, problem.masked, rcond=1e-12)[0])


def _inverse_strengths(start: Array, slope: Array, unit_levels: Array) -> Array:
    """Values of 1/lambda that put one of the most telling items on a level; 0: no slope at all."""
    tellers = np.argsort(-np.abs(slope))[:WITNESSES]
    tellers = tellers[np.abs(slope[tellers]) > 1e-9]
    values = (unit_levels[:, np.newaxis] - start[tellers]) / slope[tellers]
    return np.concatenate(([0.0], values[values > 0]))


def _level(y: Array, unit_levels: Array) -> float:
    """The shift that puts y on levels; of several, the one nearest to the scale's middle."""
    shifts = unit_levels - y[0]
    fits = np.array([misfit(y + shift, unit_levels) for shift in shifts])
    is_best = fits < fits.min() + 1e-4
    middle = unit_levels.mean() - y.mean()
    return float(shifts[is_best][np.argmin(np.abs(shifts[is_best] - middle))])


def invert(view: Exposed) -> Array:
    """Guess the ratings of every user of a linear mask. (n,)."""
    out = np.zeros(len(view.lists.items))
    unit_levels = np.asarray(view.scale.to_unit(levels_of(view.scale)))
    base = np.asarray(view.scale.to_unit(view.base))
    for rows in view.ranges:
        if rows.stop > rows.start:
            x = _features_used(view, rows)
            about = (view.unit_masked[rows], x, base[rows], unit_levels, view.population.shrinkage)
            out[rows] = _invert_one(Problem(*about), view)
    return np.asarray(view.base + view.scale.span * out)


def _features_used(view: Exposed, rows: slice) -> Array:
    if not view.plan.family.needs_features:
        return np.zeros((rows.stop - rows.start, 0))
    return np.asarray(view.features[view.lists.items[rows]])


def _invert_one(problem: Problem, view: Exposed) -> Array:
    plan = view.plan
    if plan.family.is_empty:
        return problem.masked
    if not view.knows_strength and plan.family.needs_features and not plan.cross_fit:
        return unmask_any_strength(problem)
    default = plan.family.default_strength or problem.shrinkage
    every = (default, *plan.family.strengths)
    strengths = plan.strengths(problem.shrinkage) if view.knows_strength else every
    solutions = [_undo(problem, strength, plan) for strength in strengths]
    return min(solutions, key=problem.misfit)


def _undo(problem: Problem, strength: float, plan: MaskPlan) -> Array:
    if not plan.family.needs_features:  # an intercept alone, whose penalty is the strength
        problem = replace(problem, shrinkage=strength)
    if plan.cross_fit:
        return unmask_cross_fitted(problem, strength, plan.folds)
    return unmask(problem, strength)


def invert_blindly(view: Exposed) -> Array:
    """Guess ratings without knowing lambda. (n,)."""
    return invert(replace(view, knows_strength=False))


_KNOWS = "The masked ratings, the item features, and that the mask is a ridge regression"
INVERSION = Attack(
    name="inversion",
    knows=f"{_KNOWS} of known strength.",
    outputs="A rating for each masked rating.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=invert,
    linear_only=True,
)
BLIND_INVERSION = replace(
    INVERSION, name="inversion, strength unknown", knows=f"{_KNOWS}.", guess=invert_blindly
)
