"""Steps of the server that learns lists from noisy sums.

Every pair counts: a rated one with its value y in (0, 1] and weight w_u, an unrated one with 0 and
weight w0 w_u. A party sends w_u n_i^-gamma (y - (1 - w0) s_ui) (1, p_u) at rated items, with s_ui
its score. The server divides n_i^-gamma out again, and has the unrated part of the gradient from
totals: w0 times the sums over users of w_u (1, p)(1, p)^T (b_i, q_i) and of w_u (1, p) theta^T x_i.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.items import Prior, true_weights
from fedmmf.solvers.vb.private.learning import Learning, MeanOfSums, State, beside
from fedmmf.solvers.vb.private.party import ROWS_GAIN
from fedmmf.solvers.vb.shapes import pack


@dataclass(frozen=True, eq=False)
class OfLists(Learning):
    """Steps of a server that learns lists.

    Attributes:
        unrated_weight: w0.
    """

    unrated_weight: float

    def learn_counts(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Weights of items and users, and biases from counts: noisy popularity.

        A count is a sum of K_u^-1/2 over raters, since values are scaled to that length. So the sum
        of counts is that of K_u^1/2 over users, which gives the usual weight of a user. The weights
        of later stages differ from these by a factor that is the same for all, but for chance.
        """
        now = self.weighed(now, told)
        noisy, noise = told.rows[:, 0] / self.clip, told.noise / self.clip
        counts = true_weights(noisy, noise)
        mean_root = max(float(noisy.sum()) / told.n_users, 1.0)  # of K_u^1/2
        squares = np.square(now.weight)  # (n_items,)
        ratio = float(np.average(squares, weights=counts)) ** -0.5
        usual = plan.UNEVENNESS * ratio / mean_root
        now = replace(
            now,
            n_weighted=ratio * counts,
            n_users=np.asarray(told.n_users),
            usual_weight=np.asarray(usual),
        )
        return self._popular(now, ratio * noise, schedule.n_active)

    def _popular(self, now: State, noise: float, a: int) -> State:
        """Biases at which the gradient is 0 where all p_u and masks are, and how sure they are."""
        sums, curvature = plan.USUAL_VALUE * now.n_weighted, self._weights_of(now)
        bias = sums / curvature
        variance = self.about.tau * float(now.usual_weight) * curvature + noise**2
        precision = (np.square(curvature) / variance)[:, np.newaxis, np.newaxis]
        prior = Prior(self.x, np.zeros((self.x.shape[1], 1)), np.ones(1))
        prior = prior.fitted(bias[:, np.newaxis], 1.0 / precision)
        now = self.begun(now, (bias, 1.0 / precision[:, 0, 0]), prior, a)
        first = np.zeros_like(now.first)
        first[:, 0] = precision[:, 0, 0] * bias
        return replace(now, precision=pack(beside(precision, len(now.mean[0]))), first=first)

    def _weights_of(self, now: State) -> Array:
        """Weight of all pairs of each item: rated ones, and w0 times the others. (n_items,)."""
        everybody = float(now.usual_weight) * float(now.n_users)
        return (1.0 - self.unrated_weight) * now.n_weighted + self.unrated_weight * everybody

    def learn_factors(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Observe o_i = g_i + h_i M0 q_i, with g_i the whole gradient and H_i = h_i (M0 + C)."""
        used = 1 + schedule.n_active  # other columns carry noise alone
        share = float(now.n_users) / told.n_users  # who stayed away is taken for the others
        moments, mean = self.moments(told, schedule.n_active), now.mean[:, :used]
        scale = share * self.about.reach / (ROWS_GAIN * now.weight[:, np.newaxis])  # (n_items, 1)
        everybody = self.unrated_weight * float(now.usual_weight) * float(now.n_users)
        design = self.design / now.weight[:, np.newaxis]  # (n_items, j)
        scores = mean @ moments.second + design @ moments.cross.T  # (n_items, 1 + a)
        h = self._weights_of(now)[:, np.newaxis]  # (n_items, 1)
        observed = scale * told.rows[:, :used] - everybody * scores + h * (mean @ moments.second)
        curvature = h[:, :, np.newaxis] * (moments.second + moments.covariance)
        rating = self.about.tau * float(now.usual_weight)
        return self.stepped(now, (curvature, observed), (rating, scale[:, 0] * told.noise))
