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
from fedmmf.masks.models import INTERCEPT_PENALTY

LINEAR = ("none", "mean", "lr")
WITNESSES = 3  # items that propose values of an unknown lambda


@dataclass(frozen=True, eq=False)
class Problem:
    """One user's masked ratings, as the models see them: y = (r - mean) / span."""

    masked: Array  # (n,) m = y - f
    x: Array  # (n, d)
    unit_levels: Array  # (n_levels,) the scale's ratings as values of y


def misfit(y: Array, unit_levels: Array) -> float:
    """Root mean square distance to the nearest level, in steps; 0 for real ratings."""
    step = unit_levels[1] - unit_levels[0]
    nearest = np.clip(np.rint((y - unit_levels[0]) / step), 0, len(unit_levels) - 1)
    return float(np.sqrt(np.mean(np.square((y - unit_levels[0]) / step - nearest))))


def unmask(
    problem: Problem, strength: float, intercept_penalty: float = INTERCEPT_PENALTY
) -> Array:
    """Undo a ridge mask: y = m + A D^-1 A^T m; free of the intercept's penalty, level open. (n,).

    Args:
        problem: of one user.
        strength: lambda.
        intercept_penalty: 0 where the intercept is free; the scale then decides its value.
    """
    m, x = problem.masked, problem.x
    y = m + x @ (x.T @ m) / strength
    if intercept_penalty:
        return np.asarray(y + m.sum() / intercept_penalty)
    return np.asarray(y + _level(y, problem.unit_levels))


def unmask_any_strength(problem: Problem) -> Array:
    """Undo a ridge mask of unknown lambda: the 1/lambda that puts every rating on a level. (n,)."""
    m, x = problem.masked, problem.x
    base, slope = m + m.sum() / INTERCEPT_PENALTY, x @ (x.T @ m)
    candidates = _inverse_strengths(base, slope, problem.unit_levels)
    fits = [misfit(base + t * slope, problem.unit_levels) for t in candidates]
    return np.asarray(base + candidates[int(np.argmin(fits))] * slope)


def unmask_cross_fitted(
    problem: Problem, strength: float, intercept_penalty: float, folds: int
) -> Array:
    """Undo a mask whose models had not seen the rating: solve (I - S) y = m. (n,).

    Row i of S belongs to the model of the other folds: a_i^T (A_o^T A_o + D)^-1 A_o^T.
    """
    n, d = problem.x.shape
    a = np.column_stack((np.ones(n), problem.x))
    penalties = np.diag(np.concatenate(([intercept_penalty], np.full(d, strength))))
    fold_of = np.arange(n) % folds  # as the masks deal them
    system = np.eye(n)
    for fold in range(min(folds, n)):
        inside, outside = fold_of == fold, fold_of != fold
        normal = a[outside].T @ a[outside] + penalties
        system[np.ix_(inside, outside)] -= a[inside] @ np.linalg.solve(normal, a[outside].T)
    return np.asarray(np.linalg.lstsq(system, problem.masked, rcond=1e-12)[0])


def _inverse_strengths(base: Array, slope: Array, unit_levels: Array) -> Array:
    """Values of 1/lambda that put one of the most telling items on a level; 0: no slope at all."""
    tellers = np.argsort(-np.abs(slope))[:WITNESSES]
    tellers = tellers[np.abs(slope[tellers]) > 1e-9]
    values = (unit_levels[:, np.newaxis] - base[tellers]) / slope[tellers]
    return np.concatenate(([0.0], values[values > 0]))


def _level(y: Array, unit_levels: Array) -> float:
    """The shift that puts y on levels; of several, the one nearest to the scale's middle."""
    shifts = unit_levels - y[0]
    fits = np.array([misfit(y + shift, unit_levels) for shift in shifts])
    is_best = fits < fits.min() + 1e-4
    middle = unit_levels.mean() - y.mean()
    return float(shifts[is_best][np.argmin(np.abs(shifts[is_best] - middle))])


def invert(view: Exposed) -> Array:
    """Ratings of every user of a linear mask. (n,)."""
    out = np.zeros(len(view.lists.items))
    unit_levels = (levels_of(view.scale) - view.mean) / view.scale.span
    for rows in view.ranges:
        if rows.stop > rows.start:
            x = _features_used(view, rows)
            out[rows] = _invert_one(Problem(view.unit_masked[rows], x, unit_levels), view)
    return np.asarray(view.mean + view.scale.span * out)


def _features_used(view: Exposed, rows: slice) -> Array:
    if not view.plan.family.needs_features:
        return np.zeros((rows.stop - rows.start, 0))
    return np.asarray(view.features[view.lists.items[rows]])


def _invert_one(problem: Problem, view: Exposed) -> Array:
    plan = view.plan
    if plan.kind == "none":
        return problem.masked
    if not view.knows_strength and plan.kind == "lr" and not plan.cross_fit:
        return unmask_any_strength(problem)
    every = (plan.family.default_strength, *plan.family.strengths)
    strengths = plan.strengths if view.knows_strength else every
    solutions = [_undo(problem, strength, plan) for strength in strengths]
    return min(solutions, key=lambda y: misfit(y, problem.unit_levels))


def _undo(problem: Problem, strength: float, plan: MaskPlan) -> Array:
    # The family `mean` is an intercept alone, and its strength is the intercept's penalty.
    intercept_penalty = strength if plan.kind == "mean" else INTERCEPT_PENALTY
    if plan.cross_fit:
        return unmask_cross_fitted(problem, strength, intercept_penalty, plan.folds)
    return unmask(problem, strength, intercept_penalty)


def invert_blindly(view: Exposed) -> Array:
    """The same without knowing lambda. (n,)."""
    return invert(replace(view, knows_strength=False))


_KNOWS = "The masked ratings, the item features, and that the mask is a ridge regression"
INVERSION = Attack(
    name="inversion",
    knows=f"{_KNOWS} of known strength.",
    outputs="A rating for each masked rating.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=invert,
    masks=LINEAR,
)
BLIND_INVERSION = replace(
    INVERSION, name="inversion, strength unknown", knows=f"{_KNOWS}.", guess=invert_blindly
)
