"""The party's half of `vb`: the posterior of p_u."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL, UserData, require_small
from fedmmf.solvers.vb import newcomers, ordinal
from fedmmf.solvers.vb.reading import Unrated, VbReading, prior_mean
from fedmmf.solvers.vb.shapes import VbShape, pack

N_ALTERNATIONS = 5  # alternations of p_u and latent ratings, where there are no rounds
MAX_MEMBERSHIP_ROUNDS = 2  # rounds in which a party reveals p_u inside the sum
PINNED = 1e6  # prior precision of the coordinate that is always 1


def starting_user(update_shape: VbShape) -> Array:
    """Factors of a user before the first round. (n_own,) float32."""
    return np.concatenate((prior_mean(update_shape.rank), np.zeros(update_shape.n_joint))).astype(
        np.float32
    )


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums over a user's items that decide p_u.

    Lambda = diag(a) + second / tau,  mean = Lambda^-1 (a prior + first / tau)
    """

    first: Array  # sum of weighted r E[q] (k + j,)
    second: Array  # sum of weighted E[q q^T] (k + j, k + j)
    squares: float  # sum of weighted r^2
    weight: float  # of all summands together


def evidence(own: UserData, reading: VbReading) -> Evidence:
    """Sum over the rated items and, where they count, over all others."""
    mean, ratings = reading.mean[own.items], np.asarray(own.masked_ratings, np.float64)
    covariance = reading.spread.matrix(reading.shrinkage[own.items].sum(axis=0))
    rated = Evidence(
        first=ratings @ mean,
        second=mean.T @ mean + covariance,
        squares=float(ratings @ ratings),
        weight=float(len(ratings)),
    )
    if reading.unrated is None:
        return rated
    unrated = reading.unrated
    if reading.newcomers is not None:
        part = newcomers.unrated_part(reading.newcomers, len(own.items))
        unrated = replace(unrated, weight=unrated.weight * part)
    return _with_unrated(rated, own, mean, unrated)


def _with_unrated(rated: Evidence, own: UserData, mean: Array, unrated: Unrated) -> Evidence:
    """Count all items as unrated, and the rated ones by their additional weight."""
    w, line, n_items = unrated.weight, _unrated_line(own, unrated), len(unrated.design)
    here = unrated.design[own.items] @ line  # (n,) masked ratings, were these items unrated
    return Evidence(
        first=rated.first + w * (unrated.line @ line - here @ mean),
        second=(1 - w) * rated.second + w * unrated.moment,
        squares=rated.squares + w * float(line @ unrated.gram @ line - here @ here),
        weight=(1 - w) * rated.weight + w * n_items,
    )


def _unrated_line(own: UserData, unrated: Unrated) -> Array:
    """Line of r_m - f_u(i), the masked rating of an unrated item, over the design. (m,)."""
    line = -np.asarray(own.line, np.float64)
    line[0] += unrated.value
    return line


@dataclass(frozen=True, eq=False)
class Ordered:
    """Additions of ordered ratings to the totals."""

    variance: float  # of what is latent, summed
    totals: Array  # for the cut points


