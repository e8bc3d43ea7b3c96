"""What learning from noisy ratings and from noisy lists have in common on the server.

Numbers of the server's half are in units: quarters of the scale's span, or, in lists, the highest
rating less that of an unrated item. Broadcasts are on the rating scale.
"""

from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.items import Prior, information, learned, positive_definite
from fedmmf.solvers.vb.private.party import totals_gain
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.shapes import pack, unpack

MAX_MEAN = 32.0  # largest entry of E[q_i], in units


@dataclass(frozen=True, eq=False)
class State:
    """Arrays that change from round to round; k1 = 1 + k, with the item's bias first."""

    n_done: Array  # rounds ()
    noise: Array  # of one release that had the whole budget, per user ()
    n_users: Array  # who were summed when N_i was learned ()
    weight: Array  # n_i^-gamma (n_items,)
    n_weighted: Array  # N_i, sums of weights over raters (n_items,)
    mean: Array  # (n_items, k1)
    covariance: Array  # packed (n_items, k1 (k1 + 1) / 2)
    precision: Array  # information of all sums so far, packed likewise
    first: Array  # the same times what was observed (n_items, k1)
    item_precision: Array  # c (k1,)
    item_weights: Array  # W^T (1 + d, k1)
    level: Array  # mean intercept of masks ()
    usual_weight: Array  # mean weight of a user, in lists ()
    rows: Array  # sums since the last step (n_items, k1)
    totals: Array  # likewise (n_totals,)
    variance: Array  # of the noise in these ()
    n_summed: Array  # users in these, over rounds ()
    n_pending: Array  # rounds in these ()


@dataclass(frozen=True, eq=False)
class MeanOfSums:
    """Mean of the sums of one stage since the last step."""

    rows: Array  # (n_items, k1)
    totals: Array  # (n_totals,)
    noise: float  # standard deviation in each entry
    n_users: float


@dataclass(frozen=True, eq=False)
class Moments:
    """Means over users, of a factors and j mask weights."""

    second: Array  # of (1, p)(1, p)^T (1 + a, 1 + a)
    covariance: Array  # of the posterior of p, with zeros for 1 (1 + a, 1 + a)
    cross: Array  # Cov[p, mask weights] (a, j); in lists of (1, p) and mask weights (1 + a, j)
    level: float  # of the masks' intercepts; 0 in lists


