"""DPALS: alternating least squares whose item half sees noisy statistics alone.

Chien et al. 2021 (Private alternating least squares, algorithm 1), with the adaptive weights of
Krichene et al. 2023 (Multi-task differential privacy under distribution skew, algorithm 2). Users
solve for their factors exactly and in private. DpalsItems are solved from sums over users of
w u u^T, k x k numbers per item, and of w y u, k numbers per item, with Gaussian noise.

Where we do better by it than the papers, so that the comparison is fair: the noise is calibrated
exactly; a symmetric matrix gets the noise of its k (k + 1) / 2 numbers; ratings are clipped as one
vector per user, which shortens fewer of them than a bound on each; the budget is split between both
statistics at will. Two extensions are not in the papers: users may subtract their own means and
items have a bias, and the prior of item factors may be a regression on public features.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.model import evaluation
from fedmmf_experiments.private.noise import Budget, Privacy, add_noise
from fedmmf_experiments.private.pairs import Pairs, adaptive_weights, noisy_counts

MEAN_SHARE = 0.01  # of the budget: for the mean over users of their mean ratings
START = 0.3  # standard deviation of item factors before the first round
PRIOR_TURNS = 40  # in which items and the regression on features follow each other


@dataclass(frozen=True)
class DpalsSettings:
    """Hyperparameters of DPALS; lengths are in quarters of the rating scale's span."""

    factors: int = 4
    rounds: int = 3
    gamma: float = 0.4  # weights are in proportion to count^-gamma
    user_strength: float = 4.0
    item_strength: float = 10.0
    max_user: float = 1.0  # largest length of the learned part of u in the statistics
    max_error: float = 1.0  # largest length of a user's weighted ratings
    counts_share: float = 0.05  # of the budget
    curvature_share: float = 0.3  # of a round's budget: for w u u^T
    mean_strength: float | None = None  # shrinkage of users' means; None: they are not subtracted
    bias: bool = False  # whether u has a constant entry, so that items have a bias
    features: bool = False  # whether the prior of items is a regression on their features
    prior_ridge: float = 10.0  # penalty of its weights

    @property
    def width(self) -> int:
        """Numbers of an item: its factors, and its bias if it has one."""
        return self.factors + self.bias

    @property
    def user_length(self) -> float:
        """Largest length of u in the statistics, with its constant entry."""
        return float(np.sqrt(self.max_user**2 * (self.factors > 0) + self.bias))

    @property
    def bounds(self) -> tuple[float, float]:
        """Largest length of what one user adds to both statistics; squared weights sum to 1."""
        return self.user_length**2, self.user_length * self.max_error


@dataclass(frozen=True, eq=False)
class DpalsItems:
    """What is learned of items, and the regressors of their prior."""

    values: Array  # (n_items, width)
    regressors: Array  # (n_items, 1 + d); d is 0 without features


@dataclass(frozen=True, eq=False)
class Dpals:
    """A fitted model: everything that predictions need."""

    centre: Array  # prediction for a user before any factors (n_users,)
    users: Array  # (n_users, width)
    items: Array  # (n_items, width)

    def predict(self, users: Array, items: Array) -> Array:
        """Predict pairs of codes, in quarters of the scale around its middle. (n,)."""
        scores = np.einsum("nk,nk->n", self.users[users], self.items[items])
        return np.asarray(self.centre[users] + scores)

    def rmse(self, test: Ratings) -> float:
        """Error of clipped predictions on test ratings, on their own scale."""
        middle, unit = test.scale.min + test.scale.span / 2, test.scale.span / 4
        predicted = middle + unit * self.predict(test.user_codes, test.item_codes)
        return evaluation.rmse(test.values, test.scale.clip(predicted))


def fit(train: Ratings, settings: DpalsSettings, privacy: Privacy, seed: int) -> Dpals:
    """Train with noise from a seed: a simulation, as our own rows are."""
    stream, budget = rng.stream(seed, "dpals"), privacy.budget()
    pairs = Pairs.of(train)
    centre, pairs = centred(pairs, settings, budget, stream)
    counts = noisy_counts(pairs, budget.std(settings.counts_share, 1.0), stream)
    weights = adaptive_weights(pairs, counts, settings.gamma)
    items = first_items(train, settings, stream)
    stds = [
        budget.std(share, bound)
        for share, bound in zip(_shares(settings, budget), settings.bounds, strict=True)
    ]
    for _ in range(settings.rounds):
        users = solve_users(pairs, items.values, settings)
        statistics = item_statistics(pairs, weights, users, settings)
        noisy = [
            add_noise(entries, std * np.sqrt(settings.rounds), stream)
            for entries, std in zip(statistics, stds, strict=True)
        ]
        items = solve_items(noisy, items, settings)
    return Dpals(centre, solve_users(pairs, items.values, settings), items.values)


def _shares(settings: DpalsSettings, budget: Budget) -> tuple[float, float]:
    """Shares of both statistics in what is left, over all rounds."""
    curvature = budget.left * settings.curvature_share
    return curvature, budget.left - curvature


