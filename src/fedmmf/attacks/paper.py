"""The paper's two attacks on masked ratings (section 4.2): recovery and ranking.

Recovery stretches masked ratings over the rating scale. The paper gives the attacker the smallest
and the largest of each user's ratings; where a view does not hold them, the ends of the public
scale stand in. Our reading, where the paper is silent (errata 22, 27): the smallest and largest
masked rating are mapped linearly to these; g counts steps of the scale; a recovered value counts if
it is less than g steps off, without rounding; alpha is the share of a user's ratings that count.

Ranking takes the highest masked ratings for the highest ratings. Our reading (errata 27, 28): h
counts tenths of a user's list, rounded up to whole items. `strict` breaks ties of the true ratings
by position, as the paper's sorting does. Tie-tolerant counts every item that is rated as high as
the last one of the true top: with ratings of five levels most tops end within a tie, and `strict`
then understates the attack.
"""

from functools import partial

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import Exposed, View, levels_of, per_user_mean

EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def stretch(view: Exposed) -> Array:
    """Stretch masked ratings over the scale; equal ones become the middle. (n,)."""
    out = np.empty(len(view.masked))
    ends = np.tile((view.scale.min, view.scale.max), (len(view.users), 1))
    ends = ends if view.extremes is None else view.extremes  # (n_users, 2)
    for rows, (low, high) in zip(view.ranges, ends, strict=True):
        values = view.masked[rows].astype(np.float64)
        width = np.ptp(values) if len(values) else 0.0
        inside = (values - values.min()) / width if width > 0 else np.full(len(values), 0.5)
        out[rows] = low + (high - low) * inside
    return out


def recovery_rate(view: View, guesses: Array, truth: Array, *, g: float) -> Array:
    """Return alpha: the share of a user's ratings less than g steps off. (n_users,)."""
    # The tolerance keeps float32 noise from deciding differences of exactly g steps.
    is_close = np.abs(guesses - truth) < g * view.scale.step - 1e-6
    return per_user_mean(is_close, view.lists)


def prior_rate(view: View, truth: Array, *, g: float) -> Array:
    """Alpha of the best guess by the prior alone: for each item, the most probable window.

    A window between two levels holds both of them, so values at half steps are tried as well.
    """
    levels = levels_of(view.scale)
    values = np.arange(levels[0], levels[-1] + view.scale.step / 4, view.scale.step / 2)
    is_close = np.abs(values[:, np.newaxis] - levels) < g * view.scale.step - 1e-6
    guesses = values[(view.prior @ is_close.T).argmax(axis=1)]  # (n,)
    return recovery_rate(view, guesses, truth, g=g)


def recovery(g: float = 0.5) -> Attack:
    """Make the attack at error level g, in steps of the scale; below half a step is exact."""
    return Attack(
        name=f"recovery g={g:g}",
        knows="The masked ratings of each user, and the smallest and largest of its ratings.",
        outputs="A real number for each rating.",
        measure=f"Share of a user's ratings that are less than {g:g} steps of the scale off.",
        guess=stretch,
        score=partial(recovery_rate, g=g),
        baseline=partial(prior_rate, g=g),
    )


RECOVERY = recovery()


def proportions(alpha: Array, edges: tuple[float, ...] = EDGES) -> Array:
    """Proportion of users by range of alpha, as in figure 2a; 1 is in the last range."""
    counts, _ = np.histogram(alpha[~np.isnan(alpha)], bins=edges)
    return np.asarray(counts / max(counts.sum(), 1))


def masked_scores(view: Exposed) -> Array:
    """Return the masked ratings themselves as scores to rank by. (n,)."""
    return view.masked


def hit_ratio(view: View, scores: Array, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Return beta: the share of the selected items that are in the true top. (n_users,)."""
    beta = np.full(len(view.users), np.nan)
    for user, rows in enumerate(view.ranges):
        ratings = truth[rows]
        if len(ratings) == 0:
            continue
        selected = np.argsort(-scores[rows], kind="stable")[: _top_size(len(ratings), tenths)]
        beta[user] = _true_top(ratings, tenths, strict)[selected].mean()
    return beta


def prior_hit_ratio(view: View, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Success of ranking by the items' public mean ratings. (n_users,)."""
    expected = view.prior @ levels_of(view.scale)
    return hit_ratio(view, expected, truth, tenths=tenths, strict=strict)


def random_hit_ratio(view: View, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Mean success of selecting items at random, as beside figure 2b. (n_users,)."""
    beta = np.full(len(view.users), np.nan)
    for user, rows in enumerate(view.ranges):
        if rows.stop > rows.start:
            beta[user] = _true_top(truth[rows], tenths, strict).mean()
    return beta


def ranking(tenths: int = 1, *, strict: bool = False) -> Attack:
    """Make the attack at h = `tenths` tenths of each user's list."""
    rule = "with ties broken by position" if strict else "where ties with its last item count too"
    return Attack(
        name=f"ranking h={tenths}{' strict' if strict else ''}",
        knows="The masked ratings of each user.",
        outputs="An order of each user's items.",
        measure=f"Share of the top {10 * tenths} % guessed that is in the true top, {rule}.",
        guess=masked_scores,
        score=partial(hit_ratio, tenths=tenths, strict=strict),
        baseline=partial(prior_hit_ratio, tenths=tenths, strict=strict),
        finds="order",
    )


def _top_size(n: int, tenths: int) -> int:
    return -(-n * tenths // 10)


def _true_top(ratings: Array, tenths: int, strict: bool) -> Array:
    """Whether an item is in the true top. (n,) bool."""
    order = np.argsort(-ratings, kind="stable")
    top = order[: _top_size(len(ratings), tenths)]
    if not strict:
        return np.asarray(ratings >= ratings[top[-1]])
    is_top = np.zeros(len(ratings), bool)
    is_top[top] = True
    return is_top


RANKING = ranking()
