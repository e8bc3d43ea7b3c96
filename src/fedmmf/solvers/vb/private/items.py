"""Equations of the items' posteriors under noise, and of their prior."""

import math
from dataclasses import dataclass, replace

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.vb.private import plan

PRIOR_RIDGE = 1.0  # of the regression of item factors on item features
MIN_SPREAD = 1e-4  # smallest variance of item factors around their prior mean
MAX_SMALL = 12  # rows of matrices that are inverted together
_FAR = 5.0  # standard deviations below 0 from which a tail is replaced by its asymptote


@dataclass(frozen=True, eq=False)
class Prior:
    """Prior of the items: q_i ~ N(W x_i, diag(1 / c))."""

    x: Array  # (n_items, 1 + d)
    weights: Array  # W^T (1 + d, k)
    precision: Array  # c (k,)

    @property
    def mean(self) -> Array:
        """Prior means. (n_items, k)."""
        return np.asarray(self.x @ self.weights)

    def first(self, k: int) -> "Prior":
        """Return the prior of the first k columns."""
        return replace(self, weights=self.weights[:, :k], precision=self.precision[:k])

    def column(self, f: int) -> "Prior":
        """Return the prior of one column."""
        return replace(
            self, weights=self.weights[:, f : f + 1], precision=self.precision[f : f + 1]
        )

    def fitted(self, mean: Array, covariance: Array) -> "Prior":
        """Maximise the expected likelihood: W by ridge regression, then c.

        Args:
            mean: of the posteriors. (n_items, k)
            covariance: likewise. (n_items, k, k)
        """
        ridge = np.full(self.x.shape[1], PRIOR_RIDGE)
        ridge[0] = 1e-6
        weights = np.linalg.solve(self.x.T @ self.x + np.diag(ridge), self.x.T @ mean)
        spread = np.square(mean - self.x @ weights) + np.diagonal(covariance, axis1=1, axis2=2)
        return Prior(self.x, weights, 1.0 / np.maximum(spread.mean(axis=0), MIN_SPREAD))


def learned(precision: Array, first: Array, prior: Prior) -> tuple[Array, Array, Prior]:
    """Posterior means and covariances, with a prior fitted by EM: all from sums that are out.

    Args:
        precision: information of the sums about each item. (n_items, k, k)
        first: the same times what was observed. (n_items, k)
        prior: to begin with.
    """
    for _ in range(plan.EM_TURNS):
        prior = prior.fitted(*posterior(precision, first, prior))
    return (*posterior(precision, first, prior), prior)


def posterior(precision: Array, first: Array, prior: Prior) -> tuple[Array, Array]:
    """Posterior means and covariances under a prior. (n_items, k), (n_items, k, k)."""
    covariance = inverses(precision + np.diag(prior.precision))
    mean = np.einsum("nij,nj->ni", covariance, first + prior.precision * prior.mean)
    return mean, covariance


def inverses(matrices: Array) -> Array:
    """Inverses of positive definite matrices, by Gauss and Jordan. (n, k, k).

    LAPACK takes one matrix after the other; of small ones, all at once takes half the time.
    """
    k = matrices.shape[1]
    if k > MAX_SMALL:
        return np.linalg.inv(matrices)
    work = np.ascontiguousarray(np.moveaxis(matrices, 0, -1))  # (k, k, n)
    for f in range(k):
        pivot, factors = 1.0 / work[f, f], work[:, f].copy()  # (n,), (k, n)
        work[:, f] = 0.0
        work[f, f] = 1.0
        work[f] *= pivot
        for g in range(k):
            if g != f:
                work[g] -= factors[g] * work[f]
    return np.ascontiguousarray(np.moveaxis(work, -1, 0))


def information(
    curvature: Array, observed: Array, rating: float, noise: Array | float
) -> tuple[Array, Array]:
    """What o_i ~ N(H_i q_i, rating H_i + noise^2 I) says about q_i: H V^-1 H and H V^-1 o.

    Args:
        curvature: H_i. (n_items, k, k)
        observed: o_i. (n_items, k)
        rating: variance of a rating times the mean weight of one.
        noise: standard deviation of the noise in each entry. () or (n_items,)
    """
    added = np.square(np.asarray(noise, np.float64))[..., np.newaxis, np.newaxis]
    variance = rating * curvature + added * np.eye(curvature.shape[1])
    gain = curvature @ inverses(variance)
    return gain @ curvature, np.einsum("nij,nj->ni", gain, observed)


def true_weights(noisy: Array, noise: float) -> Array:
    """Means of sums of weights, which are positive, given sums with noise. (n_items,).

    The prior is exponential, with the mean of all items: then the posterior is a normal
    distribution, moved down and cut off at 0. A floor at the noise's size instead would take rare
    items for frequent ones, and shrink all that is known of them.
    """
    if noise == 0.0:
        return np.maximum(noisy, 1e-6)
    rate = 1.0 / max(float(noisy.mean()), 0.1)
    middle = noisy - rate * noise**2
    z = middle / noise
    density = np.exp(-0.5 * np.square(np.clip(z, -40.0, 40.0))) / math.sqrt(2.0 * math.pi)
    above = 0.5 * np.vectorize(math.erfc)(-np.clip(z, -_FAR, 40.0) / math.sqrt(2.0))
    near = middle + noise * density / above
    found = np.where(z > -_FAR, near, noise / np.maximum(-z, 1.0))
    return np.maximum(found, 1e-6)


def positive_definite(matrix: Array) -> Array:
    """Nearest matrix whose eigenvalues are at least 1e-3: noise may have made some negative."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 1e-3)) @ vectors.T)
