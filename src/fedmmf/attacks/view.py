"""What an attacker may look at: what left the parties, and what is public."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from fedmmf import rng, simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.masks import FAMILIES, FittedMasks
from fedmmf.scale import RatingScale

PRIOR_PARTS = 5  # a user's prior comes from the users of the other parts
PRIOR_SHRINKAGE = 5.0  # ratings' worth of pull of an item's distribution towards everybody's


@dataclass(frozen=True, eq=False, kw_only=True)
class View:
    """Which items the attacked users rated, and what the public knows about these items.

    Attributes:
        users: codes of the attacked users. (n_users,)
        indptr: where each user's ratings begin. (n_users + 1,)
        items: item codes. (n,)
        scale: of the ratings; public.
        prior: probability of each level of the scale, from other users' ratings. (n, n_levels)
    """

    users: Array
    indptr: Array
    items: Array
    scale: RatingScale
    prior: Array

    @property
    def ranges(self) -> Iterator[slice]:
        """The rows of each user."""
        return (slice(begin, end) for begin, end in pairwise(self.indptr.tolist()))

    @property
    def prior_guess(self) -> Array:
        """The most probable rating of each item, by the prior alone. (n,)."""
        return np.asarray(levels_of(self.scale)[self.prior.argmax(axis=1)])

    def rows_of(self, keep: Array) -> Array:
        """Which rows belong to the users where `keep` (n_users,) holds. (n,) bool."""
        return np.repeat(keep, np.diff(self.indptr))


@dataclass(frozen=True, eq=False, kw_only=True)
class Exposed(View):
    """What a server holds of parties that share in the clear, once it has their masked ratings.

    Attributes:
        masked: r - f_u(i). (n,)
        features: public item features. (n_items, d)
        mask: name of the mask's family.
        strengths: what the regularisation may be, as the settings say; empty: unknown.
        cross_fit: whether each rating was masked by a model that had not seen it.
        folds: of the cross-fitting.
        extremes: each user's smallest and largest rating, which the paper's recovery attack is
            given and no other uses; None: unknown. (n_users, 2)
    """

    masked: Array
    features: Array
    mask: str
    strengths: tuple[float, ...]
    cross_fit: bool = False
    folds: int = 5
    extremes: Array | None = None

    def only(self, keep: Array) -> Self:
        """The same for the users where `keep` (n_users,) holds."""
        rows = self.rows_of(keep)
        return replace(
            self,
            users=self.users[keep],
            indptr=np.concatenate(([0], np.cumsum(np.diff(self.indptr)[keep]))),
            items=self.items[rows],
            prior=self.prior[rows],
            masked=self.masked[rows],
            extremes=None if self.extremes is None else self.extremes[keep],
        )

    @cached_property
    def unit_masked(self) -> Array:
        """Masked ratings as the masks' models see them: centred, divided by the span. (n,)."""
        masked = self.masked.astype(np.float64)
        offset = 0.0 if FAMILIES[self.mask].is_centred else self.scale.midpoint
        return np.asarray((masked - offset) / self.scale.span)


def levels_of(scale: RatingScale) -> Array:
    """All ratings of the scale. (n_levels,)."""
    return scale.min + scale.step * np.arange(round(scale.span / scale.step) + 1)


def nearest_level(ratings: Array, scale: RatingScale) -> Array:
    """Number of the level nearest to each value, kept on the scale. (n,) int64."""
    steps = np.rint((np.asarray(ratings, np.float64) - scale.min) / scale.step)
    return np.clip(steps, 0, len(levels_of(scale)) - 1).astype(np.int64)


def nearest_rating(values: Array, scale: RatingScale) -> Array:
    """The rating of the scale that is nearest to each value. (n,)."""
    return levels_of(scale)[nearest_level(values, scale)]


def per_user_mean(values: Array, indptr: Array) -> Array:
    """Mean over each user's rows; NaN for users without any. (n_users,)."""
    totals = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    counts = np.diff(indptr)
    sums = totals[indptr[1:]] - totals[indptr[:-1]]
    means: Array = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means


def public_prior(ratings: Ratings, seed: int = 0) -> Array:
    """Probability of each level for each rating's item, from other people's ratings alone.

    Users are dealt into parts; what is public for one part is the ratings of all others. An item's
    distribution is shrunk towards that of all items. (n, n_levels)
    """
    n_levels = len(levels_of(ratings.scale))
    part_of_user = rng.stream(seed, "prior parts").permutation(ratings.n_users) % PRIOR_PARTS
    parts = part_of_user[ratings.user_codes]  # (n,)
    level = nearest_level(ratings.values, ratings.scale)
    cells = ratings.item_codes * np.int64(n_levels) + level
    prior = np.empty((ratings.n_ratings, n_levels))
    for part in range(PRIOR_PARTS):
        others = cells[parts != part]
        counts = np.bincount(others, minlength=ratings.n_items * n_levels) + 0.0
        by_item = counts.reshape(ratings.n_items, n_levels)
        everybody = (by_item.sum(axis=0) + 1.0) / (by_item.sum() + n_levels)
        by_item += PRIOR_SHRINKAGE * everybody
        here = parts == part
        prior[here] = by_item[ratings.item_codes[here]]
    return np.asarray(prior / prior.sum(axis=1, keepdims=True))


def restrict(ratings: Ratings, users: Array) -> Ratings:
    """The ratings of some users alone, who get new codes in the order of `users`, increasing."""
    keep = np.isin(ratings.user_codes, users)
    chosen = ratings.select(keep)
    codes = np.searchsorted(users, chosen.user_codes).astype(np.int32)
    return replace(chosen, user_codes=codes, user_ids=ratings.user_ids[users])


def known_strengths(settings: Settings) -> tuple[float, ...]:
    """What the settings tell an attacker about the regularisation of the masks."""
    family = FAMILIES[settings.mask]
    if settings.mask_strength == "auto":
        return family.strengths
    return (settings.mask_strength or family.default_strength,)


def expose(ratings: Ratings, settings: Settings, masks: FittedMasks | None = None) -> Exposed:
    """What a server would hold if every user shared in the clear and leaked its masked ratings."""
    features = simulation.feature_matrix(ratings, settings)
    masks = masks or simulation.fit_all_masks(ratings, features, settings)
    return Exposed(
        users=np.arange(ratings.n_users),
        indptr=ratings.by_user,
        items=ratings.item_codes,
        scale=ratings.scale,
        prior=public_prior(ratings, settings.seed),
        masked=masks.masked_ratings(settings.cross_fit),
        features=features,
        mask=settings.mask,
        strengths=known_strengths(settings),
        cross_fit=settings.cross_fit,
        folds=settings.folds,
        extremes=_extremes(ratings),
    )


def _extremes(ratings: Ratings) -> Array:
    """Each user's smallest and largest rating. (n_users, 2)."""
    found = np.full((ratings.n_users, 2), ratings.scale.midpoint)
    for user, (begin, end) in enumerate(pairwise(ratings.by_user.tolist())):
        if end > begin:
            mine = ratings.values[begin:end]
            found[user] = mine.min(), mine.max()
    return found


def noise(view: Exposed, seed: int = 0) -> Exposed:
    """The control of every attack on masked ratings: numbers that have nothing to do with them."""
    draw = rng.stream(seed, "control").uniform(-0.5, 0.5, len(view.masked))
    offset = 0.0 if FAMILIES[view.mask].is_centred else view.scale.midpoint
    return replace(view, masked=np.asarray(offset + view.scale.span * draw, np.float32))