class VbParty:
    """The party's half of `vb`: the posterior of one user's p_u."""

    def __init__(self, update_shape: VbShape) -> None:
        self._update_shape = update_shape
        self.user_factors = starting_user(update_shape)
        self._n_membership_rounds = 0

    def update(self, own: UserData, reading: VbReading, t: int) -> tuple[Array, Array]:
        """Compute the posterior; return gradients of the bound in E[q_i], and totals.

        In a membership round, the rows are p_u itself.
        """
        self._n_membership_rounds = counted_membership_round(self._n_membership_rounds, reading)
        if len(own.items) == 0:
            return np.zeros((0, self._update_shape.width), np.float32), np.zeros(
                self._update_shape.n_totals
            )
        own, ordered = self._in_order(own, reading, self.user_factors, t)
        found = evidence(own, reading)
        found = replace(found, squares=found.squares + ordered.variance)
        mean, covariance, known = self._posterior(own, reading, found)
        moment = covariance + np.outer(mean, mean)
        rows = np.tile(mean[: self._update_shape.rank], (len(own.items), 1))
        if not reading.is_membership_round:
            rows = _gradients(own, reading, mean, moment)
        totals = self._totals(own, reading, (mean, moment, known), found)
        totals[self._update_shape.blocks["totals"].place("levels")] = ordered.totals
        rows, moved = rows.astype(np.float32), mean.astype(np.float32)
        require_small([rows, moved], MAX_NUMBER)
        require_small([totals], MAX_TOTAL)
        self.user_factors = moved
        return rows, totals

    def _in_order(
        self, own: UserData, reading: VbReading, factors: Array, t: int
    ) -> tuple[UserData, "Ordered"]:
        """Replace ordered ratings by the means of latent ones, given p_u, in round t."""
        n_totals = 3 * max(self._update_shape.n_levels - 1, 0)
        if not n_totals or t <= ordinal.BEGINS_AFTER:
            return own, Ordered(0.0, np.zeros(n_totals))
        expected = reading.mean[own.items] @ factors + own.mask
        about = (own.levels, expected, reading.cuts, float(reading.tau))
        mean, variance = ordinal.latent(*about)
        masked = (mean - own.mask).astype(np.float32)
        ordered = Ordered(float(variance.sum()), ordinal.level_totals(*about).ravel())
        return replace(own, masked_ratings=masked), ordered

    def solve_user(self, own: UserData, reading: VbReading) -> None:
        """Compute the posterior mean of p_u for fixed item factors.

        With ordered ratings, p_u and the latent ratings are computed in turns.
        """
        self.user_factors, _ = self._solved(own, reading)

    def effects_of_rating(self, own: UserData, reading: VbReading, items: Array) -> Array:
        """Changes of a newcomer's scores, each given that the newcomer rates that item. (n,).

        The prior changes by an item whose rating is unknown, and p_u with it. Rated ones count
        already; and where unrated items count, scores are no ratings.
        """
        if reading.newcomers is None or self._update_shape.ranks:
            return np.zeros(len(items))
        _, covariance, known = self._posterior(own, reading, evidence(own, reading))
        _, precision = self._prior(own, reading, known)
        q, n_seen = reading.mean[items], self._update_shape.n_seen
        constant, weights = reading.newcomers.change(reading.mean[own.items, :n_seen])
        prior = constant + q[:, :n_seen] @ weights  # (n, n_own)
        effects = np.einsum("nk,nk->n", q, prior @ (covariance @ precision).T)
        require_small([effects], MAX_NUMBER)
        return np.where(np.isin(items, own.items), 0.0, effects)

    def newcomer_totals(self, own: UserData, reading: VbReading) -> Array:
        """Totals of the user's items and posterior, for the prior of newcomers. (n_newcomer,)."""
        factors, covariance = self._solved(own, reading)
        seen = reading.mean[own.items, : self._update_shape.n_seen]
        mean = factors.astype(np.float64)
        totals = newcomers.user_totals(self._update_shape, seen, mean, covariance)
        require_small([totals], MAX_TOTAL)
        return totals

    def _solved(self, own: UserData, reading: VbReading) -> tuple[Array, Array]:
        """Posterior mean, in float32, and covariance of p_u. (n_own,), (n_own, n_own)."""
        mean, covariance, _ = self._posterior(own, reading, evidence(own, reading))
        for _ in range(N_ALTERNATIONS * bool(self._update_shape.n_levels)):
            told, _ = self._in_order(
                own, reading, mean.astype(np.float32), ordinal.BEGINS_AFTER + 1
            )
            mean, covariance, _ = self._posterior(told, reading, evidence(told, reading))
        factors = mean.astype(np.float32)
        require_small([factors], MAX_NUMBER)
        return factors, covariance

    def _posterior(
        self, own: UserData, reading: VbReading, found: Evidence
    ) -> tuple[Array, Array, Array]:
        """Mean, covariance and prior's regressors of p_u. (n_own,), (n_own, n_own), (e,)."""
        known = self._known(own, reading)
        try:
            prior, precision = self._prior(own, reading, known)
            covariance = np.linalg.inv(precision + found.second / reading.tau)
        except np.linalg.LinAlgError as error:
            raise OverflowError("a user's linear system has no solution") from error
        mean = covariance @ (precision @ prior + found.first / reading.tau)
        return mean, covariance, known

    def _prior(self, own: UserData, reading: VbReading, known: Array) -> tuple[Array, Array]:
        """Prior mean and precision of p_u. (n_own,), (n_own, n_own).

        In rounds it is that of the broadcast; for newcomers the broadcast may have one of its own.
        """
        usual = reading.user_middle + known @ reading.user_weights
        if reading.newcomers is None:
            return usual, np.diag(reading.user_precision)
        n_seen = self._update_shape.n_seen
        mean, covariance = reading.newcomers.at(reading.mean[own.items, :n_seen])
        beyond = known[n_seen:] - reading.profile_mean
        mean = mean + beyond @ reading.user_weights[n_seen:]
        return mean, newcomers.precision_of(covariance, PINNED)

    def _known(self, own: UserData, reading: VbReading) -> Array:
        """Regressors of the prior of p_u: a share of the sum of E[q_j], and the profile. (e,).

        A user without a profile gets the mean one.
        """
        profile = own.profile if own.profile.any() else reading.profile_mean
        seen = reading.mean[own.items].sum(axis=0) * self._share(len(own.items))
        return np.concatenate((seen[: self._update_shape.n_seen], profile))

    def _share(self, n: int) -> float:
        """Return n^-1/2, so that more items say more; 1/n where unrated items count too."""
        share = 1.0 / max(n, 1)
        return float(share if self._update_shape.ranks else np.sqrt(share))

    def _totals(
        self, own: UserData, reading: VbReading, about: tuple[Array, Array, Array], found: Evidence
    ) -> Array:
        """Totals from which the server learns hyperparameters. (n_totals,)."""
        (mean, moment, known), k = about, self._update_shape.rank
        prior = reading.user_middle + known @ reading.user_weights
        error = found.squares - 2 * mean @ found.first + np.sum(moment * found.second)
        deviation = np.diag(moment) - 2 * mean * prior + prior * prior
        learned = pack(moment[:k, :k])
        parts = {
            "weight": found.weight,
            "error": error,
            "n_users": 1.0,
            "n_ratings": len(own.items),
            "user_sum": mean[:k],
            "deviation": deviation[:k],
            "moment": len(own.items) * learned,
            "user_gram": pack(np.outer(known, known)),
            "user_moments": np.outer(known, _unpinned(mean[:k])).ravel(),
            "joint_sum": mean[k:],
            "joint_deviation": deviation[k:],
        }
        if own.profile.any():
            parts |= {"n_profiled": 1.0, "profile_sum": own.profile}
        if reading.unrated is not None:
            line = _unrated_line(own, reading.unrated)
            parts |= {"all_moment": learned, "all_line": np.outer(mean, line).ravel()}
        return self._update_shape.blocks["totals"].join(**parts)

    def state(self) -> dict[str, Array]:
        """Return the mean, and the number of membership rounds so far."""
        return {"value": self.user_factors.copy(), "looks": np.array(self._n_membership_rounds)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the mean and the number of membership rounds from a state."""
        self.user_factors, self._n_membership_rounds = state["value"].copy(), int(state["looks"])


def counted_membership_round(n_before: int, reading: VbReading) -> int:
    """Number of membership rounds so far, this one included; raise beyond the maximum.

    p_u is the same for all items that a user rated, so that sums of many such rounds reveal
    who rated what (docs/limitations.md): a party takes part in few of them.
    """
    if reading.is_membership_round and n_before >= MAX_MEMBERSHIP_ROUNDS:
        raise WireError(f"{MAX_MEMBERSHIP_ROUNDS} rounds at most may ask who rated what")
    return n_before + reading.is_membership_round


def _gradients(own: UserData, reading: VbReading, mean: Array, moment: Array) -> Array:
    """Gradients of the bound in E[q_i], for each rated item. (n, k)."""
    q, ratings, weight, k = (
        reading.mean[own.items],
        own.masked_ratings,
        1.0,
        reading.update_shape.rank,
    )
    if reading.unrated is not None:
        weight = 1 - reading.unrated.weight
        here = reading.unrated.design[own.items] @ _unrated_line(own, reading.unrated)
        ratings = ratings - reading.unrated.weight * here
    return np.asarray(np.outer(ratings, mean[:k]) - weight * (q @ moment[:, :k]))


def _unpinned(vector: Array) -> Array:
    """Copy a vector, with 0 for the coordinate that is always 1."""
    free = np.array(vector, np.float64)
    free[0] = 0.0
    return free
