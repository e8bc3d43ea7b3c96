"""The paper's recovery attack (section 4.2): stretch masked ratings over the rating scale.

The paper gives the attacker the smallest and the largest of each user's ratings; where a view does
not hold them, the ends of the public scale stand in. Our reading, where the paper is silent (errata
22, 27): the smallest and largest masked rating are mapped linearly to these; g counts steps of the
scale; a recovered value counts if it is less than g steps off, without rounding; alpha is the share
of a user's ratings that count.
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