def centred(
    pairs: Pairs, settings: DpalsSettings, budget: Budget, stream: np.random.Generator
) -> tuple[Array, Pairs]:
    """Subtract the noisy mean of users' means, and each user's own mean if it is asked for.

    Returns:
        What was subtracted (n_users,), and the pairs without it.
    """
    means = pairs.user_sums(pairs.values) / np.maximum(pairs.sizes, 1)  # at most 2 in size
    std = budget.std(MEAN_SHARE, 2.0)
    level = float(add_noise(means.sum(keepdims=True), std, stream)[0]) / pairs.n_users
    centre = np.full(pairs.n_users, level)
    if settings.mean_strength is not None:
        sums = pairs.user_sums(pairs.values - level)
        centre += sums / (pairs.sizes + settings.mean_strength)
    return centre, replace(pairs, values=pairs.values - centre[pairs.users])


def first_items(train: Ratings, settings: DpalsSettings, stream: np.random.Generator) -> DpalsItems:
    """Return random directions, without biases."""
    values = START * stream.standard_normal((train.n_items, settings.width))
    if settings.bias:
        values[:, 0] = 0.0
    ones = np.ones((train.n_items, 1))
    if not settings.features or train.features is None:
        return DpalsItems(values, ones)
    return DpalsItems(values, np.hstack((ones, train.features.values.astype(np.float64))))


def solve_users(pairs: Pairs, items: Array, settings: DpalsSettings) -> Array:
    """Exact ridge regressions of all users, who do this in private. (n_users, width)."""
    k = settings.factors
    learned, fixed = items[:, settings.bias :], items[:, : int(settings.bias)].sum(axis=1)
    ones = pairs.by_user(np.ones(len(pairs.items)))
    curvature = unpack(ones @ pack(learned), k) + settings.user_strength * np.eye(k)
    right = pairs.by_user(pairs.values - fixed[pairs.items]) @ learned  # (n_users, k)
    found = np.linalg.solve(curvature, right[:, :, np.newaxis])[:, :, 0]
    return np.hstack((np.ones((pairs.n_users, int(settings.bias))), found))


def item_statistics(
    pairs: Pairs, weights: Array, users: Array, settings: DpalsSettings
) -> tuple[Array, Array]:
    """Sums over users of w u u^T, packed, and of w y u; a user's parts are clipped to `bounds`.

    Returns:
        (n_items, width (width + 1) / 2) and (n_items, width).
    """
    bounded = users.copy()
    learned = bounded[:, settings.bias :]
    lengths = np.sqrt(np.sum(learned**2, axis=1))
    learned *= np.minimum(1.0, settings.max_user / np.maximum(lengths, 1e-12))[:, np.newaxis]
    errors = weights * pairs.values
    lengths = np.sqrt(pairs.user_sums(errors**2))
    errors *= np.minimum(1.0, settings.max_error / np.maximum(lengths, 1e-12))[pairs.users]
    curvature = pairs.by_user(weights).T @ pack(bounded)
    return np.asarray(curvature), np.asarray(pairs.by_user(errors).T @ bounded)


def solve_items(
    statistics: Sequence[Array], before: DpalsItems, settings: DpalsSettings
) -> DpalsItems:
    """Solve for all items from noisy statistics, with the prior that explains them best."""
    width, x = settings.width, before.regressors
    values, vectors = np.linalg.eigh(unpack(statistics[0], width))
    positive = np.einsum("nij,nj,nkj->nik", vectors, np.maximum(values, 0.0), vectors)
    covariance = np.linalg.inv(positive + settings.item_strength * np.eye(width))
    if not settings.features:
        return DpalsItems(np.einsum("nij,nj->ni", covariance, statistics[1]), x)
    ridge = np.diag([1e-6] + [settings.prior_ridge] * (x.shape[1] - 1))
    regression = np.linalg.solve(x.T @ x + ridge, x.T)  # (1 + d, n_items)
    found = np.zeros_like(before.values)
    for _ in range(PRIOR_TURNS):
        prior = x @ (regression @ found)  # (n_items, width)
        right = statistics[1] + settings.item_strength * prior
        found = np.einsum("nij,nj->ni", covariance, right)
    return DpalsItems(found, x)


def pack(vectors: Array) -> Array:
    """Outer products as (n, k (k + 1) / 2); off-diagonals times sqrt(2), so that lengths stay."""
    rows, columns = np.triu_indices(vectors.shape[1])
    gain = np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.asarray(gain * vectors[:, rows] * vectors[:, columns])


def unpack(packed: Any, k: int) -> Array:
    """Symmetric matrices from what `pack` gives. (n, k, k)."""
    rows, columns = np.triu_indices(k)
    gain = np.where(rows == columns, 1.0, np.sqrt(0.5))
    found = np.zeros((len(packed), k, k))
    found[:, rows, columns] = found[:, columns, rows] = gain * np.asarray(packed)
    return found
