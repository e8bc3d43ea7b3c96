"""Decoding masked ratings of any family, from whole steps, stationarity and public priors.

Three facts give ratings away.

*Whole steps.* masked + f is a rating, so a guess of f that is right up to a constant puts
masked + f on one phase of the scale's step. `_coherence` measures it and needs no prior.

*Stationarity.* Training ends where the penalty on each parameter equals the gradient of the
residuals, and the residuals are the masked ratings m. For the weights w of a linear part,
lambda w = sum_i m_i x_i = g, so f = b + s g.x with one unknown s per user; for `lr` and `fm`
s = 1 / lambda. In `nn` each hidden unit's weights are proportional to g while tanh is nearly
linear, and the same holds with an s of training's making. So two numbers hide a whole list of
ratings, and a scan over s finds the one that puts them on whole steps.

*The public.* What is left is the level, and `grouping.place` decides it.

What the scan found is then tested: the attacker trains the family itself on the guessed ratings and
looks whether the same masked ratings come out (`refine`). Where they do not, it alternates between
learning f from expected ratings and expecting ratings from f.
"""

from dataclasses import replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.grouping import place
from fedmmf.attacks.view import Exposed, levels_of, per_user_mean
from fedmmf.data.rated_items import RatedItems
from fedmmf.masks.fitting import MaskInput, MaskPlan, fit_masks

SCAN_POINTS = 300
SCAN_REACH = 1.5  # steps
DECISIVE = 0.5  # a move must bring the misfit below this share of what it was
FLOOR_STEPS = 1e-4  # what float32 makes of a misfit
FLOORS = 3.0  # misfits up to so many floors are not evidence
LOST_STEPS = 0.05  # a misfit that says that a guess is wrong
WIDTHS = (0.6, 0.5, 0.4, 0.35, 0.3, 0.3, 0.25, 0.25)  # steps that f may be wrong by, in turn


def naive_shift(view: Exposed) -> Array:
    """Guess by the best constant shift and rounding, user by user, without knowledge of f. (n,)."""
    return _ratings(view, scan(view, reach=0.0))


def decode(view: Exposed) -> Array:
    """Guess ratings by the scan, then test and correct them by refitting the family. (n,)."""
    return _ratings(view, refine(view, scan(view)))


def scan(view: Exposed, reach: float = SCAN_REACH) -> Array:
    """Levels of all ratings; `reach` is the largest spread of f that is tried. (n,) int64."""
    level = np.zeros(len(view.lists.items), np.int64)
    for rows in view.ranges:
        if rows.stop > rows.start:
            level[rows] = _placed(view, rows, _on_steps(view, rows, reach))
    return level


def _on_steps(view: Exposed, rows: slice, reach: float) -> Array:
    """The candidate for masked + base + f, up to a shift, nearest to whole steps. (n,)."""
    masked = _in_steps(view)[rows]
    n_folds = view.plan.folds if view.plan.cross_fit else 1
    fold_of = np.arange(len(masked)) % n_folds
    x = view.features[view.lists.items[rows]]
    candidates = (
        _along_the_gradient(masked, x, fold_of, n_folds, reach) + _base_in_steps(view)[rows]
    )
    coherence, shifts = _coherence(candidates, fold_of, n_folds)
    best = int(np.argmax(coherence))
    return np.asarray(candidates[best] + shifts[best])


def _along_the_gradient(
    masked: Array, x: Array, fold_of: Array, n_folds: int, reach: float
) -> Array:
    """Masked + s X g over a grid of s, with g of the ratings each model saw. (n_candidates, n)."""
    gradient = np.zeros(len(masked))
    for fold in range(n_folds):
        inside = fold_of == fold
        seen = ~inside if n_folds > 1 else inside
        gradient[inside] = x[inside] @ (x[seen].T @ masked[seen])
    spread = float(gradient.std())
    grid = np.linspace(0.0, reach, SCAN_POINTS) / spread if spread > 1e-9 else np.zeros(1)
    return np.asarray(masked + grid[:, np.newaxis] * gradient)


def _coherence(candidates: Array, fold_of: Array, n_folds: int) -> tuple[Array, Array]:
    """Measure how nearly values share one phase of a step; return also the shifts to phase 0.

    The length of the mean of exp(2 pi i value). Each fold has a model, and so a phase, of its own;
    of its possible shifts the one nearest to the shift of all is taken.

    Returns:
        Coherence (n_candidates,) and shifts (n_candidates, n).
    """
    waves = np.exp(2j * np.pi * candidates)  # (n_candidates, n)
    overall = -np.angle(waves.mean(axis=1)) / (2 * np.pi)
    coherence, shifts = np.zeros(len(candidates)), np.empty(candidates.shape)
    for fold in range(n_folds):
        inside = fold_of == fold
        total = waves[:, inside].sum(axis=1)
        coherence += np.abs(total) / len(fold_of)
        shift = -np.angle(total) / (2 * np.pi)
        nearest = shift + np.rint(overall - shift)
        shifts[:, inside] = nearest[:, np.newaxis]
    return coherence, shifts


