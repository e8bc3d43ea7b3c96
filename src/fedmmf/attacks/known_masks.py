"""Knowledge of a server about masks that it never sees: the public line, family and features.

Every family here is a ridge regression of r - line on public columns, A, with penalties D. So the
mask of a user is A theta with D theta = A^T m, where m are the user's masked ratings. Knowing m
gives theta, and with it the ratings: that is `inversion`. Uncertain knowledge of m gives an
uncertain theta, which `shifts_of` computes for one user.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.masks.fitting import MaskPlan
from fedmmf.masks.population import Population

LEVEL_SPREAD = 0.5  # steps; how users differ in their mean from the public


@dataclass(frozen=True, eq=False)
class Shifts:
    """Uncertainty of a user's ratings, given public knowledge and masked ratings.

    mean + z * along for a common z ~ N(0, 1), and beside it noise of each rating's own.
    """

    mean: Array  # (n,)
    along: Array  # (n,)
    variance: Array  # of the noise (n,)


@dataclass(frozen=True, eq=False)
class KnownMasks:
    """Public knowledge about all masks."""

    plan: MaskPlan  # family and strength
    population: Population  # the published line, and the shrinkage of a user's level towards it
    features: Array  # of the items, as masks see them. (n_items, d)
    scale: RatingScale  # of the ratings

    @property
    def is_private(self) -> bool:
        """Whether masks have private weights; else they are the line, or nothing."""
        return not self.plan.family.is_empty and not self.plan.is_joint(self.features.shape[1])

    @cached_property
    def line(self) -> Array:
        """Line that masks shrink towards; 0 for masks that shrink towards nothing. (n_items,)."""
        if not self.plan.family.is_centred:
            return np.zeros(len(self.features))
        return self.population.base(self.features, self.scale)

    def columns(self, items: Array) -> Array:
        """Columns A: 1 and, if the family sees them, the features. (n, m)."""
        ones = np.ones((len(items), 1))
        if not self.plan.family.needs_features:
            return ones
        return np.hstack((ones, self.features[items]))

    @cached_property
    def penalties(self) -> Array:
        """The diagonal of D; of several strengths that users choose from, the middle one. (m,)."""
        shrinkage, family = self.population.shrinkage, self.plan.family
        strengths = self.plan.strengths(shrinkage)
        strength = strengths[len(strengths) // 2]
        if not family.needs_features:
            return np.array([strength])
        return np.concatenate(([shrinkage], np.full(self.features.shape[1], strength)))

    def expected(self, ratings: Array, lists: RatedItems) -> Array:
        """Masked ratings of users whose ratings were as expected. (n,)."""
        off = ratings - self.line[lists.items]
        if not self.is_private:
            return np.asarray(off)
        masked = np.array(off)
        for rows in map(lists.of, range(lists.n_users)):
            a = self.columns(lists.items[rows])
            normal = a.T @ a + np.diag(self.penalties)
            masked[rows] -= a @ np.linalg.solve(normal, a.T @ off[rows])
        return masked

    def shifts_of(self, items: Array, found: tuple[Array, Array], spread: float) -> Shifts:
        """Uncertainty of one user's mask, given knowledge of its masked ratings.

        Args:
            items: that the user rated. (n,)
            found: masked ratings less the expected, in steps, and their variances. (n,) each
            spread: variance of a rating around what is expected of it, in squared steps.
        """
        if not self.is_private or not len(items):
            nothing = np.zeros(len(items))
            return Shifts(nothing, nothing, nothing)
        a = self.columns(items)
        mean, covariance = self._weights(a, found, spread)
        values, vectors = np.linalg.eigh(covariance)
        reach = a @ (vectors * np.sqrt(np.maximum(values, 0.0)))  # (n, m)
        turn = np.linalg.eigh(reach.T @ reach)[1]  # the direction that moves ratings most is last
        turned = reach @ turn
        return Shifts(a @ mean, turned[:, -1], np.square(turned[:, :-1]).sum(axis=1))

    def _weights(self, a: Array, found: tuple[Array, Array], spread: float) -> tuple[Array, Array]:
        """Mean and covariance of theta less the expected. (m,), (m, m).

        Two things are known of it: how people differ, and D theta = A^T m.
        """
        fit = np.linalg.solve(a.T @ a + np.diag(self.penalties), a.T)  # (m, n)
        level = fit.sum(axis=1)  # how theta moves with a user's level
        before = spread * fit @ fit.T + LEVEL_SPREAD**2 * np.outer(level, level)
        if self.plan.cross_fit or not self.plan.family.is_linear:
            return np.zeros(len(before)), before
        deviation, variance = found
        shrunken = a / self.penalties  # (n, m)
        told = shrunken.T @ (variance[:, np.newaxis] * shrunken)
        gain = np.linalg.solve(before + told + 1e-9 * np.eye(len(told)), before).T  # (m, m)
        return gain @ (shrunken.T @ deviation), before - gain @ before
