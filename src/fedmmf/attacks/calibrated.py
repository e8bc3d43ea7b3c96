"""Attack: what one sum over a cohort says about each member, weighed against a public prior.

In round 1 of `sgd` a party with residuals e_i adds lambda q_i - e_i p to the rows of its items.
With lambda, q and the raters known, what the sum leaves is T_i = sum over raters of e_u p_u, and
all p_u have just left one public start. What is said of one member's e comes as a `Belief`: a mean
and a variance, beside what public knowledge had said before. The ratio of the two is a message
about the rating, which `posterior` multiplies with the prior of the rating's levels.

A residual is of a masked rating. The server knows how masks are made (`known_masks`), so a message
about masked ratings is one about the user's mask too, and about its ratings.

The weight of a message is the attacker's to choose, and `calibrate` chooses it on other people.
The attack of this file looks at the level alone, the column in which all p_u are near 1, and gives
each rater an equal part of an item's deviation; `unmixing` looks at all columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.known_masks import LEVEL_SPREAD, KnownMasks, Shifts
from fedmmf.attacks.view import View, levels_of, per_user_mean
from fedmmf.solvers.sgd import SgdPlan

WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5)
WOBBLE = 0.003  # squared steps by which residuals differ from what the start of p_u makes of them
SHIFTS = np.linspace(-3.0, 3.0, 21)  # of a user's mask, in standard deviations


@dataclass(frozen=True, eq=False, kw_only=True)
class WeighedView(View):
    """Knowledge of a server about a cohort besides its sums, for attacks that weigh them."""

    # what the server knows of masks: the published line, their family, the features
    masks: KnownMasks
    weights: Array  # how far each user's part of the sum is trusted; see `calibrate`. (n_users,)
    # results of reading the sums, by the name of the function that read them
    beliefs: dict[str, "Belief"] = field(default_factory=dict, repr=False)

    def believed(self, believe: Callable[[Any], "Belief"]) -> "Belief":
        """Return the belief that `believe` finds; copies with other weights share the cache."""
        if believe.__name__ not in self.beliefs:
            self.beliefs[believe.__name__] = believe(self)
        return self.beliefs[believe.__name__]

    @cached_property
    def public_mean(self) -> Array:
        """Public expectation of each rating. (n,)."""
        return np.asarray(self.prior @ levels_of(self.scale))

    @property
    def spread(self) -> float:
        """Variance of a rating around its public expectation."""
        squares = self.prior @ np.square(levels_of(self.scale)) - self.public_mean**2
        level = (LEVEL_SPREAD * self.scale.step) ** 2
        return float(np.mean(squares)) + level if len(squares) else 1.0


@dataclass(frozen=True, eq=False, kw_only=True)
class SummedView(WeighedView):
    """The sum of round 1 over a cohort, all members of which are attacked, and who rated what."""

    plan: SgdPlan  # the run's public plan
    item_factors: Array  # q of round 1. (n_items, k)
    rows: Array  # summed over each item's raters; zero where an item is left out. (n_items, k)

    @cached_property
    def n_raters(self) -> Array:
        """Number of members who rated each item. (n_items,)."""
        return self.lists.counts(len(self.rows))

    @cached_property
    def is_shown(self) -> Array:
        """Whether the sum contains an item. (n_items,) bool."""
        return np.asarray((self.rows != 0).any(axis=1) & (self.n_raters > 0))

    @cached_property
    def left(self) -> Array:
        """Remainder T_i: sum over raters of e p. (n_items, k)."""
        penalty = self.plan.regularization * self.n_raters[:, np.newaxis]
        return np.where(self.is_shown[:, np.newaxis], penalty * self.item_factors - self.rows, 0.0)

    @cached_property
    def expected(self) -> Array:
        """Public expectation of each residual e at the public start of p. (n,)."""
        masked = self.masks.expected(self.public_mean, self.lists)  # (n,)
        return np.asarray(masked - self.item_factors[self.lists.items, 0])


Weighed = TypeVar("Weighed", bound=WeighedView)


@dataclass(frozen=True, eq=False)
class Belief:
    """Belief about each residual, beside its public expectation."""

    deviation: Array  # from the expected, and its variance after the sum. (n,) each
    variance: Array
    spread: float  # variance before the sum
    # whether residuals are masked ratings up to public numbers. After many rounds they are not:
    # they also lack what the user's factors explain
    is_of_masked: bool = True


def spread_of(view: SummedView) -> float:
    """Variance of one residual around the expected, estimated from the sums."""
    shown, items = view.is_shown, view.lists.items
    over = view.left[:, 0] - np.bincount(items, view.expected, len(view.rows))  # (n_items,)
    squares = np.square(over[shown]) / view.n_raters[shown]
    return max(float(np.mean(squares)), 1e-3) if shown.any() else 1.0


def believe_level(view: SummedView) -> Belief:
    """Share an item's deviation among its raters: p_u0 is 1 at the start, and so T_i0 = sum e.

    The raters are alike to the server: each has an equal part of the deviation, and knowing the sum
    takes one of n_raters parts of the variance away.
    """
    items, spread = view.lists.items, spread_of(view)
    over = view.left[:, 0] - np.bincount(items, view.expected, len(view.rows))  # (n_items,)
    part = view.is_shown[items] / np.maximum(view.n_raters[items], 1)  # (n,)
    return Belief(part * over[items], spread * (1 - part), spread)


def posterior(view: WeighedView, belief: Belief) -> Array:
    """Log probability of each level of each rating, up to a constant. (n, n_levels).

    A rating differs from what the public expects by the deviation of its residual and by that of
    the user's mask. What is open about the mask is averaged over.
    """
    tilt, precision = _message(view, belief)
    shifts = _shifts(view, belief, tilt, precision)
    off = (levels_of(view.scale) - view.public_mean[:, np.newaxis]) / view.scale.step
    off = off - shifts.mean[:, np.newaxis]  # (n, n_levels)
    place = tilt / np.maximum(precision, 1e-12)  # where the message points to (n,)
    precision = precision / (1 + precision * shifts.variance)
    log_prior, users = np.log(np.maximum(view.prior, 1e-12)), view.lists.users
    made = np.empty((len(SHIFTS), *off.shape))
    for number, shift in enumerate(SHIFTS):
        miss = off - (place + shift * shifts.along)[:, np.newaxis]
        made[number] = log_prior - 0.5 * precision[:, np.newaxis] * miss**2
    norms = np.logaddexp.reduce(made, axis=2)  # (n_shifts, n)
    fits: Array = np.stack([np.bincount(users, norm, view.lists.n_users) for norm in norms])
    fits = fits - 0.5 * np.square(SHIFTS)[:, np.newaxis]  # (n_shifts, n_users)
    fits -= np.logaddexp.reduce(fits, axis=0)
    return np.asarray(
        np.logaddexp.reduce(made - norms[:, :, np.newaxis] + fits[:, users, np.newaxis], axis=0)
    )


def _message(view: WeighedView, belief: Belief) -> tuple[Array, Array]:
    """Tilt and precision of N(after) / N(before), in steps, as far as it is trusted. (n,) each."""
    step = view.scale.step
    spread = belief.spread / step**2 + WOBBLE
    variance = np.minimum(np.maximum(belief.variance, 0.0) / step**2 + WOBBLE, spread)
    deviation = belief.deviation / step
    if not belief.is_of_masked and view.masks.is_private:  # the user's mean is gone from it
        deviation = deviation - per_user_mean(deviation, view.lists)[view.lists.users]
    tilt = np.where(variance < spread, deviation / variance, 0.0)
    weights = view.weights[view.lists.users]  # (n,)
    return weights * tilt, weights * (1 / variance - 1 / spread)


def _shifts(view: WeighedView, belief: Belief, tilt: Array, precision: Array) -> Shifts:
    """Shifts of each user's ratings by its mask: known from the message, and uncertain."""
    spread = belief.spread / view.scale.step**2 + WOBBLE
    variance = 1 / (precision + 1 / spread)
    found = variance * tilt, variance  # (n,) each
    if not belief.is_of_masked:
        found = np.zeros(len(tilt)), np.full(len(tilt), 1e6)
    parts = [
        view.masks.shifts_of(view.lists.items[rows], (found[0][rows], found[1][rows]), spread)
        for rows in view.ranges
    ]
    names = ("mean", "along", "variance")
    return Shifts(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def most_probable(view: WeighedView, belief: Belief) -> Array:
    """Guess a level for each rating; without a weight, the prior's own guess. (n,)."""
    if len(view.lists.items) == 0:
        return np.zeros(0)
    if not view.weights.any():
        return view.prior_guess
    found = levels_of(view.scale)[posterior(view, belief).argmax(axis=1)]
    return np.where(view.weights[view.lists.users] > 0, found, view.prior_guess)


def calibrate(attack: Attack, rehearsals: Sequence[tuple[SummedView, Array]]) -> float:
    """Return the weight that finds most of other people's ratings; of equals the smallest.

    Args:
        attack: on sums.
        rehearsals: sums over people whose ratings the attacker knows, with these ratings. None of
            them is attacked.
    """
    means = []
    for weight in WEIGHTS:
        found = [attack.success(trusting(view, weight), truth) for view, truth in rehearsals]
        means.append(float(np.nanmean(np.concatenate(found))))
    return WEIGHTS[int(np.argmax(means))]


def trusting(view: Weighed, weight: float) -> Weighed:
    """Return the view with one weight for all users."""
    return replace(view, weights=np.full(view.lists.n_users, weight))


def calibrated_guess(view: SummedView) -> Array:
    """Guess a rating for each item that a member rated. (n,)."""
    return most_probable(view, view.believed(believe_level))


KNOWS = (
    "The sum of round 1 over a cohort, who of it rated what, the item factors, the plan, the line "
    "that masks shrink to, their family and features, and other people's ratings, on which the "
    "sum's weight was chosen."
)
CALIBRATED = Attack(
    name="calibrated",
    knows=KNOWS,
    outputs="A rating for each item that a member of the cohort rated.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=calibrated_guess,
    target="sums",
)
