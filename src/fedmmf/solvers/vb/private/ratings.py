"""Steps of the server that learns ratings from noisy sums."""

from dataclasses import replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.items import learned, true_weights
from fedmmf.solvers.vb.private.learning import Learning, MeanOfSums, State, beside
from fedmmf.solvers.vb.private.party import MEANS_GAINS, ROWS_GAIN
from fedmmf.solvers.vb.shapes import pack

MAX_LEVEL = 2.0  # largest mean intercept of masks, in units


class OfRatings(Learning):
    """Steps of a server that learns ratings."""

    def learn_counts(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Find the weights of all items."""
        return self.weighed(now, told)

    def learn_means(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """N_i and b_i: S_i = N_i b_i, with the noise of ratings, of the sum, and of N_i."""
        gain = MEANS_GAINS[0] * self.clip
        weights, of_weights = told.rows[:, 0] / gain, told.noise / gain
        sums, of_sums = told.rows[:, 1] / MEANS_GAINS[1], told.noise / MEANS_GAINS[1]
        n_weighted = true_weights(weights, of_weights)
        now = replace(now, n_weighted=n_weighted, n_users=np.asarray(told.n_users))
        rating = self.about.tau * mean_weight(weights, told.n_users) * n_weighted
        prior, bias = self.prior(now), np.zeros_like(sums)
        precision, first = np.zeros((len(sums), 1, 1)), np.zeros((len(sums), 1))
        for _ in range(3):  # the noise of N_i b_i depends on b_i
            variance = rating + of_sums**2 + (of_weights * bias) ** 2
            precision[:, 0, 0] = n_weighted**2 / variance
            first[:, 0] = n_weighted * sums / variance
            mean, covariance, prior = learned(precision, first, prior.column(0))
            bias = mean[:, 0]
        now = self.begun(now, (bias, covariance[:, 0, 0]), prior, schedule.n_active)
        return replace(
            now,
            precision=pack(beside(precision, now.mean.shape[1])),
            first=np.hstack((first, np.zeros_like(now.mean[:, 1:]))),
        )

    def learn_factors(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Observe o_i = G_i + N_i M0 q_i - N_i X F_i, with H_i = N_i (M0 + C)."""
        used = 1 + schedule.n_active  # other columns carry noise alone
        share = float(now.n_users) / told.n_users  # who stayed away is taken for the others
        moments = self.moments(told, schedule.n_active)
        n = now.n_weighted[:, np.newaxis]  # (n_items, 1)
        scale = share * self.about.reach / ROWS_GAIN
        observed = scale * told.rows[:, :used]
        observed += n * (now.mean[:, :used] @ moments.second)
        observed[:, 1:] -= n * (self.design @ moments.cross.T)
        curvature = n[:, :, np.newaxis] * (moments.second + moments.covariance)
        rating = self.about.tau * mean_weight(now.n_weighted, float(now.n_users))
        noise = np.asarray(scale * told.noise)
        now = self.stepped(now, (curvature, observed), (rating, noise))
        return replace(now, level=np.asarray(np.clip(moments.level, -MAX_LEVEL, MAX_LEVEL)))


def mean_weight(n_weighted: Array, n_users: float) -> float:
    """Mean weight of a rating: squares of weights add up to 1 for every user."""
    return n_users / max(float(n_weighted.sum()), 1.0)
