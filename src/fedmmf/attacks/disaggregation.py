"""Attack: separate the sums of many rounds whose members change (Lam et al. 2021, section 3).

The server knows who took part in each round. If a party's update changed little from round to
round, the sums were Y = A X with the participation A (rounds, n_users) known, and enough rounds
would give every party's update X. Updates do change, all of them and slowly, so differences of
consecutive sums are taken: what everybody's slow change leaves there is noise, and what a party
leaves that comes or goes is its update. Two rounds that differ by one party alone are the plainest
case.

Each item is one regression of these differences on the differences of A, with a Gaussian prior on
the updates (a ridge). Which items a party rated is read from how large its update is; how it rated
them, from the level column, where p_u0 is near 1 and the update is nearly -e. Parties that always
come and go together share one column of A, and are told apart no better than in one sum.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import Belief, WeighedView, most_probable, trusting
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.membership import area_under_curve

WEIGHT = 0.5  # of what sums say of ratings; fixed beforehand, and so tuned on nobody
NOISES = np.logspace(-6, 0, 13)  # drift of a sum, per rater and round
SETTLING_ROUNDS = 10.0  # while training begins, sums change for other reasons


@dataclass(frozen=True, eq=False)
class RoundSums:
    """The sums of many rounds, as a server has them."""

    level: Array  # the level column of the sums, round by round. (rounds, n_items)
    present: Array  # who took part. (rounds, n_users) bool
    counts: Array  # raters of each item, once and for all, from the survey. (n_items,)
    popularity: Array  # share of other people who rated each item. (n_users, n_items)
    spread: float  # variance of an update's level; public, from other people

    @cached_property
    def changes(self) -> Array:
        """Differences of consecutive sums, early ones with less weight. (rounds - 1, n_items)."""
        return np.asarray(np.diff(self.level.astype(np.float64), axis=0) * self._trust)

    @cached_property
    def moves(self) -> Array:
        """Who came, 1, and who went, -1, with the same weight. (rounds - 1, n_users)."""
        return np.asarray(np.diff(self.present.astype(np.float64), axis=0) * self._trust)

    @property
    def _trust(self) -> Array:
        """Weights of rounds: all updates change fast while training begins. (rounds - 1, 1)."""
        number = np.arange(1, len(self.level))[:, np.newaxis]
        return np.asarray(1 / np.sqrt(1 + np.square(SETTLING_ROUNDS / number)))

    @cached_property
    def odds(self) -> Array:
        """Log odds that a user rated an item, before rounds are compared. (n_users, n_items).

        Members of a cohort are alike, so of an item that the sums show it is its share of raters. A
        rare item is left out, and had fewer raters than any that is shown.
        """
        n_users = self.present.shape[1]
        least = self.counts[self.counts > 0].min(initial=n_users) / n_users
        rare = np.minimum(self.popularity, 0.5 * least)
        chance = np.where(self.counts > 0, self.counts / n_users, rare)
        chance = np.clip(chance, 1e-6, 1 - 1e-6)
        return np.asarray(np.log(chance / (1 - chance)))


def drift(sums: RoundSums) -> float:
    """Noise per rater under which the differences seen are most probable."""
    values, vectors = np.linalg.eigh(sums.moves @ sums.moves.T)
    values = np.maximum(values, 0.0)
    power = np.square(vectors.T @ sums.changes)  # (rounds - 1, n_items)
    share = sums.counts / max(sums.present.shape[1], 1)  # (n_items,)
    shown = sums.counts > 0
    fits = []
    for noise in NOISES:
        variance = np.outer(values, sums.spread * share) + noise * (1 + sums.counts)
        terms = np.log(variance) + power / variance
        fits.append(float(-terms[:, shown].sum()))
    return float(NOISES[int(np.argmax(fits))])


def updates_of_everybody(sums: RoundSums, noise: float) -> tuple[Array, Array]:
    """Mean and variance of each user's update of each item. (n_users, n_items) each."""
    values, vectors = np.linalg.eigh(sums.moves @ sums.moves.T)
    share = np.maximum(sums.counts / max(sums.present.shape[1], 1), 1e-6)
    before = sums.spread * share  # (n_items,)
    weights = 1 / (np.outer(np.maximum(values, 0.0), before) + noise * (1 + sums.counts))
    turned = sums.moves.T @ vectors  # (n_users, rounds - 1)
    mean = before * (turned @ (weights * (vectors.T @ sums.changes)))
    told = np.square(turned) @ weights  # (n_users, n_items)
    return mean, before * (1 - np.minimum(before * told, 1 - 1e-9))


