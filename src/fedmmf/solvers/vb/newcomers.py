"""The prior of a newcomer's p_u: a regression on the mean of the m items that somebody is known by.

In rounds, the prior mean of p_u is linear in a sum over a user's items, through the origin. That
serves people with as many ratings as those it was learned from. Somebody with one rating would be
taken for nobody in particular, not for the mean user. For them, with t_u the mean of E[q_j] over
the items j of user u, all moments taken over users with two ratings or more,

    W_m     = (B + fpc_m S / m + ridge)^-1 cov(t, p)
    prior_m = mean p + (mean of E[q_j] over own items - mean t) W_m
    V_m     = cov p + mean posterior covariance of p_u - W_m^T cov(t, p)

B is the covariance of t_u between users, and S the mean covariance of E[q_j] within their lists. A
mean of m of u's n_u items, drawn at random, differs from t_u by (1 - m / n_u) S / m: an error in
the regressor (Fuller 1987, Measurement error models; 1 - m / n is the correction for a finite
population, whose mean over users is fpc_m). V_m is a full matrix.

All of these are means over users, so that one sum over users is all it takes.

Where a rating is predicted, the item is one that the newcomer rates: it belongs to the list too,
though its rating is unknown. So for the prediction the prior is that of m + 1 items, as in SVD++,
where the predicted pair is one of the user's implicit ones (Koren 2008).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.vb.shapes import KNOWN, VbShape, pack, unpack

RIDGE = 100.0  # of the regression, in users; chosen on folds over users of other seeds
ROUNDING = 1e-3  # largest effect of rounding on a covariance, as a share of 1 or of its largest
MIN_SHARE = 1e-6  # smallest variance in any direction, as a share of the largest


def user_totals(update_shape: VbShape, seen: Array, mean: Array, covariance: Array) -> Array:
    """What one user adds to the sum; nothing with fewer than two ratings. (n_totals,).

    Args:
        update_shape: of the run.
        seen: E[q_j] of the user's items. (n, y)
        mean: of p_u. (n_own,)
        covariance: of p_u. (n_own, n_own)
    """
    n, blocks = len(seen), update_shape.blocks["newcomers"]
    if n < 2:
        return np.zeros(blocks.size)
    middle = seen.mean(axis=0)
    beyond = seen - middle
    return blocks.join(
        n_users=np.ones(1),
        fpc=np.maximum(1.0 - np.array(KNOWN) / n, 0.0),
        item_sum=middle,
        user_sum=mean,
        between=pack(np.outer(middle, middle)),
        within=pack(beyond.T @ beyond / (n - 1)),
        cross=np.outer(middle, mean).ravel(),
        moment=pack(covariance + np.outer(mean, mean)),
    )


@dataclass(frozen=True, eq=False)
class NewcomerPrior:
    """Moments over users that decide the prior of somebody with few ratings."""

    n_users: float  # that they are over
    fpc: Array  # for each number of KNOWN (8,)
    items: Array  # mean of t_u (y,)
    users: Array  # mean of p_u (n_own,)
    between: Array  # covariance of t_u between users (y, y)
    within: Array  # of E[q_j] within users' lists (y, y)
    cross: Array  # of t_u and p_u (y, n_own)
    spread: Array  # of p_u between users, and of each posterior (n_own, n_own)

    @classmethod
    def of(cls, update_shape: VbShape, totals: Array) -> "NewcomerPrior | None":
        """Compute the moments from a sum of `user_totals`; None if no honest users could give it.

        Then newcomers get the prior of rounds. So they do where nobody has two ratings.
        """
        n_seen, n_own = update_shape.n_seen, update_shape.n_own
        n_users = float(totals[0])
        if not n_users >= 1.0:
            return None
        parts: Mapping[str, Array] = update_shape.blocks["newcomers"].split(totals / n_users)
        items, users = parts["item_sum"], parts["user_sum"]
        found = cls(
            n_users=n_users,
            fpc=np.clip(parts["fpc"], 0.0, 1.0),
            items=items,
            users=users,
            between=unpack(parts["between"], n_seen) - np.outer(items, items),
            within=unpack(parts["within"], n_seen),
            cross=parts["cross"].reshape(n_seen, n_own) - np.outer(items, users),
            spread=unpack(parts["moment"], n_own) - np.outer(users, users),
        )
        covariances = (found.between, found.within, found.spread)
        return found if all(map(_is_covariance, covariances)) else None

    def at(self, seen: Array) -> tuple[Array, Array]:
        """Mean and covariance of p_u of somebody who is known by some items.

        Args:
            seen: E[q_j] of these items. (m, y)

        Returns:
            (n_own,), (n_own, n_own)
        """
        if len(seen) == 0 or seen.shape[1] == 0:
            return self.users, self.spread
        weights = self._weights(len(seen))
        mean = self.users + (seen.mean(axis=0) - self.items) @ weights
        return mean, self.spread - weights.T @ self.cross

    def change(self, seen: Array) -> tuple[Array, Array]:
        """How the prior mean changes by one more item, whose rating is unknown.

        Args:
            seen: E[q_j] of the items that somebody is known by. (m, y)

        Returns:
            A constant and weights of the E[q] of that item. (n_own,), (y, n_own)
        """
        m, n_seen = len(seen), len(self.items)
        if n_seen == 0:
            return np.zeros(len(self.users)), np.zeros((0, len(self.users)))
        weights = self._weights(m + 1)
        before, _ = self.at(seen)
        constant = self.users + (seen.sum(axis=0) / (m + 1) - self.items) @ weights - before
        return constant, weights / (m + 1)

    def share(self, m: int) -> float:
        """Share of a user's list that m of its items are, on average over users.

        Between the numbers that were summed, linear in the logarithm; beyond, in proportion to m.
        """
        if m >= KNOWN[-1]:
            return float(min(1.0, (1.0 - self.fpc[-1]) * m / KNOWN[-1]))
        return float(1.0 - np.interp(np.log(m), np.log(KNOWN), self.fpc)) if m else 0.0

    def _weights(self, m: int) -> Array:
        """W_m. (y, n_own)."""
        fpc, n_seen = 1.0 - self.share(m), len(self.items)
        ridge = RIDGE / self.n_users * np.trace(self.between + self.within / 20.0) / n_seen
        noise = fpc / m * self.within + ridge * np.eye(n_seen)
        return np.linalg.solve(self.between + noise, self.cross)


def unrated_part(prior: NewcomerPrior, m: int) -> float:
    """Part of their weight that unrated items have for somebody who is known by m items.

    Most items are unrated because we do not know of them yet, not because somebody passed them by;
    and the prior comes from users for whom all unrated items counted. So they count by the square
    of the share of a list that is known: hardly at all with one item, wholly with a whole list.
    """
    return prior.share(m) ** 2


def _is_covariance(matrix: Array) -> bool:
    """Whether no direction has a negative variance, but for rounding."""
    if not np.isfinite(matrix).all():
        return False
    values = np.linalg.eigvalsh(matrix)
    return len(values) == 0 or bool(values[0] >= -ROUNDING * max(1.0, float(values[-1])))


def precision_of(covariance: Array, pinned: float) -> Array:
    """Inverse of a covariance, which rounding may have left without one. (n_own, n_own).

    Args:
        covariance: of p_u. (n_own, n_own)
        pinned: precision of the first entry, which is always 1.
    """
    precision = np.zeros_like(covariance)
    precision[0, 0] = pinned
    free = covariance[1:, 1:]
    values, turn = np.linalg.eigh((free + free.T) / 2)
    if len(values):
        kept = np.maximum(values, MIN_SHARE * max(float(values[-1]), 1e-30))
        precision[1:, 1:] = (turn / kept) @ turn.T
    return precision
