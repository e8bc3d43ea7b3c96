"""The server's half of `vb` under noise: posteriors of all items, from sums of known noise.

Numbers of this half are in quarters of the scale's span; broadcasts are on the rating scale.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.items import (
    Prior,
    information,
    learned,
    positive_definite,
    true_weights,
)
from fedmmf.solvers.vb.private.party import MEANS_GAINS, ROWS_GAIN, starting_user, totals_gain
from fedmmf.solvers.vb.private.reading import check_broadcast
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.shapes import pack, unpack

MAX_MEAN = 32.0  # largest entry of E[q_i], in quarters of the scale
MAX_LEVEL = 2.0  # likewise of the masks' mean intercept


@dataclass(frozen=True, eq=False)
class State:
    """Arrays that change from round to round; k1 = 1 + k, with the item's bias first."""

    n_done: Array  # rounds ()
    noise: Array  # of one release that had the whole budget, per user ()
    n_users: Array  # who were summed in the stage of means ()
    weight: Array  # n_i^-gamma (n_items,)
    n_weighted: Array  # N_i, sums of weights over raters (n_items,)
    mean: Array  # (n_items, k1)
    covariance: Array  # packed (n_items, k1 (k1 + 1) / 2)
    precision: Array  # information of all sums so far, packed likewise
    first: Array  # the same times what was observed (n_items, k1)
    item_precision: Array  # c (k1,)
    item_weights: Array  # W^T (1 + d, k1)
    level: Array  # mean intercept of masks ()
    rows: Array  # sums since the last step (n_items, k1)
    totals: Array  # likewise (n_totals,)
    variance: Array  # of the noise in these ()
    n_summed: Array  # users in these, over rounds ()
    n_pending: Array  # rounds in these ()


