"""The server's half of `vb`: posteriors of all q_i, their priors, and the hyperparameters."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array, doubles, singles, space
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER, moved_cuts
from fedmmf.solvers.vb.party import PINNED
from fedmmf.solvers.vb.reading import Spread, VbReading, check_broadcast, prior_mean
from fedmmf.solvers.vb.shapes import VbShape, pack, total_bound, unpack
from fedmmf.solvers.vb.start import Items, start, start_share

PRIOR_RIDGE = 1.0  # of the regression of item factors on item features
USER_RIDGE = 10.0  # shrinkage of the weights in users' prior towards zero, in users
MEMBERSHIP_RIDGE = 10.0  # the same for the weights of raters in an item's prior, in items
MEMBERSHIP_ROUNDS = (5, 13)  # a membership round follows after so many rounds of a usual run
USUAL_ROUNDS = 22
MAX_SPANS = 8.0  # largest distance of an entry of E[q_i] from its start, in spans of the scale
STEP = 0.85  # share of the step that the shared curvature gives for a mean
MAX_IMBALANCE = 2.0**8  # of user and item precisions, each in units of its start


class VbServer:
    """The server's half of `vb`: posteriors of q_i, from gradients and one shared curvature.

    Args:
        update_shape: of the run.
        context: what it starts from; its regressors give the prior mean of the item factors.
        unrated: weight and value of unrated items; empty where they do not count.
        placed: puts an array where the server computes; numpy, unless an engine has a device.
        linalg: `inv`, `solve`, `cholesky` and `eigh` for what is there.

    Attributes:
        membership_rounds: a membership round follows after so many rounds.
    """

    _now: Items
    _spread: Spread

    def __init__(
        self,
        update_shape: VbShape,
        context: SolverContext,
        unrated: tuple[float, ...] = (),
        placed: Callable[[Array], Array] = np.asarray,
        linalg: Any = np.linalg,
    ) -> None:
        self.update_shape, self.context, self.unrated = update_shape, context, np.array(unrated)
        self._placed, self._linalg = placed, linalg
        self.membership_rounds = membership_rounds(USUAL_ROUNDS)
        self._most = MAX_SPANS * max(context.span, 1.0)
        ones = np.ones(context.n_items)
        self._regressors = placed(np.column_stack((ones, context.regressors)))  # (n_items, 1 + d)
        self._design, self._middle = (
            placed(context.design),
            placed(context.level * prior_mean(update_shape.rank)),
        )
        self._item_unit = start_share(context, unrated) * context.span / 4
        first = start(update_shape, context, self._item_unit)
        self.restore({part.name: getattr(first, part.name) for part in fields(Items)})

    def broadcast(self) -> Broadcast:
        """Return the broadcast: means, inputs of the priors, and hyperparameters."""
        now, blocks = self._now, self.update_shape.blocks
        columns = {"mean": now.mean, "n_raters": now.n_raters[:, np.newaxis]}
        parameters = blocks["parameters"].join((), **self._parameters)
        rows = blocks["item_row"].join((len(now.mean),), **columns).astype(np.float32)
        return Broadcast(self.update_shape.rank, parameters, rows)

    @property
    def _parameters(self) -> dict[str, Array]:
        now = self._now
        return {
            "tau": now.tau,
            "user_precision": now.user_precision,
            "item_precision": now.item_precision,
            "mean_user": now.mean_user,
            "curvature": pack(now.curvature),
            "base": pack(now.base),
            "user_weights": now.user_weights.ravel(),
            "profile_mean": now.profile_mean,
            "membership": np.asarray(float(self.is_membership_round)),
            "unrated": self.unrated,
            "cuts": now.cuts,
            "joint_mean": now.joint_mean,
            "joint_precision": now.joint_precision,
        }

    def reading(self, design: Array) -> VbReading:
        """Return the parties' reading of the broadcast, where the server's arrays are.

        Args:
            design: of the items that are summed, likewise. (n_items, m)
        """
        rows = (singles(self._now.mean), self._now.n_raters)
        return VbReading.made(self.update_shape, self._parameters, rows, design, self._spread)

    @property
    def is_membership_round(self) -> bool:
        """Whether the coming round is a membership round."""
        looks = self.membership_rounds
        return self.update_shape.has_membership_rounds and int(self._now.n_done) in looks

    def advance(self, sums: ItemSums, t: int) -> None:
        """Update every q_i from the parties' sums, then the hyperparameters."""
        totals = self.update_shape.blocks["totals"].split(doubles(sums.totals))
        rows, n_raters, is_membership_round = (
            doubles(sums.rows),
            doubles(sums.n_raters),
            self.is_membership_round,
        )
        self._now = replace(self._now, n_raters=n_raters, n_done=self._now.n_done + 1)
        if is_membership_round and not totals["n_users"][0]:
            return  # all membership rounds are used up, some by rounds that were lost
        # Counted raters who did not take part are taken for the mean of those who did.
        share = (n_raters.sum() / totals["n_ratings"].clip(1.0)).clip(1.0, 4.0)  # (1,)
        tightness = self._tightness(share * totals["n_users"])
        if is_membership_round:
            self._now = replace(self._now, raters=_standardised(share * rows, n_raters))
        else:
            self._move_items(rows, totals, share, tightness)
        self._learn_users(totals)
        if self.update_shape.n_levels and t > BEGINS_AFTER:
            moved = moved_cuts(self._now.cuts, totals["levels"].reshape(3, -1))
            self._now = replace(self._now, cuts=moved)
        self._learn_items(tightness)
        self._balance()

    def _tightness(self, n_users: Array) -> tuple[Array, Array]:
        """Alpha and beta of f_i = alpha n_i + beta: the prior precision of q_i is c f_i. (1,) each.

        Where unrated items count, f_i is the weight of all pairs of an item, divided by its mean
        over rated items: the prior of popular items is tighter, as the penalty of iALS is (Rendle
        et al. 2022). Else f_i is 1. It is affine in n_i, so that T_i = (n_i A + B)^-1 still holds.
        """
        one, n_raters = n_users / n_users, self._now.n_raters
        if not self.update_shape.ranks:
            return 0.0 * one, one
        by_all, known = float(self.unrated[0]) * n_users, doubles(n_raters > 0)
        mean = by_all + (known * n_raters).sum() / known.sum()
        return one / mean, by_all / mean

    def _move_items(
        self,
        gradient: Array,
        totals: dict[str, Array],
        share: Array,
        tightness: tuple[Array, Array],
    ) -> None:
        """E[q_i] <- E[q_i] + s T_i (sum g / tau - c f_i (E[q_i] - prior_i)), T_i = (n_i A + B)^-1.

        With D = diag(c), A is C / tau + alpha D and B is beta D, but for unrated items.
        """
        now, k, tau, xp = self._now, self.update_shape.rank, self._now.tau, space(gradient)
        rounding = xp.diag(k * self._rounding(totals) * xp.ones_like(now.item_precision))
        curvature = (unpack(totals["moment"], k) + rounding) / totals["n_ratings"] / tau
        (alpha, beta), prior_precision = tightness, xp.diag(now.item_precision)
        base = beta * prior_precision
        if self.update_shape.ranks:
            weight, everybody = float(self.unrated[0]), unpack(totals["all_moment"], k) + rounding
            line = totals["all_line"].reshape(k, self.update_shape.n_design)
            gradient = gradient + weight * (self._design @ line.T - now.mean @ everybody)
            curvature, base = (1 - weight) * curvature, base + weight * share * everybody / tau
        curvature = curvature + alpha * prior_precision
        tight = (alpha * now.n_raters + beta)[:, np.newaxis]  # f_i (n_items, 1)
        slope = share * gradient / tau - tight * now.item_precision * (now.mean - now.prior)
        self._spread = Spread.of(curvature, base, self._linalg)
        mean = now.mean + STEP * self._spread.apply(now.n_raters, slope)
        # Bounded, so that a bad party's rows have limited effect.
        mean = mean.clip(self._middle - self._most, self._middle + self._most)
        is_summed = now.n_raters[:, np.newaxis] > 0
        self._now = replace(
            now, mean=xp.where(is_summed, mean, now.prior), curvature=curvature, base=base
        )

    def _rounding(self, totals: dict[str, Array]) -> Array:
        """Largest effect of rounding of users' totals on a sum of them. (1,).

        Users' numbers are rounded before they are added: by half a step each, and a step is at most
        2^-52 of the largest sum. Equal users round alike, so that these errors add up. A matrix
        of such sums is off by k of it at most in any direction (Gershgorin 1931), which added to
        its diagonal keeps it positive definite.
        """
        return totals["n_users"] ** 2 * (total_bound(self.context.span) * 2.0**-53)

    def _learn_users(self, totals: dict[str, Array]) -> None:
        """Maximise the bound in tau and a; fit the weights of users' prior by ridge regression."""
        now, n_users, update_shape, xp = (
            self._now,
            totals["n_users"],
            self.update_shape,
            space(self._now.mean),
        )
        rounding = self._rounding(totals)
        precision = n_users / xp.maximum(totals["deviation"], rounding)
        precision[:1] = PINNED
        tau = xp.asarray(totals["error"][0] / totals["weight"][0])
        mean_user = totals["user_sum"] / n_users
        self._now = replace(now, tau=tau, user_precision=precision, mean_user=mean_user)
        if len(now.user_weights):
            gram = unpack(totals["user_gram"], len(now.user_weights))
            ridge = xp.full_like(gram[0], USER_RIDGE)
            if update_shape.n_seen:
                ridge[: update_shape.n_seen] *= (
                    xp.diag(gram)[: update_shape.n_seen].mean() / n_users
                )
            moments = totals["user_moments"].reshape(now.user_weights.shape)
            normal = gram + xp.diag(ridge + len(ridge) * rounding)
            self._linalg.cholesky(normal)  # raises where no honest users could give this sum
            weights = self._linalg.solve(normal, moments)
            self._now = replace(self._now, user_weights=weights)
        if update_shape.n_joint:
            # Bounds that people do not reach limit a bad party's totals.
            most, least = self._most, 1e-6 * max(self.context.span, 1.0) ** 2
            mean = (totals["joint_sum"] / n_users).clip(-most, most)
            spread = (totals["joint_deviation"] / n_users).clip(least, most**2)
            self._now = replace(self._now, joint_mean=mean, joint_precision=1.0 / spread)
        if update_shape.n_profile:
            mean = totals["profile_sum"] / totals["n_profiled"].clip(1.0)
            self._now = replace(self._now, profile_mean=mean)

    def _learn_items(self, tightness: tuple[Array, Array]) -> None:
        """Maximise the bound in the items' prior: W by ridge regression, then its precision c."""
        (now, xp), (alpha, beta) = (self._now, space(self._now.mean)), tightness
        known = doubles(now.n_raters > 0)[:, np.newaxis]  # (n_items, 1)
        weight = known * (alpha * now.n_raters + beta)[:, np.newaxis]  # f_i of rated items
        x = xp.hstack((self._regressors, now.raters))
        ridge = xp.full_like(x[0], PRIOR_RIDGE)
        ridge[:1], ridge[self._regressors.shape[1] :] = 0.0, MEMBERSHIP_RIDGE
        normal = x.T @ (weight * x) + xp.diag(ridge)
        weights = self._linalg.solve(normal, x.T @ (weight * now.mean))  # W^T
        prior = x @ weights
        spread = self._spread.variances(now.n_raters) + xp.square(now.mean - prior)
        precision = known.sum() / (weight * spread).sum(axis=0)
        self._now = replace(now, prior=prior, item_weights=weights, item_precision=precision)

    def _balance(self) -> None:
        """Rescale item factors by powers of two where they are out of proportion to user factors.

        s q_i and p_u / s are the same model for every s, so that s drifts over hundreds of rounds,
        until rows reach their bounds and totals are lost in rounding. A power of two changes the
        exponents of floating-point numbers alone.
        """
        now, xp = self._now, space(self._now.mean)
        ratio = now.user_precision / (now.item_precision * self._item_unit**2)  # (k,)
        s = xp.where(ratio > MAX_IMBALANCE, 0.5, 1.0) * xp.where(
            ratio < 1 / MAX_IMBALANCE, 2.0, 1.0
        )
        s[:1] = 1.0  # the coordinate of p_u that is always 1
        both, n_seen = s[:, np.newaxis] * s, self.update_shape.n_seen
        weights = now.user_weights / s  # (e, k); the first rows multiply item factors
        weights[:n_seen] = weights[:n_seen] / s[:n_seen, np.newaxis]
        self._now = replace(
            now,
            mean=now.mean * s,
            prior=now.prior * s,
            item_weights=now.item_weights * s,
            item_precision=now.item_precision / s**2,
            user_precision=now.user_precision * s**2,
            mean_user=now.mean_user / s,
            user_weights=weights,
            curvature=now.curvature / both,
            base=now.base / both,
        )
        self._spread = replace(self._spread, basis=self._spread.basis * s[:, np.newaxis])

    def check(self, broadcast: Broadcast) -> None:
        """Raise `WireError` unless variances, precisions and matrices are positive."""
        check_broadcast(self.update_shape, broadcast)

    def unknown(self, regressors: Array) -> Array:
        """Return the prior means of items without ratings. (n, broadcast_width)."""
        ones = np.ones(len(regressors))
        x = np.column_stack((ones, regressors))[:, : self._regressors.shape[1]]
        mean = x @ self._now.item_weights[: x.shape[1]]
        return self.update_shape.blocks["item_row"].join((len(x),), mean=mean).astype(np.float32)

    def state(self) -> dict[str, Array]:
        """Return all arrays of `Items` by name."""
        return {part.name: getattr(self._now, part.name) for part in fields(Items)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore all arrays of `Items`, placed where the server computes."""
        placed: dict[str, Any] = {}
        for part in fields(Items):
            placed[part.name] = self._placed(state[part.name])
        self._now = Items(**placed | {"n_done": state["n_done"]})  # n_done stays on the host
        self._spread = Spread.of(self._now.curvature, self._now.base, self._linalg)


def membership_rounds(rounds: int) -> tuple[int, ...]:
    """Return after how many rounds membership rounds follow, in a run of so many.

    In longer runs they come later in proportion: raters' factors say more when they have settled.
    """
    return tuple(after * max(rounds, USUAL_ROUNDS) // USUAL_ROUNDS for after in MEMBERSHIP_ROUNDS)


def _standardised(rows: Array, n_raters: Array) -> Array:
    """Standardised n_i^-1/2 sum of p_u over raters: mean 0, deviation 1. (n_items, k)."""
    known, xp = doubles(n_raters > 0)[:, np.newaxis], space(rows)  # (n_items, 1)
    told = rows / xp.sqrt(n_raters.clip(1.0))[:, np.newaxis]
    told = known * (told - (known * told).sum(axis=0) / known.sum())
    deviation = xp.sqrt((told * told).sum(axis=0) / known.sum())
    scaled: Array = told / deviation.clip(1e-9)
    return scaled
