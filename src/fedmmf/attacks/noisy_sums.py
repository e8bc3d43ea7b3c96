"""Attacks on noisy sums: a Gaussian likelihood-ratio attack on each item's rows.

The attacker is the one that differential privacy is about: it knows what everybody else added, so
that one person's part and the noise are left of each sum. What is left of an item's rows, over all
releases, is white noise with a small signal in it, whose mean and covariance it has learned from
people whom it knows. The likelihood ratio of these Gaussians, which is linear or quadratic in what
is left, says how much more probable each rating is, or that the item was rated at all. Beside it
goes what is public. `LIMITS` says what the attack leaves unused, so that others may find more.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.membership import area_under_curve
from fedmmf.attacks.view import View, levels_of

TRUSTS = (0.0, 0.25, 0.5, 1.0)
MIN_SHARE = 1e-4  # of a public frequency: nothing is impossible


@dataclass(frozen=True, eq=False)
class Signals:
    """What rated items add, in deviations of the noise, as learned from people who are known.

    Attributes:
        directions: that signals are in, orthonormal. (d, q)
        mean: of signals. (q,)
        covariance: of signals. (q, q)
        slope: change of a signal with the rating less what the public expects. (q,)
        spread: covariance of signals around that. (q, q)
        trust: weight of what sums say of ratings beside the prior, as it was best on known people.
    """

    directions: Array
    mean: Array
    covariance: Array
    slope: Array
    spread: Array
    trust: float = 1.0

    @classmethod
    def learned(cls, signals: Array, offsets: Array, most: int) -> "Signals":
        """Learn from signals without noise.

        Args:
            signals: of known people's rated items, in deviations of the noise. (m, d)
            offsets: their ratings less what the public expects. (m,)
            most: directions that are kept, those with the largest signals.
        """
        off = offsets - offsets.mean()
        slope = off @ signals / max(float(off @ off), 1e-12)  # (d,)
        second = signals.T @ signals / len(signals)  # (d, d)
        _, vectors = np.linalg.eigh(second)
        main = np.column_stack((signals.mean(axis=0), slope, vectors[:, ::-1][:, :most]))
        directions, _ = np.linalg.qr(main)
        seen = signals @ directions[:, :most]
        mean, along = seen.mean(axis=0), slope @ directions[:, :most]
        left = seen - mean - np.outer(off, along)
        return cls(directions[:, :most], mean, _covariance(seen - mean), along, _covariance(left))


def _covariance(values: Array) -> Array:
    return np.asarray(values.T @ values / max(len(values), 1))


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyView(View):
    """What all noisy sums leave of some people's rows, once everybody else's are taken off."""

    seen: Array  # along the directions of `signals`, noise included. (n_users, n_items, q)
    signals: Signals
    popularity: Array  # share of all other users who rated each item. (n_users, n_items)

    @property
    def of_rated(self) -> Array:
        """What is left of the items that they rated. (n, q)."""
        return np.asarray(self.seen[self.lists.users, self.lists.items])


def level_ratios(known: Signals, seen: Array, prior: Array, levels: Array) -> Array:
    """Log likelihood of each level of each rated item, up to a constant. (n, n_levels).

    Args:
        known: signals.
        seen: along their directions. (n, q)
        prior: probability of each level. (n, n_levels)
        levels: of the scale. (n_levels,)
    """
    precision = np.linalg.inv(np.eye(len(known.mean)) + known.spread)
    off = levels - (prior @ levels)[:, np.newaxis]  # (n, n_levels)
    tilt = (seen - known.mean) @ precision @ known.slope  # (n,)
    square = float(known.slope @ precision @ known.slope)
    return np.asarray(tilt[:, np.newaxis] * off - 0.5 * square * off**2)


def most_probable(known: Signals, seen: Array, prior: Array, levels: Array) -> Array:
    """Return the most probable level of each rated item; arguments as of `level_ratios`. (n,)."""
    found = np.log(np.maximum(prior, 1e-12))
    found = found + known.trust * level_ratios(known, seen, prior, levels)
    return np.asarray(levels[found.argmax(axis=1)])


def trusted(known: Signals, seen: Array, prior: Array, ratings: Array, levels: Array) -> Signals:
    """Return the signals with the trust that finds most of known people's ratings; or the least.

    Likelihoods take everybody's signals for equally large. Where they are not, less trust is best.
    """
    tried = [replace(known, trust=trust) for trust in TRUSTS]
    step = levels[1] - levels[0] if len(levels) > 1 else 1.0
    hits = [
        np.sum(np.abs(most_probable(one, seen, prior, levels) - ratings) < step / 2)
        for one in tried
    ]
    return tried[int(np.argmax(hits))]


def guess_ratings(view: NoisyView) -> Array:
    """Guess the most probable level of each rated item. (n,)."""
    if not len(view.lists.items):
        return np.zeros(0)
    return most_probable(view.signals, view.of_rated, view.prior, levels_of(view.scale))


def item_ratios(view: NoisyView) -> Array:
    """Log likelihood that an item was rated, less that it was not. (n_users, n_items)."""
    known = view.signals
    whole = np.eye(len(known.mean)) + known.covariance
    precision, left = np.linalg.inv(whole), view.seen - known.mean
    rated = np.einsum("uiq,qr,uir->ui", left, precision, left) + np.linalg.slogdet(whole)[1]
    return np.asarray(0.5 * (np.square(view.seen).sum(axis=2) - rated))


def rank_items(view: NoisyView) -> Array:
    """Order all items by the odds that each was rated. (n_users, n_items)."""
    share = np.clip(view.popularity, MIN_SHARE, 1 - MIN_SHARE)
    return np.asarray(np.log(share / (1 - share)) + item_ratios(view))


def area_of_popularity(view: NoisyView, rated: Array) -> Array:
    """Success of ranking by popularity alone. (n_users,)."""
    return area_under_curve(view, view.popularity, rated)


LIMITS = (
    "What attacks on noisy sums leave unused: totals, all but 8 directions of an item's rows, "
    "what items tell of each other, and signals that are not Gaussian."
)
KNOWS = (
    "The noisy rows of all releases, the size of their noise, what everybody else added to them, "
    "and the updates and ratings of other people."
)
NOISY_RATINGS = Attack(
    name="noisy sums, ratings",
    knows=f"{KNOWS} Also which items the person rated.",
    outputs="A rating for each item that the person rated: the most probable one.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=guess_ratings,
    target="noisy sums",
)
NOISY_ITEMS = Attack(
    name="noisy sums, items",
    knows=f"{KNOWS} Also how many other people rated each item.",
    outputs="An order of all items for each user, the rated ones first.",
    measure="Area under the ROC curve: how often a rated item outranks an unrated one.",
    guess=rank_items,
    score=area_under_curve,
    baseline=area_of_popularity,
    target="noisy lists",
    finds="items",
)