class PrivateServer:
    """The server's half of `vb` under noise.

    Args:
        settings: of the run: its rounds, factors and clip.
        update_shape: of the run.
        context: what it starts from; its regressors give the prior mean of the item factors.
    """

    def __init__(self, settings: Any, update_shape: PrivateShape, context: SolverContext) -> None:
        self.update_shape, self.context = update_shape, context
        self._rounds, self._clip = int(settings.max_rounds), float(settings.dp_clip)
        self._unit = context.span / 4
        self._x = np.column_stack((np.ones(context.n_items), context.regressors))
        k1, n = update_shape.rank, context.n_items
        self._start = plan.START * context.stream.standard_normal((n, k1 - 1))
        self._design = np.asarray(context.design, np.float64)  # (n_items, j)
        zero = np.asarray(0.0)
        self._now = State(
            n_done=np.asarray(0),
            noise=zero,
            n_users=zero,
            weight=np.ones(n),
            n_weighted=np.zeros(n),
            mean=np.zeros((n, k1)),
            covariance=np.zeros((n, len(pack(np.eye(k1))))),
            precision=np.zeros((n, len(pack(np.eye(k1))))),
            first=np.zeros((n, k1)),
            item_precision=np.full(k1, 4.0),
            item_weights=np.zeros((self._x.shape[1], k1)),
            level=zero,
            rows=np.zeros((n, k1)),
            totals=np.zeros(update_shape.n_totals),
            variance=zero,
            n_summed=zero,
            n_pending=np.asarray(0),
        )

    @property
    def _schedule(self) -> plan.Schedule:
        return plan.schedule(self._rounds, self.update_shape.rank - 1, float(self._now.noise))

    def broadcast(self) -> Broadcast:
        """Return means, covariances and weights of all items, and the stage."""
        now, blocks, unit = self._now, self.update_shape.blocks, self._unit
        mean = unit * now.mean
        mean[:, 0] += self.context.level
        columns = {
            "mean": mean,
            "covariance": unit**2 * now.covariance,
            "weight": now.weight[:, np.newaxis],
        }
        rows = blocks["item_row"].join((len(mean),), **columns).astype(np.float32)
        stage = self._schedule.stage(int(now.n_done))
        j = self.update_shape.n_joint
        variances = np.full(j, plan.COLUMN_VARIANCE)
        variances[:1] = plan.LEVEL_VARIANCE
        level = np.zeros(j)
        level[:1] = unit * now.level
        parameters = blocks["parameters"].join(
            stage=np.asarray(stage),
            n_active=np.asarray(self._schedule.n_active if stage == plan.FACTORS else 0),
            tau=np.asarray(plan.TAU * unit**2),
            unit=np.asarray(unit),
            clip=np.asarray(self._clip),
            middle=np.asarray(self.context.level),
            joint_mean=level,
            joint_precision=1.0 / (variances * unit**2),
        )
        return Broadcast(self.update_shape.rank, parameters, rows)

    def advance(self, sums: ItemSums, t: int) -> None:
        """Take a release, and step where those of one kind are complete."""
        now, n_users = self._now, float(sums.n_raters.max(initial=1))
        if not float(now.noise):
            whole = sums.noise_std / (self._clip * math.sqrt(self._rounds))
            now = replace(now, noise=np.asarray(whole / n_users))
        self._now = now = replace(
            now,
            rows=now.rows + np.asarray(sums.rows, np.float64),
            totals=now.totals + np.asarray(sums.totals, np.float64),
            variance=now.variance + sums.noise_std**2,
            n_summed=now.n_summed + n_users,
            n_pending=now.n_pending + 1,
        )
        self._end_round()

    def lose(self) -> None:
        """Do without the release of a round that gave no sum: parties make each but once.

        Raises:
            WireError: all rounds of means are lost, and nothing can be learned without them.
        """
        now, last_of_means = self._now, min(self._schedule.n_means, self._rounds - 1)
        if int(now.n_done) == last_of_means > 0 and not int(now.n_pending):
            raise WireError(
                f"all {last_of_means} releases of means gave no sum, and parties make each but "
                "once. Find out why so many fail, and train anew"
            )
        self._end_round()

    def _end_round(self) -> None:
        """Step where the releases of one kind are complete."""
        n_done, n_pending = int(self._now.n_done), int(self._now.n_pending)
        stage, is_last = self._schedule.stage(n_done), n_done + 1 >= self._rounds
        is_step = n_pending == self._schedule.repeats or is_last
        if n_pending and stage == plan.COUNTS:
            self._weigh()
        elif n_pending and stage == plan.MEANS and (n_done == self._schedule.n_means or is_last):
            self._learn_means()
        elif n_pending and stage == plan.FACTORS and is_step:
            self._learn_factors()
        self._now = replace(self._now, n_done=self._now.n_done + 1)

    def _pending(self) -> tuple[Array, Array, float, float]:
        """Mean of the releases since the last step, the noise of that, and users; start anew."""
        now, n = self._now, int(self._now.n_pending)
        self._now = replace(
            now,
            rows=np.zeros_like(now.rows),
            totals=np.zeros_like(now.totals),
            variance=np.asarray(0.0),
            n_summed=np.asarray(0.0),
            n_pending=np.asarray(0),
        )
        noise = math.sqrt(float(now.variance)) / n
        return now.rows / n, now.totals / n, noise, float(now.n_summed) / n

    def _weigh(self) -> None:
        """Weights of all items from their counts; counts that are mostly noise count alike."""
        rows, _, noise, _ = self._pending()
        counts = np.maximum(rows[:, 0], max(2.0 * noise, self._clip)) / self._clip
        self._now = replace(self._now, weight=counts**-plan.GAMMA)

    def _learn_means(self) -> None:
        """N_i and b_i: S_i = N_i b_i, with the noise of ratings, of the sum, and of N_i."""
        rows, _, noise, n_users = self._pending()
        weights, of_weights = (
            rows[:, 0] / (MEANS_GAINS[0] * self._clip),
            noise / (MEANS_GAINS[0] * self._clip),
        )
        sums, of_sums = rows[:, 1] / MEANS_GAINS[1], noise / MEANS_GAINS[1]
        n_weighted = true_weights(weights, of_weights)
        now = replace(self._now, n_weighted=n_weighted, n_users=np.asarray(n_users))
        rating = plan.TAU * _mean_weight(weights, n_users) * n_weighted
        prior, bias = self._prior(now), np.zeros_like(sums)
        precision, first = np.zeros((len(sums), 1, 1)), np.zeros((len(sums), 1))
        for _ in range(3):  # the noise of N_i b_i depends on b_i
            variance = rating + of_sums**2 + (of_weights * bias) ** 2
            precision[:, 0, 0] = n_weighted**2 / variance
            first[:, 0] = n_weighted * sums / variance
            mean, covariance, prior = learned(precision, first, prior.column(0))
            bias = mean[:, 0]
        a = self._schedule.n_active
        self._now = replace(
            now,
            mean=self._started(bias, a),
            covariance=pack(self._spread(covariance[:, 0, 0], a)),
            precision=pack(_beside(precision, now.mean.shape[1])),
            first=np.hstack((first, np.zeros_like(now.mean[:, 1:]))),
            item_precision=np.concatenate((prior.precision, np.full(len(now.mean[0]) - 1, 11.0))),
            item_weights=np.hstack((prior.weights, np.zeros_like(now.item_weights[:, 1:]))),
        )

    def _started(self, bias: Array, a: int) -> Array:
        """Means before the first round of factors: random directions. (n_items, k1)."""
        mean = np.zeros_like(self._now.mean)
        mean[:, 0], mean[:, 1 : 1 + a] = bias, self._start[:, :a]
        return mean

    def _spread(self, variance: Array, a: int) -> Array:
        """Covariances that parties are told then. (n_items, k1, k1)."""
        k1 = self.update_shape.rank
        spread = np.zeros((len(variance), k1, k1))
        spread[:, 0, 0] = variance
        spread[:, range(1, 1 + a), range(1, 1 + a)] = plan.START_VARIANCE
        return spread

    def _prior(self, now: State) -> Prior:
        return Prior(self._x, now.item_weights, now.item_precision)

    def _learn_factors(self) -> None:
        """Add the information of a step's sums to that of all before, and find posteriors."""
        rows, totals, noise, n_users = self._pending()
        now, used = self._now, 1 + self._schedule.n_active  # other columns carry noise alone
        share = float(now.n_users) / n_users  # raters who stayed away are taken for the others
        moments = self._moments(totals, noise, n_users)
        n = now.n_weighted[:, np.newaxis]  # (n_items, 1)
        mean = now.mean[:, :used]
        observed = share * rows[:, :used] / ROWS_GAIN + n * (mean @ moments.second)
        observed[:, 1:] -= n * (self._design @ moments.cross.T)
        curvature = moments.second + moments.covariance
        rating = plan.TAU * _mean_weight(now.n_weighted, float(now.n_users))
        precision, first = information(
            n[:, :, np.newaxis] * curvature, observed, rating, share * noise / ROWS_GAIN
        )
        k1 = self.update_shape.rank
        precision = unpack(now.precision, k1)[:, :used, :used] + precision
        first = now.first[:, :used] + first
        found, covariance, prior = learned(precision, first, self._prior(now).first(used))
        self._now = replace(
            now,
            mean=_wide(np.clip(found, -MAX_MEAN, MAX_MEAN), now.mean),
            covariance=pack(_beside(covariance, k1)),
            precision=pack(_beside(precision, k1)),
            first=_wide(first, now.first),
            item_precision=_wide(prior.precision, now.item_precision),
            item_weights=_wide(prior.weights, now.item_weights),
            level=np.asarray(moments.level),
        )

    def _moments(self, totals: Array, noise: float, n_users: float) -> "Moments":
        """Means over users, shrunken towards what is usual by their known noise."""
        parts = self.update_shape.blocks["totals"].split(totals)
        k, j, a = self.update_shape.rank - 1, self.update_shape.n_joint, self._schedule.n_active
        gain = self._clip * totals_gain(j) * n_users

        def of(name: str, bound: str, usual: Array, spread: float) -> Array:
            std = noise * plan.BOUNDS[bound] / gain
            told = parts[name] * (plan.BOUNDS[bound] / gain)
            return np.asarray(usual + (told - usual) * spread**2 / (spread**2 + std**2))

        half = pack(plan.USUAL_MOMENT * np.eye(k))
        middle = of("user_sum", "moments", np.zeros(k), plan.MEAN_SPREAD)[:a]
        square = unpack(of("moment", "moments", half, plan.MOMENT_SPREAD), k)[:a, :a]
        spread = unpack(of("covariance", "covariance", half, plan.MOMENT_SPREAD), k)[:a, :a]
        cross = of("cross", "cross", np.zeros(k * j), plan.CROSS_SPREAD).reshape(k, j)[:a]
        level = of("level", "level", np.zeros(int(j > 0)), 1.0).sum()
        second, covariance = np.eye(1 + a), np.zeros((1 + a, 1 + a))
        second[0, 1:] = second[1:, 0] = middle
        second[1:, 1:], covariance[1:, 1:] = square, positive_definite(spread)
        level = float(np.clip(level, -MAX_LEVEL, MAX_LEVEL))
        return Moments(positive_definite(second), covariance, cross, level)

    def check(self, broadcast: Broadcast) -> None:
        """Raise `WireError` unless parties can compute with the broadcast."""
        check_broadcast(self.update_shape, broadcast)

    def unknown(self, regressors: Array) -> Array:
        """Return the prior of items without ratings. (n, broadcast_width)."""
        x = np.column_stack((np.ones(len(regressors)), regressors))[:, : self._x.shape[1]]
        mean = self._unit * (x @ self._now.item_weights)
        mean[:, 0] += self.context.level
        blocks = self.update_shape.blocks["item_row"]
        spread = self._unit**2 * pack(np.diag(1.0 / self._now.item_precision))
        columns = {"mean": mean, "covariance": spread, "weight": np.ones((len(x), 1))}
        return blocks.join((len(x),), **columns).astype(np.float32)

    def state(self) -> dict[str, Array]:
        """Return all arrays of `State` by name."""
        return {part.name: getattr(self._now, part.name) for part in fields(State)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore all arrays of `State`."""
        found: dict[str, Any] = {part.name: np.array(state[part.name]) for part in fields(State)}
        self._now = State(**found)


@dataclass(frozen=True, eq=False)
class Moments:
    """Means over users, of a factors and an intercept."""

    second: Array  # of (1, p)(1, p)^T (1 + a, 1 + a)
    covariance: Array  # of the posterior of p, with zeros for 1 (1 + a, 1 + a)
    cross: Array  # of p and mask weights (a, j)
    level: float  # of the masks' intercepts


def default_user(update_shape: PrivateShape, broadcast: Broadcast) -> Array:
    """Factors of the default user: none, and a mask at the mean level. (n_own,)."""
    numbers = update_shape.blocks["parameters"].split(broadcast.parameters)
    user = starting_user(update_shape)
    user[update_shape.rank :] = numbers["joint_mean"]
    return user


def _mean_weight(n_weighted: Array, n_users: float) -> float:
    """Mean weight of a rating: squares of weights add up to 1 for every user."""
    return n_users / max(float(n_weighted.sum()), 1.0)


def _beside(matrices: Array, k: int) -> Array:
    """The same matrices with zeros beside and below. (n, k, k)."""
    wide = np.zeros((len(matrices), k, k))
    wide[:, : matrices.shape[1], : matrices.shape[2]] = matrices
    return wide


def _wide(part: Array, like: Array) -> Array:
    """Put columns into a copy of an array that has more of them."""
    wide = like.copy()
    wide[..., : part.shape[-1]] = part
    return wide