def item_scores(sums: RoundSums) -> Array:
    """Log odds that each user rated each item, from the sums alone. (n_users, n_items)."""
    mean, variance = updates_of_everybody(sums, drift(sums))
    share = np.maximum(sums.counts / max(sums.present.shape[1], 1), 1e-6)
    precision = 1 / variance - 1 / (sums.spread * share)  # of the message, without the prior
    informed = np.maximum(precision, 1e-12)
    found = (mean / variance) / informed  # the least-squares estimate
    if_rated = sums.spread + 1 / informed
    gain = 0.5 * np.square(found) * (informed - 1 / if_rated) - 0.5 * np.log(if_rated * informed)
    shown = np.broadcast_to(sums.counts > 0, gain.shape)
    return np.asarray(sums.odds + np.where(shown & (precision > 0), gain, 0.0))


def residuals_of_raters(sums: RoundSums, users: Array, items: Array) -> Belief:
    """Residual of each rater, where it is known who rated what."""
    noise, moves, changes = drift(sums), sums.moves, sums.changes
    deviation, variance = np.zeros(len(items)), np.full(len(items), sums.spread)
    order = np.argsort(items, kind="stable")
    starts = np.searchsorted(items[order], np.arange(len(sums.counts) + 1))
    for item in np.flatnonzero(sums.counts > 0).tolist():
        rows = order[starts[item] : starts[item + 1]]
        mine = moves[:, users[rows]]  # (rounds - 1, c)
        gram = mine.T @ mine + np.eye(len(rows)) * noise * (1 + len(rows)) / sums.spread
        inverse = np.linalg.inv(gram)  # (c, c)
        deviation[rows] = -inverse @ (mine.T @ changes[:, item])
        variance[rows] = noise * (1 + len(rows)) * np.diag(inverse)
    variance = np.minimum(variance, sums.spread)
    return Belief(deviation, variance, sums.spread, is_of_masked=False)


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundsView(WeighedView):
    """Sums of many rounds over a cohort, all members of which are attacked, and who rated what."""

    sums: RoundSums


@dataclass(frozen=True, eq=False)
class UnnamedRounds:
    """Sums of many rounds over a cohort, where it is not known who rated what."""

    users: Array  # codes of the cohort. (n_users,)
    sums: RoundSums


def guess_ratings(view: RoundsView) -> Array:
    """Guess a rating for each item that a member rated. (n,)."""
    if len(view.sums.level) < 2 or not len(view.lists.items):
        return view.prior_guess
    belief = residuals_of_raters(view.sums, view.lists.users, view.lists.items)
    return most_probable(trusting(view, WEIGHT), belief)


def guess_items(view: UnnamedRounds) -> Array:
    """Score all items for each user; popularity decides before there is a difference."""
    is_told = len(view.sums.level) > 1 and len(view.users) > 0
    return item_scores(view.sums) if is_told else view.sums.popularity


KNOWS = "The sums of all rounds over a cohort, who took part in each, all that is published, and "
DISAGGREGATION = Attack(
    name="disaggregation",
    knows=f"{KNOWS}who rated what, and other people's ratings.",
    outputs="A rating for each item that a member of the cohort rated.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=guess_ratings,
    target="rounds",
)
DISAGGREGATION_ITEMS = Attack(
    name="disaggregation, items",
    knows=f"{KNOWS}how many other people rated each item.",
    outputs="An order of all items for each user, the rated ones first.",
    measure="Area under the ROC curve: how often a rated item outranks an unrated one.",
    guess=guess_items,
    score=area_under_curve,
    baseline=lambda view, rated: area_under_curve(view, view.sums.popularity, rated),
    target="unnamed rounds",
    finds="items",
)
