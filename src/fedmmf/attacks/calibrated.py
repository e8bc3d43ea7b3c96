"""What one sum over a cohort says about each of its members, weighed against the public's prior.

In round 1 of `sgd` a party with residuals e_i adds lambda q_i - e_i p to the rows of its items.
With lambda, q and the raters known, what the sum leaves is T_i = sum over raters of e_u p_u, and
all p_u have just left one public start. What is said of one member's e comes as a `Belief`: a mean
and a variance, beside what public knowledge had said before. The ratio of the two is a message
about the rating, which `posterior` multiplies with the prior of the rating's levels.

The weight of that message is the attacker's to choose, and `calibrate` chooses it on other people.
The attack of this file looks at the level alone, the column in which all p_u are near 1, and gives
each rater an equal part of an item's deviation; `unmixing` looks at all columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import View, levels_of, per_user_mean
from fedmmf.solvers.sgd import SgdPlan

WEIGHTS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5)
WOBBLE = 0.03  # squared steps by which a mask differs from one number per user
BIAS_SPREAD = 0.5  # steps; how users differ in their mean from the public
BIASES = np.linspace(-3.0, 3.0, 21)  # in spreads


@dataclass(frozen=True, eq=False, kw_only=True)
class SummedView(View):
    """The sum of round 1 over a cohort, all members of which are attacked, and who rated what.

    Attributes:
        plan: the run's public plan.
        item_factors: q of round 1. (n_items, k)
        rows: summed over each item's raters; zero where an item is left out. (n_items, k)
        is_centred: whether masks take a user's mean away.
        weights: how far each user's part of the sum is trusted; see `calibrate`. (n_users,)
        beliefs: what has been read from this sum, by the name of the way to read it.
    """

    plan: SgdPlan
    item_factors: Array
    rows: Array
    is_centred: bool
    weights: Array
    beliefs: dict[str, "Belief"] = field(default_factory=dict, repr=False)

    def believed(self, believe: Callable[["SummedView"], "Belief"]) -> "Belief":
        """What a way to read the sum finds; copies with other weights do not find it anew."""
        if believe.__name__ not in self.beliefs:
            self.beliefs[believe.__name__] = believe(self)
        return self.beliefs[believe.__name__]

    @cached_property
    def public_mean(self) -> Array:
        """What the public expects of each rating. (n,)."""
        return np.asarray(self.prior @ levels_of(self.scale))

    @cached_property
    def n_raters(self) -> Array:
        """Members who rated each item. (n_items,)."""
        return self.lists.counts(len(self.rows))

    @cached_property
    def is_shown(self) -> Array:
        """Items that the sum contains. (n_items,) bool."""
        return np.asarray((self.rows != 0).any(axis=1) & (self.n_raters > 0))

    @cached_property
    def left(self) -> Array:
        """T_i: sum over raters of e p. (n_items, k)."""
        penalty = self.plan.regularization * self.n_raters[:, np.newaxis]
        return np.where(self.is_shown[:, np.newaxis], penalty * self.item_factors - self.rows, 0.0)

    @cached_property
    def expected(self) -> Array:
        """What the public expects of each residual e at the public start of p. (n,)."""
        own = per_user_mean(self.public_mean, self.lists)  # (n_users,)
        level = own[self.lists.users] if self.is_centred else 0.0
        return np.asarray(self.public_mean - level - self.item_factors[self.lists.items, 0])


@dataclass(frozen=True, eq=False)
class Belief:
    """What is thought of each residual, beside what the public expects of it.

    Attributes:
        deviation: from the expected, and its variance after the sum. (n,) each
        spread: variance before the sum.
    """

    deviation: Array
    variance: Array
    spread: float


def spread_of(view: SummedView) -> float:
    """Variance of one residual around the expected, as the sums themselves show it."""
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


def posterior(view: SummedView, belief: Belief) -> Array:
    """Logarithm of how probable each level of each rating is, up to a constant. (n, n_levels).

    A rating differs from what the public expects by e's deviation and by the user's bias, which
    masks hide; the bias is averaged over.
    """
    step = view.scale.step
    tilt, precision = _message(view, belief)
    off = (levels_of(view.scale) - view.public_mean[:, np.newaxis]) / step  # (n, n_levels)
    log_prior = np.log(np.maximum(view.prior, 1e-12))
    biases = BIAS_SPREAD * BIASES if view.is_centred else np.zeros(1)
    made = np.stack([log_prior + _log_message(tilt, precision, off - bias) for bias in biases])
    norms = np.logaddexp.reduce(made, axis=2)  # (n_biases, n)
    users = view.lists.users
    fits: Array = np.stack([np.bincount(users, norm, view.lists.n_users) for norm in norms])
    fits = fits - 0.5 * np.square(biases / BIAS_SPREAD)[:, np.newaxis]  # (n_biases, n_users)
    fits -= np.logaddexp.reduce(fits, axis=0)
    return np.asarray(
        np.logaddexp.reduce(made - norms[:, :, np.newaxis] + fits[:, users, np.newaxis], axis=0)
    )


def _message(view: SummedView, belief: Belief) -> tuple[Array, Array]:
    """Tilt and precision of N(after) / N(before), in steps. (n,) each."""
    step = view.scale.step
    spread = belief.spread / step**2 + WOBBLE
    variance = np.minimum(np.maximum(belief.variance, 0.0) / step**2 + WOBBLE, spread)
    deviation = belief.deviation / step
    if view.is_centred:  # residuals of a masked user add up to nearly nothing
        deviation = deviation - per_user_mean(deviation, view.lists)[view.lists.users]
    is_told = variance < spread
    tilt = np.where(is_told, deviation / variance, 0.0)
    weights = view.weights[view.lists.users]  # (n,)
    return weights * tilt, weights * (1 / variance - 1 / spread)


def _log_message(tilt: Array, precision: Array, off: Array) -> Array:
    """Of a Gaussian, up to a constant: tilt d - precision d^2 / 2. (n, n_levels)."""
    return np.asarray(tilt[:, np.newaxis] * off - 0.5 * precision[:, np.newaxis] * off**2)


def most_probable(view: SummedView, belief: Belief) -> Array:
    """The level to guess for each rating; without a weight, the prior's own guess. (n,)."""
    if len(view.lists.items) == 0:
        return np.zeros(0)
    found = levels_of(view.scale)[posterior(view, belief).argmax(axis=1)]
    return np.where(view.weights[view.lists.users] > 0, found, view.prior_guess)


def calibrate(attack: Attack, rehearsals: Sequence[tuple[SummedView, Array]]) -> float:
    """The weight under which most of other people's ratings are found; of equals the smallest.

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


def trusting(view: SummedView, weight: float) -> SummedView:
    """The same view, with one weight for everybody."""
    return replace(view, weights=np.full(view.lists.n_users, weight))


def calibrated_guess(view: SummedView) -> Array:
    """A rating for each item that a member rated. (n,)."""
    return most_probable(view, view.believed(believe_level))


KNOWS = (
    "The sum of round 1 over a cohort, who of it rated what, the item factors, the plan and other "
    "people's ratings, on which the sum's weight was chosen."
)
CALIBRATED = Attack(
    name="calibrated",
    knows=KNOWS,
    outputs="A rating for each item that a member of the cohort rated.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=calibrated_guess,
    target="sums",
)
