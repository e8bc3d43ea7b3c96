"""The variational solver, equation by equation; numpy only.

masked_ui ~ N(q_i . p_u, tau), p_u ~ N(m, diag(1/a)), q_i ~ N(W x_i, diag(1/c)), with Gaussian
posteriors for every p_u (in its party) and q_i (on the server), updated in turn: mean-field
variational inference of probabilistic matrix factorization (Lim and Teh 2007, Variational Bayesian
approach to movie rating prediction; the prior mean W x_i as in Park et al. 2013). Coordinate 0 of
p_u is pinned to 1 by its prior, so that q_i0 is the item's bias.

Symmetric matrices travel packed: the lower triangle, row by row. One round has no learning rate,
and about twenty rounds do.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import Bounds, Ground, ItemSums, Public, Solve, require_published

PINNED = 1e6  # prior precision of the coordinate that is always 1
ITEM_SPREAD = 0.3  # standard deviation of the item means at the start, of a quarter of the scale
ITEM_VARIANCE = 0.1
PRIOR_RIDGE = 1.0  # of the regression of item factors on item features


def pack(matrix: Array) -> Array:
    """Lower triangles of symmetric matrices. (..., k, k) -> (..., k (k + 1) / 2)."""
    rows, columns = np.tril_indices(matrix.shape[-1])
    return np.asarray(matrix[..., rows, columns])


def unpack(packed: Array, k: int) -> Array:
    """Symmetric matrices from their lower triangles. (..., k (k + 1) / 2) -> (..., k, k)."""
    rows, columns = np.tril_indices(k)
    matrix = np.empty((*packed.shape[:-1], k, k), packed.dtype)
    matrix[..., rows, columns] = packed
    matrix[..., columns, rows] = packed
    return matrix


def posterior_rows(sums: Array, precision: Array, prior_mean: Array, tau: float) -> Array:
    """Gaussian posteriors of one side, given moments of the other, summed over ratings.

    Lambda = diag(precision) + sum E[v v^T] / tau
    mean = Lambda^-1 (precision prior_mean + sum r E[v] / tau)

    Sums and result have the same layout, so that either side's rows can be summed for the other.

    Args:
        sums: sum of r E[v], then sum of E[v v^T], packed. (n, k + k (k + 1) / 2)
        precision: of the prior. (k,)
        prior_mean: (n, k)
        tau: variance of the noise.

    Returns:
        mean, then E[u u^T] = Lambda^-1 + mean mean^T, packed. (n, k + k (k + 1) / 2)
    """
    k = len(precision)
    first, second = sums[:, :k], sums[:, k:].astype(np.float64)
    matrix = unpack(second, k) / tau
    matrix[:, np.arange(k), np.arange(k)] += precision
    covariance = np.linalg.inv(matrix)
    right = precision * prior_mean + first / tau
    mean = np.einsum("nij,nj->ni", covariance, right)
    moment = covariance + mean[:, :, np.newaxis] * mean[:, np.newaxis, :]
    return np.hstack((mean, pack(moment)))


def expected_squares(squares: float, sums: Array, row: Array, k: int) -> float:
    """Sum over one party's ratings of E[(r - q.p)^2], from sums that it already has.

    sum r^2 - 2 mean . sum r E[v] + <E[u u^T], sum E[v v^T]>
    """
    rows, columns = np.tril_indices(k)
    twice = np.where(rows == columns, 1.0, 2.0)  # off the diagonal, packed values stand for two
    return float(squares - 2.0 * (row[:k] @ sums[:k]) + np.sum(twice * row[k:] * sums[k:]))


def diagonal(k: int) -> Array:
    """Where, in a row, the squares of the packed moment are. (k,)."""
    return k - 1 + np.cumsum(np.arange(1, k + 1))


class Hyper:
    """Public numbers of a round: tau, then a (k,). The prior mean m is (1, 0, ..., 0)."""

    def __init__(self, tau: float, precision: Array) -> None:
        self.tau, self.precision = tau, precision

    def to_parameters(self) -> Array:
        """As numbers for the wire."""
        return np.concatenate(([self.tau], self.precision))

    @classmethod
    def of(cls, public: Public) -> "Hyper":
        """Read the numbers back."""
        return cls(float(public.parameters[0]), public.parameters[1:])


def prior_mean(k: int) -> Array:
    """m: the pinned coordinate is 1, the others 0. (k,)."""
    mean = np.zeros(k)
    mean[0] = 1.0
    return mean


def n_totals(k: int) -> int:
    """Ratings, expected squared error, parties, and k squares."""
    return 3 + k


class VbParty:
    """The party's half: the posterior of p_u."""

    def __init__(self, rank: int) -> None:
        self.user_factors = prior_mean(rank).astype(np.float32)

    def update(self, masked_ratings: Array, public: Public, t: int) -> tuple[Array, Array]:
        """Posterior of p_u; per rated item (r E[p], E[p p^T]), and totals for tau and a."""
        k, sums = public.rank, self._sums(masked_ratings, public)
        row = self._posterior(sums, public)
        rows = np.tile(row.astype(np.float32), (len(masked_ratings), 1))
        rows[:, :k] *= masked_ratings[:, np.newaxis]
        if len(masked_ratings) == 0:
            return rows, np.zeros(n_totals(k))
        squares = float(np.sum(np.square(masked_ratings, dtype=np.float64)))
        residual = expected_squares(squares, sums, row, k)
        return rows, np.concatenate(([len(masked_ratings), residual, 1.0], row[diagonal(k)]))

    def settle(self, masked_ratings: Array, public: Public) -> None:
        """Find p_u for finished item factors: the same posterior."""
        self._posterior(self._sums(masked_ratings, public), public)

    def _sums(self, masked_ratings: Array, public: Public) -> Array:
        rows = public.item_rows.astype(np.float64)
        first = masked_ratings @ rows[:, : public.rank]
        return np.concatenate((first, rows[:, public.rank :].sum(axis=0)))

    def _posterior(self, sums: Array, public: Public) -> Array:
        hyper, prior = Hyper.of(public), prior_mean(public.rank)[np.newaxis]
        (row,) = posterior_rows(sums[np.newaxis], hyper.precision, prior, hyper.tau)
        self.user_factors = row[: public.rank].astype(np.float32)
        return np.asarray(row)

    def state(self) -> dict[str, Array]:
        """The mean; the next round needs nothing else."""
        return {"value": self.user_factors.copy()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self.user_factors = state["value"].copy()


class VbServer:
    """The server's half: the posteriors of all q_i, and the hyperparameters.

    Args:
        ground: what it starts from; its regressors give the prior mean of the item factors.
        factors: latent factors; k is one more, for the bias.
        solve: `posterior_rows`, or a faster function that gives the same.
    """

    def __init__(self, ground: Ground, factors: int, solve: Solve = posterior_rows) -> None:
        n_items, level = ground.n_items, ground.level
        unit = ground.span / 4  # what a large effect on a rating is
        k = factors + 1
        self._k, self._solve = k, solve
        self._design = np.column_stack((np.ones(n_items), ground.regressors))  # (n_items, 1 + d)
        mean = ITEM_SPREAD * unit * ground.stream.standard_normal((n_items, k))
        mean[:, 0] += level
        moment = (
            ITEM_VARIANCE * unit**2 * np.eye(k) + mean[:, :, np.newaxis] * mean[:, np.newaxis, :]
        )
        self._rows = np.hstack((mean, pack(moment)))
        self._prior_mean = np.zeros((n_items, k))
        self._prior_mean[:, 0] = level
        self._precision = np.full(k, 1.0 / unit**2)  # c
        precision = np.ones(k)
        precision[0] = PINNED
        self._hyper = Hyper(unit**2, precision)

    def public(self) -> Public:
        """The item posteriors' moments, tau and a."""
        return Public(self._k, self._hyper.to_parameters(), self._rows.astype(np.float32))

    def advance(self, sums: ItemSums, t: int) -> None:
        """Posteriors of q_i from the parties' sums, then the hyperparameters."""
        tau = self._hyper.tau
        self._rows = self._solve(sums.rows, self._precision, self._prior_mean, tau)
        self._learn(sums.totals)

    def _learn(self, totals: Array) -> None:
        """Maximise the bound in tau, a, W and c."""
        n_ratings, residual, n_parties = totals[:3]
        precision = n_parties / totals[3:]
        precision[0] = PINNED
        self._hyper = Hyper(float(residual / n_ratings), precision)
        mean, squares = self._rows[:, : self._k], self._rows[:, diagonal(self._k)]
        design = self._design
        ridge = PRIOR_RIDGE * np.eye(design.shape[1])
        ridge[0, 0] = 0.0
        weights = np.linalg.solve(design.T @ design + ridge, design.T @ mean)  # W^T
        prior = self._prior_mean = design @ weights
        spread = squares - 2.0 * mean * prior + prior * prior  # E[(q - W x)^2]
        self._precision = 1.0 / spread.mean(axis=0)

    def state(self) -> dict[str, Array]:
        """Posteriors and hyperparameters."""
        return {
            "rows": self._rows,
            "prior_mean": self._prior_mean,
            "precision": self._precision,
            "hyper": self._hyper.to_parameters(),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self._rows, self._prior_mean = state["rows"], state["prior_mean"]
        self._precision = state["precision"]
        self._hyper = Hyper(float(state["hyper"][0]), state["hyper"][1:])


class Vb:
    """Both halves, and what they need."""

    name, ring = "vb", "2^64"  # moments need the wider ring
    default_rounds, default_held_out = 30, 0.0
    may_be_clear = may_be_noisy = False  # one update holds masked ratings

    def rank(self, settings: Any) -> int:
        """One more than the factors, for the item's bias."""
        return int(settings.factors) + 1

    def width(self, rank: int) -> int:
        """A mean and a packed second moment."""
        return rank + rank * (rank + 1) // 2

    def n_totals(self, rank: int) -> int:
        """Ratings, expected squared error, users, and k squares."""
        return n_totals(rank)

    def bounds(self, span: float) -> Bounds:
        """Moments are some squares of the span."""
        square = max(span, 1.0) ** 2
        return Bounds(row=256.0 * square, total=2.0**20 * square)

    def check(self, public: Public) -> None:
        """Variances and precisions are positive."""
        n, k = len(public.parameters), public.rank
        require_published(n == 1 + k, f"vb with k = {k} has {1 + k} parameters; got {n}")
        is_usual = bool(((public.parameters > 1e-30) & (public.parameters < 1e30)).all())
        require_published(is_usual, "tau and precisions are in (1e-30, 1e30)")

    def party(self, rank: int) -> VbParty:
        """A party's half before its first round."""
        return VbParty(rank)

    def server(self, settings: Any, ground: Ground, solve: Solve | None = None) -> VbServer:
        """The server's half before the first round; without the item prior, a common mean."""
        columns = ground.regressors.shape[1] if settings.item_prior else 0
        ground = replace(ground, regressors=ground.regressors[:, :columns])
        return VbServer(ground, settings.factors, solve or posterior_rows)


VB = Vb()
