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
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.factorization.contract import ItemSums, Public

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


def posterior(
    second: Array, first: Array, precision: Array, prior_mean: Array, tau: float
) -> tuple[Array, Array]:
    """Gaussian posterior of one side, given moments of the other, summed over ratings.

    Lambda = diag(precision) + second / tau, mean = Lambda^-1 (precision prior_mean + first / tau).

    Args:
        second: sum of E[v v^T], packed. (..., k (k + 1) / 2)
        first: sum of r E[v]. (..., k)
        precision: of the prior. (k,)
        prior_mean: (k,) or (..., k)
        tau: variance of the noise.

    Returns:
        mean (..., k) and covariance (..., k, k)
    """
    k = first.shape[-1]
    matrix = unpack(np.asarray(second, np.float64), k) / tau
    matrix[..., np.arange(k), np.arange(k)] += precision
    covariance = np.linalg.inv(matrix)
    right = precision * prior_mean + first / tau
    return np.einsum("...ij,...j->...i", covariance, right), covariance


def second_moment(mean: Array, covariance: Array) -> Array:
    """E[v v^T] = covariance + mean mean^T, packed. (..., k (k + 1) / 2)."""
    return pack(covariance + mean[..., :, np.newaxis] * mean[..., np.newaxis, :])


def expected_squares(squares: Any, first: Array, second: Array, mean: Array, moment: Array) -> Any:
    """Sum over ratings of E[(r - q.p)^2], from sums that one side already has.

    sum r^2 - 2 mean . sum r E[v] + <E[v v^T] of this side, sum E[v v^T] of the other>.
    """
    k = mean.shape[-1]
    rows, columns = np.tril_indices(k)
    twice = np.where(rows == columns, 1.0, 2.0)  # off the diagonal, packed values stand for two
    cross = np.sum(mean * first, axis=-1)
    return squares - 2.0 * cross + np.sum(twice * moment * second, axis=-1)


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


class Local:
    """The party's half: the posterior of p_u."""

    def __init__(self, factors: int) -> None:
        self.user_factors = prior_mean(factors).astype(np.float32)

    def update(self, masked_ratings: Array, public: Public, t: int) -> tuple[Array, Array]:
        """Posterior of p_u; per rated item (r E[p], E[p p^T]), and totals for tau and a."""
        first, second = self._sums(masked_ratings, public)
        mean, moment = self._posterior(first, second, public)
        rows = np.empty((len(masked_ratings), public.factors + len(moment)), np.float32)
        rows[:, : public.factors] = np.outer(masked_ratings, mean)
        rows[:, public.factors :] = moment
        if len(masked_ratings) == 0:
            return rows, np.zeros(n_totals(public.factors))
        squares = float(np.sum(np.square(masked_ratings, dtype=np.float64)))
        residual = expected_squares(squares, first, second, mean, moment)
        diagonal = np.diagonal(unpack(moment, public.factors))
        return rows, np.concatenate(([len(masked_ratings), residual, 1.0], diagonal))

    def settle(self, masked_ratings: Array, public: Public) -> None:
        """Find p_u for finished item factors: the same posterior."""
        self._posterior(*self._sums(masked_ratings, public), public)

    def _sums(self, masked_ratings: Array, public: Public) -> tuple[Array, Array]:
        moments = public.item_rows[:, public.factors :].sum(axis=0, dtype=np.float64)
        return np.asarray(masked_ratings @ public.item_factors, np.float64), moments

    def _posterior(self, first: Array, second: Array, public: Public) -> tuple[Array, Array]:
        hyper, k = Hyper.of(public), public.factors
        mean, covariance = posterior(second, first, hyper.precision, prior_mean(k), hyper.tau)
        self.user_factors = mean.astype(np.float32)
        return mean, second_moment(mean, covariance)

    def state(self) -> dict[str, Array]:
        """The mean; the next round needs nothing else."""
        return {"value": self.user_factors}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self.user_factors = state["value"].copy()


class Server:
    """The server's half: the posteriors of all q_i, and the hyperparameters.

    Args:
        rng: where the starting means come from.
        n_items: size of the catalogue.
        factors: latent factors; k is one more, for the bias.
        level: the masked rating that an unknown user gives an unknown item.
        unit: a quarter of the rating scale's span: what a large effect on a rating is.
        features: public item features, the prior mean's regressors; no columns: a common mean.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        n_items: int,
        factors: int,
        level: float,
        unit: float,
        features: Array,
    ) -> None:
        k = factors + 1
        self._design = np.column_stack((np.ones(n_items), features))  # (n_items, 1 + d)
        self._mean = ITEM_SPREAD * unit * rng.standard_normal((n_items, k))
        self._mean[:, 0] += level
        self._covariance = np.broadcast_to(ITEM_VARIANCE * unit**2 * np.eye(k), (n_items, k, k))
        self._prior_mean = np.zeros((n_items, k))
        self._prior_mean[:, 0] = level
        self._precision = np.full(k, 1.0 / unit**2)  # c
        precision = np.ones(k)
        precision[0] = PINNED
        self._hyper = Hyper(unit**2, precision)

    def public(self) -> Public:
        """The item posteriors' moments, tau and a."""
        moment = second_moment(self._mean, self._covariance)
        rows = np.hstack((self._mean, moment)).astype(np.float32)
        return Public(self._mean.shape[1], self._hyper.to_parameters(), rows)

    def advance(self, sums: ItemSums, t: int) -> None:
        """Posteriors of q_i from the parties' sums, then the hyperparameters."""
        k = self._mean.shape[1]
        first, second = sums.rows[:, :k], sums.rows[:, k:]
        self._mean, self._covariance = posterior(
            second, first, self._precision, self._prior_mean, self._hyper.tau
        )
        self._learn(sums.totals)

    def _learn(self, totals: Array) -> None:
        """Maximise the bound in tau, a, W and c."""
        n_ratings, residual, n_parties = totals[:3]
        precision = n_parties / totals[3:]
        precision[0] = PINNED
        self._hyper = Hyper(float(residual / n_ratings), precision)
        design = self._design
        ridge = PRIOR_RIDGE * np.eye(design.shape[1])
        ridge[0, 0] = 0.0
        weights = np.linalg.solve(design.T @ design + ridge, design.T @ self._mean)  # W^T
        self._prior_mean = design @ weights
        variance = np.diagonal(self._covariance, axis1=1, axis2=2)  # (n_items, k)
        spread = np.square(self._mean - self._prior_mean) + variance
        self._precision = 1.0 / spread.mean(axis=0)

    def state(self) -> dict[str, Array]:
        """Posteriors and hyperparameters."""
        return {
            "mean": self._mean,
            "covariance": np.asarray(self._covariance),
            "prior_mean": self._prior_mean,
            "precision": self._precision,
            "hyper": self._hyper.to_parameters(),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self._mean, self._covariance = state["mean"], state["covariance"]
        self._prior_mean, self._precision = state["prior_mean"], state["precision"]
        self._hyper = Hyper(float(state["hyper"][0]), state["hyper"][1:])