def _placed(view: Exposed, rows: slice, unmasked: Array) -> Array:
    cells = np.rint(unmasked).astype(np.int64)
    masked = _in_steps(view)[rows]
    middle = _base_in_steps(view)[rows].mean()
    shrunken = masked.sum() / view.population.shrinkage
    mean_mask = np.array((cells.mean() - middle - masked.mean(), shrunken))
    is_stationary = view.plan.family.needs_features and not view.plan.cross_fit
    return place(cells, view.prior[rows], mean_mask if is_stationary else None)


def refine(view: Exposed, level: Array) -> Array:
    """Train the family on guessed ratings, compare with what was seen, and correct. (n,) int64."""
    level, misfit = _try_neighbours(view, level)
    is_lost = misfit > LOST_STEPS
    if is_lost.any():
        rows = view.rows_of(is_lost)
        level[rows] = _start_over(view.only(is_lost), level[rows], misfit[is_lost])
    return level


def _try_neighbours(view: Exposed, level: Array) -> tuple[Array, Array]:
    """Move whole lists by a step where that reproduces the masked ratings decisively better.

    A misfit no larger than what float32 makes of it says nothing.

    Returns:
        The levels (n,) and the misfit of each user (n_users,).
    """
    misfit, _ = _refit(view, _ratings(view, level))
    best = level
    for shift in (-1, 1):
        proposal = np.clip(level + shift, 0, view.prior.shape[1] - 1)
        new_misfit, _ = _refit(view, _ratings(view, proposal))
        is_better = (new_misfit < DECISIVE * misfit) & (misfit > FLOORS * FLOOR_STEPS)
        best = np.where(view.rows_of(is_better), proposal, best)
        misfit = np.where(is_better, new_misfit, misfit)
    return best, misfit


def _start_over(view: Exposed, level: Array, misfit: Array) -> Array:
    """Alternate between f and ratings, from two starts, for users whose list does not fit."""
    best = level
    for start in (_ratings(view, level), view.prior @ levels_of(view.scale)):
        proposal = _alternate(view, start)
        new_misfit, _ = _refit(view, _ratings(view, proposal))
        best = np.where(view.rows_of(new_misfit < misfit), proposal, best)
        misfit = np.minimum(new_misfit, misfit)
    return best


def _alternate(view: Exposed, ratings: Array) -> Array:
    """Fit f to expected ratings, then expect ratings from f and the prior; trust f more and more.

    Returns:
        The most probable levels in the end. (n,) int64
    """
    n_levels = view.prior.shape[1]
    posterior = view.prior
    for width in WIDTHS:
        _, fitted = _refit(view, ratings)
        unmasked = _in_steps(view) + fitted + _base_in_steps(view)
        distance = (unmasked[:, np.newaxis] - np.arange(n_levels)) / width
        nearness = -0.5 * distance**2
        # The best level has weight 1, so that f far off the scale does not underflow everything.
        posterior = view.prior * np.exp(nearness - nearness.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        ratings = posterior @ levels_of(view.scale)
    return np.asarray(posterior.argmax(axis=1))


def _refit(view: Exposed, ratings: Array) -> tuple[Array, Array]:
    """Train the family on guessed ratings.

    Returns:
        Root mean square of (guess - f) - masked, in steps (n_users,), and f in steps (n,).
    """
    given = MaskInput(view.lists, ratings, view.scale, view.features, view.population)
    masks = fit_masks(_known_plan(view), given, view.engine.mask_runner())
    guessed = masks.masked_ratings.astype(np.float64)
    error = (guessed - view.masked) / view.scale.step
    fitted = (ratings - view.base - guessed) / view.scale.step
    return _rms(error, view.lists), fitted


def _known_plan(view: Exposed) -> MaskPlan:
    """Return the attacker's plan for training the family, as far as the true one is known.

    Folds that decide nothing are as few as can be.
    """
    plan = view.plan if view.knows_strength else replace(view.plan, strength=None)
    decides = plan.cross_fit or plan.strength == "auto"
    return plan if decides else replace(plan, folds=2)


def _rms(values: Array, lists: RatedItems) -> Array:
    return np.asarray(np.sqrt(per_user_mean(values**2, lists)))


def _in_steps(view: Exposed) -> Array:
    """Masked ratings in steps of the scale. (n,)."""
    return np.asarray(view.unit_masked * view.scale.span / view.scale.step)


def _base_in_steps(view: Exposed) -> Array:
    """Ratings of the default user, in steps from the lowest rating on. (n,)."""
    return np.asarray((view.base - view.scale.min) / view.scale.step)


def _ratings(view: Exposed, level: Array) -> Array:
    return levels_of(view.scale)[level]


EXACT = "Share of a user's ratings that are exact after rounding to the scale's step."

NAIVE = Attack(
    name="shift",
    knows="The masked ratings and other people's ratings.",
    outputs="A rating for each masked rating: one shift per user, then rounding.",
    measure=EXACT,
    guess=naive_shift,
)
DECODE = Attack(
    name="decode",
    knows="The masked ratings, item features, the mask's settings and other people's ratings.",
    outputs="A rating for each masked rating, tested by refits.",
    measure=EXACT,
    guess=decode,
)
