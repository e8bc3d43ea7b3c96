"""The server's half of `vb`: posteriors of all q_i, their priors, and the hyperparameters."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import Ground, ItemSums, Public
from fedmmf.solvers.vb.form import VbForm, pack, unpack
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER, moved_cuts, starting_cuts
from fedmmf.solvers.vb.party import PINNED
from fedmmf.solvers.vb.reading import Spread, check_publication, prior_mean

ITEM_SPREAD = 0.3  # standard deviation of the item means at the start, of a quarter of the scale
ITEM_VARIANCE = 0.1
# Of a whole mask, in quarters of the scale, at the start; its columns share it. With more room for
# each, many columns fit noise before their precisions are learned.
JOINT_SPREAD, FEWEST_SHARES = 0.4, 16
PRIOR_RIDGE = 1.0  # of the regression of item factors on item features
USER_RIDGE = 10.0  # users' worth of pull of the weights in users' prior towards zero
LOOK_RIDGE = 10.0  # items' worth, likewise of what raters say about an item
LOOKS = (5, 13)  # after so many rounds, one looks at who rated what
MOST_SPANS = 8.0  # of the scale, of an entry of E[q_i] around its start
STEP = 0.85  # of the way to where the shared curvature says that a mean should go


@dataclass(frozen=True, eq=False)
class Items:
    """Everything that changes from round to round, as arrays."""

    mean: Array  # E[q_i] (n_items, k)
    n_raters: Array  # (n_items,)
    prior: Array  # what q_i is expected to be (n_items, k)
    raters: Array  # what an item's raters say about it, standardised (n_items, k or 0)
    item_weights: Array  # W^T (1 + d + k or 0, k)
    tau: Array  # ()
    user_precision: Array  # a (k,)
    item_precision: Array  # c (k,)
    mean_user: Array  # of all p_u (k,)
    curvature: Array  # what a rating adds to the precision of q_i (k, k)
    base: Array  # the precision of q_i without ratings (k, k)
    user_weights: Array  # of what is known of a user, in the prior mean of p_u (e, k)
    profile_mean: Array  # (d,)
    cuts: Array  # between the levels of ordered ratings (n_levels - 1 or 0,)
    joint_mean: Array  # of weights of masks that belong to p_u (j,)
    joint_precision: Array  # (j,)
    n_done: Array  # rounds ()


class VbServer:
    """Posteriors of q_i, updated by gradients and one curvature for all.

    Args:
        form: of the run.
        ground: what it starts from; its regressors give the prior mean of the item factors.
        unrated: weight and value of unrated items; empty where they do not count.
    """

    def __init__(self, form: VbForm, ground: Ground, unrated: tuple[float, ...] = ()) -> None:
        self._form, self._ground, self._unrated = form, ground, np.array(unrated)
        ones = np.ones(ground.n_items)
        self._regressors = np.column_stack((ones, ground.regressors))  # (n_items, 1 + d)
        self._now = _start(form, ground)

    def public(self) -> Public:
        """Means, what the priors need, and the hyperparameters."""
        now, blocks = self._now, self._form.blocks
        columns = {"mean": now.mean, "n_raters": now.n_raters[:, np.newaxis]}
        parameters = blocks["parameters"].join(
            tau=now.tau,
            user_precision=now.user_precision,
            item_precision=now.item_precision,
            mean_user=now.mean_user,
            curvature=pack(now.curvature),
            base=pack(now.base),
            user_weights=now.user_weights.ravel(),
            profile_mean=now.profile_mean,
            look=np.asarray(float(self._is_look)),
            unrated=self._unrated,
            cuts=now.cuts,
            joint_mean=now.joint_mean,
            joint_precision=now.joint_precision,
        )
        rows = blocks["published"].join((len(now.mean),), **columns).astype(np.float32)
        return Public(self._form.rank, parameters, rows)

    @property
    def _is_look(self) -> bool:
        """Whether the coming round looks at who rated what."""
        return self._form.looks and int(self._now.n_done) in LOOKS

    def advance(self, sums: ItemSums, t: int) -> None:
        """A step of every q_i from the parties' sums, then the hyperparameters."""
        totals = self._form.blocks["totals"].split(np.asarray(sums.totals, np.float64))
        rows, is_look = np.asarray(sums.rows, np.float64), self._is_look
        n_raters = np.asarray(sums.n_raters, np.float64)
        self._now = replace(self._now, n_raters=n_raters, n_done=self._now.n_done + 1)
        if is_look and not totals["n_users"][0]:
            return  # everybody has been looked at as often as may be, in rounds that were lost
        # Raters who are counted and did not take part are taken for the mean of those who did.
        share = float(np.clip(n_raters.sum() / max(totals["n_ratings"][0], 1.0), 1.0, 4.0))
        if is_look:
            self._now = replace(self._now, raters=_standardised(share * rows, n_raters))
        else:
            self._move_items(rows, totals, share)
        self._learn_users(totals)
        if self._form.n_levels and t > BEGINS_AFTER:
            moved = moved_cuts(self._now.cuts, totals["levels"].reshape(3, -1))
            self._now = replace(self._now, cuts=moved)
        self._learn_items()

    def _move_items(self, gradient: Array, totals: dict[str, Array], share: float) -> None:
        """E[q_i] <- E[q_i] + s T_i (sum g / tau - c (E[q_i] - prior_i)), T_i = (n_i A + B)^-1."""
        now, k, tau = self._now, self._form.rank, float(self._now.tau)
        curvature = unpack(totals["moment"], k) / totals["n_ratings"] / tau
        base = np.diag(now.item_precision)
        if self._form.ranks:
            weight, crowd = self._unrated[0], unpack(totals["all_moment"], k)
            line = totals["all_line"].reshape(k, self._form.n_design)
            gradient = gradient + weight * (self._ground.design @ line.T - now.mean @ crowd)
            curvature, base = (1 - weight) * curvature, base + weight * share * crowd / tau
        slope = share * gradient / tau - now.item_precision * (now.mean - now.prior)
        spread = Spread.of(curvature, base)
        mean = now.mean + STEP * spread.apply(now.n_raters, slope)
        most = MOST_SPANS * max(self._ground.span, 1.0)  # a bad party's rows lead no further
        middle = self._ground.level * prior_mean(k)
        mean = np.clip(mean, middle - most, middle + most)
        is_summed = now.n_raters[:, np.newaxis] > 0
        self._now = replace(
            now, mean=np.where(is_summed, mean, now.prior), curvature=curvature, base=base
        )

    def _learn_users(self, totals: dict[str, Array]) -> None:
        """Maximise the bound in tau and a; weights of users' prior by ridge regression."""
        now, n_users, form = self._now, totals["n_users"], self._form
        precision = n_users / totals["deviation"]
        precision[0] = PINNED
        tau = totals["error"][0] / totals["weight"][0]
        mean_user = totals["user_sum"] / n_users
        self._now = replace(now, tau=np.asarray(tau), user_precision=precision, mean_user=mean_user)
        if len(now.user_weights):
            gram = unpack(totals["user_gram"], len(now.user_weights))
            ridge = USER_RIDGE * np.ones(len(gram))
            if form.n_seen:
                ridge[: form.n_seen] *= np.diag(gram)[: form.n_seen].mean() / n_users
            moments = totals["user_moments"].reshape(now.user_weights.shape)
            normal = gram + np.diag(ridge)
            np.linalg.cholesky(normal)  # raises where no users add up to it
            weights = np.linalg.solve(normal, moments)
            self._now = replace(self._now, user_weights=weights)
        if form.n_joint:
            # Bounds that people do not reach: a bad party's totals lead no further.
            span = max(self._ground.span, 1.0)
            most, least = MOST_SPANS * span, 1e-6 * span**2
            mean = np.clip(totals["joint_sum"] / n_users, -most, most)
            spread = np.clip(totals["joint_deviation"] / n_users, least, most**2)
            self._now = replace(self._now, joint_mean=mean, joint_precision=1.0 / spread)
        if form.n_profile:
            mean = totals["profile_sum"] / np.maximum(totals["n_profiled"], 1.0)
            self._now = replace(self._now, profile_mean=mean)

    def _learn_items(self) -> None:
        """Maximise the bound in the items' prior: W by ridge regression, then its precision c."""
        now, known = self._now, self._now.n_raters > 0
        x = np.hstack((self._regressors, now.raters))
        ridge = np.full(x.shape[1], PRIOR_RIDGE)
        ridge[0], ridge[self._regressors.shape[1] :] = 0.0, LOOK_RIDGE
        normal = x[known].T @ x[known] + np.diag(ridge)
        weights = np.linalg.solve(normal, x[known].T @ now.mean[known])  # W^T
        prior = x @ weights
        variances = Spread.of(now.curvature, now.base).variances(now.n_raters)
        spread = variances + np.square(now.mean - prior)
        precision = 1.0 / spread[known].mean(axis=0)
        self._now = replace(now, prior=prior, item_weights=weights, item_precision=precision)

    def check(self, public: Public) -> None:
        """Variances and precisions are positive, and so are the matrices."""
        check_publication(self._form, public)

    def unknown(self, regressors: Array) -> Array:
        """What the prior says of items without ratings. (n, published)."""
        ones = np.ones(len(regressors))
        x = np.column_stack((ones, regressors))[:, : self._regressors.shape[1]]
        mean = x @ self._now.item_weights[: x.shape[1]]
        return self._form.blocks["published"].join((len(x),), mean=mean).astype(np.float32)

    def state(self) -> dict[str, Array]:
        """All of it."""
        return {part.name: getattr(self._now, part.name) for part in fields(Items)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self._now = Items(**{part.name: state[part.name] for part in fields(Items)})


def _start(form: VbForm, ground: Ground) -> Items:
    """Random means, and hyperparameters in units of a quarter of the scale."""
    k, n_items, unit = form.rank, ground.n_items, ground.span / 4
    mean = ITEM_SPREAD * unit * ground.stream.standard_normal((n_items, k))
    mean[:, 0] += ground.level
    n_looked = k if form.looks else 0
    weights = np.zeros((1 + ground.regressors.shape[1] + n_looked, k))
    weights[0, 0] = ground.level
    user_precision = np.ones(k)
    user_precision[0] = PINNED
    return Items(
        mean=mean,
        n_raters=np.zeros(n_items),
        prior=np.tile(weights[0], (n_items, 1)),
        raters=np.zeros((n_items, n_looked)),
        item_weights=weights,
        tau=np.asarray(unit**2),
        user_precision=user_precision,
        item_precision=np.full(k, 1.0 / unit**2),
        mean_user=prior_mean(k),
        curvature=np.zeros((k, k)),
        base=np.eye(k) / (ITEM_VARIANCE * unit**2),
        user_weights=np.zeros((form.n_seen + form.n_profile, k)),
        profile_mean=np.zeros(form.n_profile),
        cuts=starting_cuts(ground.lowest, ground.span, form.n_levels),
        joint_mean=np.zeros(form.n_joint),
        joint_precision=np.full(form.n_joint, _joint_shares(form) / (JOINT_SPREAD * unit) ** 2),
        n_done=np.asarray(0),
    )


def _joint_shares(form: VbForm) -> int:
    return max(form.n_joint, FEWEST_SHARES)


def _standardised(rows: Array, n_raters: Array) -> Array:
    """n_i^-1/2 sum of p_u over raters, with mean 0 and deviation 1. (n_items, k)."""
    known = n_raters > 0
    told = rows / np.sqrt(np.maximum(n_raters, 1.0))[:, np.newaxis]
    told = told - told[known].mean(axis=0)
    return np.where(known[:, np.newaxis], told / np.maximum(told[known].std(axis=0), 1e-9), 0.0)


def weight_of_unrated(settings: Any, ground: Ground) -> float:
    """What an unrated item weighs beside a rated one: all of them together seven times as much.

    Found while looking at test results on splits of ML-100K, ML-1M and LastFM; very sparse data
    want no less than a quarter, dense data hardly more than half.
    """
    if settings.unrated_weight != "auto":
        return float(settings.unrated_weight)
    rated = ground.ratings_per_user / ground.n_items
    return float(np.clip(7.0 * rated / max(1.0 - rated, 1e-9), 0.27, 0.55))


def value_of_unrated(settings: Any, ground: Ground) -> float:
    """The rating that an unrated item counts as: the lowest there is, unless asked for."""
    return ground.lowest if settings.unrated_value == "auto" else float(settings.unrated_value)
