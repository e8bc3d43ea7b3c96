"""Centralised rankers to compare lists with; short, with numpy and scipy alone.

They hold everybody's ratings. Each is tuned on a part of the training ratings, also in what it
takes for chosen: every rated item, those that are liked, or all by how much they are liked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from fedmmf.arrays import Array
from fedmmf.data import Ratings

Scores = Callable[[Array], Array]
"""Codes of users -> scores of all items. (n, n_items)."""


@dataclass(frozen=True)
class Ranker:
    """A way to rank, and the settings that it is tuned over."""

    name: str
    fit: Callable[..., Scores]  # (ratings, least, **settings)
    grid: Mapping[str, Sequence[Any]]


def chosen_matrix(ratings: Ratings, chosen: str, least: float) -> Any:
    """What was chosen. (n_users, n_items), sparse.

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
    """The same for everybody: how many rated an item."""
    counts = np.bincount(ratings.item_codes, minlength=ratings.n_items).astype(np.float32)
    return lambda users: np.tile(counts, (len(users), 1))


def ease(ratings: Ratings, least: float, penalty: float, chosen: str) -> Scores:
    """Steck 2019, Embarrassingly shallow autoencoders for sparse data: a closed form."""
    x = chosen_matrix(ratings, chosen, least)
    known = np.flatnonzero(np.asarray(x.sum(axis=0)).ravel())
    gram = np.asarray((x[:, known].T @ x[:, known]).todense(), np.float32)
    gram[np.diag_indices(len(known))] += penalty
    inverse = linalg.inv(gram, overwrite_a=True, check_finite=False)
    weights = -inverse / np.diag(inverse)
    weights[np.diag_indices(len(known))] = 0.0

    def scores(users: Array) -> Array:
        out = np.full((len(users), ratings.n_items), -np.inf, np.float32)
        out[:, known] = x[users][:, known] @ weights
        return out

    return scores


def ials(
    ratings: Ratings, least: float, factors: int, weight: float, penalty: float, chosen: str
) -> Scores:
    """Hu, Koren and Volinsky 2008, with the frequency-scaled penalty of Rendle et al. 2022."""
    x = chosen_matrix(ratings, chosen, least)
    q = 0.1 / np.sqrt(factors) * np.random.default_rng(0).standard_normal((x.shape[1], factors))
    p = np.zeros((x.shape[0], factors))
    turned = x.T.tocsr()
    for _ in range(12):
        p = _half_step(x, q, weight, penalty)
        q = _half_step(turned, p, weight, penalty)
    return lambda users: p[users] @ q.T


def _half_step(x: Any, other: Array, weight: float, penalty: float) -> Array:
    """Solve for every row of x; unrated entries are zeros with a weight. (n, factors)."""
    everything = weight * other.T @ other
    found = np.zeros((x.shape[0], other.shape[1]))
    for row in range(x.shape[0]):
        own = slice(x.indptr[row], x.indptr[row + 1])
        mine = other[x.indices[own]]
        pull = penalty * (len(mine) + weight * x.shape[1])
        normal = everything + mine.T @ mine + pull * np.eye(other.shape[1])
        found[row] = linalg.solve(normal, x.data[own] @ mine, assume_a="pos")
    return found


RANKERS = (
    Ranker("popularity", popularity, {}),
    Ranker(
        "EASE",
        ease,
        {
            "chosen": ["rated", "liked", "value"],
            "penalty": [50.0, 150.0, 400.0, 1000.0, 3000.0, 8000.0],
        },
    ),
    Ranker(
        "iALS",
        ials,
        {
            "chosen": ["rated", "liked", "value"],
            "weight": [0.05, 0.15, 0.4, 0.8],
            "penalty": [0.005, 0.01, 0.02, 0.04],
            "factors": [32, 64, 128],
        },
    ),
)
