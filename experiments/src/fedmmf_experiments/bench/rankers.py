"""Centralised rankers to compare lists with; short, with what is installed anyway.

They hold everybody's ratings. Each is tuned on a part of the training ratings, also in what it
takes for chosen: every rated item, those that are liked, or all by how much they are liked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from scipy import linalg, sparse
from threadpoolctl import threadpool_limits

from fedmmf.arrays import Array
from fedmmf.data import Ratings

Scores = Callable[[Array], Array]
"""Codes of users -> scores of all items. (n, n_items)."""


@dataclass(frozen=True)
class Ranker:
    """A ranker, and the settings that it is tuned over."""

    name: str
    fit: Callable[..., Scores]  # (ratings, least, **settings)
    grid: Mapping[str, Sequence[Any]]


def chosen_matrix(ratings: Ratings, chosen: str, least: float) -> Any:
    """Sparse matrix of the items that users chose. (n_users, n_items).

    rated: 1 for each rating; liked: for each that is at least `least`; value: what a rating is
    above the lowest, by the span of the scale.
    """
    values = np.ones(len(ratings), np.float32)
    if chosen == "value":
        values = ratings.scale.to_unit(ratings.values).astype(np.float32)
    keep = (ratings.values >= least if chosen == "liked" else values > 0) & (values > 0)
    codes = (ratings.user_codes[keep], ratings.item_codes[keep])
    shape = (ratings.n_users, ratings.n_items)
    return sparse.csr_matrix((values[keep], codes), shape=shape)


def popularity(ratings: Ratings, least: float) -> Scores:
    """Score items by their number of raters, the same for everybody."""
    counts = np.bincount(ratings.item_codes, minlength=ratings.n_items).astype(np.float32)
    return lambda users: np.tile(counts, (len(users), 1))


def ease(ratings: Ratings, least: float, penalty: float, chosen: str) -> Scores:
    """Steck 2019, Embarrassingly shallow autoencoders for sparse data: a closed form."""
    x = chosen_matrix(ratings, chosen, least)
    known = np.flatnonzero(np.asarray(x.sum(axis=0)).ravel())
    gram = np.asarray((x[:, known].T @ x[:, known]).todense(), np.float32)
    gram[np.diag_indices(len(known))] += penalty
    inverse = _inverse(gram)
    weights = -inverse / np.diag(inverse)
    weights[np.diag_indices(len(known))] = 0.0

    def scores(users: Array) -> Array:
        out = np.full((len(users), ratings.n_items), -np.inf, np.float32)
        out[:, known] = x[users][:, known] @ weights
        return out

    return scores


def _inverse(matrix: Array) -> Array:
    """Invert a symmetric positive matrix, with half the work of a general inverse."""
    lower, failed = linalg.lapack.spotrf(matrix, lower=True, clean=True, overwrite_a=True)
    lower, failed_too = linalg.lapack.spotri(lower, lower=True, overwrite_c=True)
    if failed or failed_too:
        raise linalg.LinAlgError("the matrix is not positive")
    return np.asarray(np.tril(lower, -1).T + lower)


def item_knn(
    ratings: Ratings, least: float, neighbours: int, damping: float, chosen: str
) -> Scores:
    """Items near to those that were chosen: cosines, damped for rare items, the nearest alone.

    Sarwar et al. 2001; Deshpande and Karypis 2004.
    """
    x = chosen_matrix(ratings, chosen, least)
    lengths = np.sqrt(np.asarray(x.multiply(x).sum(axis=0)).ravel())  # (n_items,)
    near = sparse.csr_matrix(x.T @ x)
    near.setdiag(0.0)
    near.eliminate_zeros()
    of_pair = np.repeat(lengths, np.diff(near.indptr)) * lengths[near.indices] + damping
    near.data /= of_pair.astype(near.dtype)
    _keep_largest(near.indptr, near.data, neighbours)
    near.eliminate_zeros()
    turned = near.T.tocsr()
    return lambda users: np.asarray((x[users] @ turned).todense())


@numba.njit(cache=True)
def _keep_largest(begins: Array, data: Array, n: int) -> None:
    """Set all but the n largest of each row to 0."""
    for row in range(len(begins) - 1):
        own = data[begins[row] : begins[row + 1]]
        if len(own) > n:
            least = np.partition(own, len(own) - n)[len(own) - n]
            own[own < least] = 0.0


def ials(
    ratings: Ratings, least: float, factors: int, weight: float, penalty: float, chosen: str
) -> Scores:
    """Hu, Koren and Volinsky 2008, with the frequency-scaled penalty of Rendle et al. 2022."""
    x = chosen_matrix(ratings, chosen, least)
    q = 0.1 / np.sqrt(factors) * np.random.default_rng(0).standard_normal((x.shape[1], factors))
    p = np.zeros((x.shape[0], factors))
    turned = x.T.tocsr()
    for _ in range(12):
        p = half_step(x, q, weight, penalty)
        q = half_step(turned, p, weight, penalty)
    return lambda users: p[users] @ q.T


def half_step(x: Any, other: Array, weight: float, penalty: float) -> Array:
    """Solve for every row of x; unrated entries are zeros with a weight. (n, factors)."""
    found = np.zeros((x.shape[0], other.shape[1]))
    with threadpool_limits(limits=1, user_api="blas"):  # rows are shared between threads already
        _solve_rows(x.indptr, x.indices, x.data, other, (weight, penalty), found)
    return found


@numba.njit(cache=True, parallel=True)
def _solve_rows(
    begins: Array,
    columns: Array,
    data: Array,
    other: Array,
    weights: tuple[float, float],
    out: Array,
) -> None:
    weight, penalty = weights
    everything = weight * (other.T @ other)  # (factors, factors)
    for row in numba.prange(len(begins) - 1):
        own = slice(begins[row], begins[row + 1])
        mine = other[columns[own]]  # (n, factors)
        shrinkage = penalty * (len(mine) + weight * len(other))
        normal = everything + mine.T @ mine + shrinkage * np.eye(other.shape[1])
        out[row] = np.linalg.solve(normal, data[own].astype(np.float64) @ mine)


_PENALTIES = (5.0, 15.0, 50.0, 150.0, 400.0, 1000.0, 3000.0, 8000.0)
RANKERS = (
    Ranker("popularity", popularity, {}),
    Ranker(
        "item kNN",
        item_knn,
        {
            "chosen": ["rated", "liked", "value"],
            "neighbours": [10, 20, 50, 100, 200, 400, 800, 1600],
            "damping": [0.0, 3.0, 10.0, 30.0, 100.0, 300.0],
        },
    ),
    Ranker(
        "EASE",
        ease,
        {"chosen": ["rated", "liked"], "penalty": _PENALTIES},
    ),
    Ranker("EASE on ratings", ease, {"chosen": ["value"], "penalty": _PENALTIES}),
    Ranker(
        "iALS",
        ials,
        {
            "chosen": ["rated", "liked", "value"],
            "weight": [0.005, 0.015, 0.05, 0.15, 0.4, 0.8],
            "penalty": [0.0025, 0.005, 0.01, 0.02, 0.04],
            "factors": [32, 64, 128, 256],
        },
    ),
)