@dataclass(frozen=True, eq=False)
class Learning:
    """Steps of the server, one per stage; it holds what is public and stays.

    Attributes:
        update_shape: of the run.
        x: what the prior means of the items are linear in. (n_items, 1 + d)
        design: what joint masks are linear in. (n_items, j)
        start: random directions. (n_items, k)
        clip: largest length of an update.
    """

    update_shape: PrivateShape
    x: Array
    design: Array
    start: Array
    clip: float

    @property
    def about(self) -> plan.Constants:
        """Constants of lists, or of ratings."""
        return plan.constants(ranks=self.update_shape.ranks)

    def learn_counts(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Take the counts."""
        raise NotImplementedError

    def learn_means(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Take the means; there are none in lists."""
        raise NotImplementedError

    def learn_factors(self, now: State, told: MeanOfSums, schedule: plan.Schedule) -> State:
        """Take a step of the factors."""
        raise NotImplementedError

    def weighed(self, now: State, told: MeanOfSums) -> State:
        """Weights of all items from their counts; counts that are mostly noise count alike."""
        counts = np.maximum(told.rows[:, 0], max(2.0 * told.noise, self.clip)) / self.clip
        return replace(now, weight=counts**-self.about.gamma)

    def begun(self, now: State, biases: tuple[Array, Array], prior: Prior, a: int) -> State:
        """Start the factors: known biases, and random directions with the usual spread.

        Args:
            now: with N_i.
            biases: posterior means and variances. (n_items,) each
            prior: of the biases, one column.
            a: factors in use.
        """
        (bias, variance), k1 = biases, self.update_shape.rank
        mean, spread = np.zeros_like(now.mean), np.zeros((len(bias), k1, k1))
        mean[:, 0], mean[:, 1 : 1 + a] = bias, self.start[:, :a]
        spread[:, 0, 0] = variance
        spread[:, range(1, 1 + a), range(1, 1 + a)] = self.about.start_variance
        usual = np.full(k1 - 1, 1.0 / self.about.start**2)
        return replace(
            now,
            mean=mean,
            covariance=pack(spread),
            item_precision=np.concatenate((prior.precision, usual)),
            item_weights=np.hstack((prior.weights, np.zeros_like(now.item_weights[:, 1:]))),
        )

    def stepped(
        self, now: State, sums: tuple[Array, Array], variances: tuple[float, Array]
    ) -> State:
        """Add the information of a step's sums to that of all before, and find posteriors.

        Args:
            now: before the step.
            sums: H_i, and o_i ~ N(H_i q_i, ...) of the factors in use. (n_items, 1 + a, 1 + a),
                (n_items, 1 + a)
            variances: of a rating times the mean weight of one, and noise of each item's sums.
        """
        (curvature, observed), (rating, noise) = sums, variances
        used, k1 = observed.shape[1], self.update_shape.rank
        precision, first = information(curvature, observed, rating, noise)
        precision = unpack(now.precision, k1)[:, :used, :used] + precision
        first = now.first[:, :used] + first
        found, covariance, prior = learned(precision, first, self.prior(now).first(used))
        return replace(
            now,
            mean=wide(np.clip(found, -MAX_MEAN, MAX_MEAN), now.mean),
            covariance=pack(beside(covariance, k1)),
            precision=pack(beside(precision, k1)),
            first=wide(first, now.first),
            item_precision=wide(prior.precision, now.item_precision),
            item_weights=wide(prior.weights, now.item_weights),
        )

    def prior(self, now: State) -> Prior:
        """Prior of the items."""
        return Prior(self.x, now.item_weights, now.item_precision)

    def moments(self, told: MeanOfSums, a: int) -> Moments:
        """Means over users, shrunken towards what is usual by their known noise."""
        about, shape = self.about, self.update_shape
        parts = shape.blocks["totals"].split(told.totals)
        k, j = shape.rank - 1, shape.n_joint
        gain = self.clip * totals_gain(shape) * told.n_users

        def of(name: str, usual: Array) -> Array:
            block = "moments" if name in ("user_sum", "moment") else name
            std, spread = told.noise * about.bounds[block] / gain, about.spreads[name]
            found = parts[name] * (about.bounds[block] / gain)
            return np.asarray(usual + (found - usual) * spread**2 / (spread**2 + std**2))

        eye = pack(np.eye(k))
        middle = of("user_sum", np.zeros(k))[:a]
        square = unpack(of("moment", about.moment * eye), k)[:a, :a]
        spread = unpack(of("covariance", about.covariance * eye), k)[:a, :a]
        cross = of("cross", np.zeros_like(parts["cross"])).reshape(k + shape.ranks, j)
        second, covariance = np.eye(1 + a), np.zeros((1 + a, 1 + a))
        second[0, 1:] = second[1:, 0] = middle
        second[1:, 1:], covariance[1:, 1:] = square, positive_definite(spread)
        level = float(of("level", np.zeros_like(parts["level"])).sum())
        n_cross = a + shape.ranks
        return Moments(positive_definite(second), covariance, cross[:n_cross], level)


def beside(matrices: Array, k: int) -> Array:
    """The same matrices with zeros beside and below. (n, k, k)."""
    found = np.zeros((len(matrices), k, k))
    found[:, : matrices.shape[1], : matrices.shape[2]] = matrices
    return found


def wide(part: Array, like: Array) -> Array:
    """Put columns into a copy of an array that has more of them."""
    found = like.copy()
    found[..., : part.shape[-1]] = part
    return found
