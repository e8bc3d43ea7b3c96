"""Lists against epsilon: `vb` with and without features, the mask alone, and noisy popularity.

The row of the mask alone releases one noisy sum, how often items are rated. Everything else in it
is public features and weights that never leave their party: how much of a list is the mask's.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.model.accuracy import relevant_rating
from fedmmf_experiments.bench.ranking import judged
from fedmmf_experiments.private.dpals import pack, unpack
from fedmmf_experiments.private.noise import add_noise
from fedmmf_experiments.private.pairs import Pairs
from fedmmf_experiments.private.rows import DpRow, Trial, Values, trained

Scores = Callable[[Array], Array]  # codes of users -> scores of all items (n, n_items)
_FEATURES: Values = {"objective": "ranking", "solver": "vb", "mask": "lr"}
_PLAIN: Values = {"objective": "ranking", "solver": "vb", "mask": "none", "item_prior": False}
MASK_GRID = tuple(
    {"unrated_weight": weight, "strength": strength}
    for weight, strength in product((0.05, 0.1, 0.2), (3.0, 10.0, 30.0))
)


def ndcg(scores: Scores, trial: Trial) -> float:
    """Quality of everybody's lists of all unrated items."""
    least = relevant_rating(trial.train.scale, None)
    return judged(scores, trial.train, trial.test, least)["ndcg_at_10"]


def library(fixed: Values, trial: Trial, values: Values) -> float:
    """Quality of the lists of one of our own models."""
    found = trained(fixed, trial, values).evaluate(trial.test, top=10)["ranking"]
    return float(found.ndcg_at_10 or 0.0)  # None where nobody has anything to find


def noisy_popularity(trial: Trial) -> Array:
    """How often items are rated, with the whole budget; users count K^-1/2 a rating. (n_items,).

    Counts are on the scale of numbers of raters: mean weights are K^-1/2 of a usual user.
    """
    pairs, stream = Pairs.of(trial.train), rng.stream(trial.seed, "noisy popularity")
    shares = 1.0 / np.sqrt(pairs.sizes[pairs.users])
    counts = np.bincount(pairs.items, shares, pairs.n_items)
    counts = add_noise(counts, trial.privacy.budget().std(1.0, 1.0), stream)
    return np.maximum(counts, 0.0) * max(float(counts.sum()) / pairs.n_users, 1.0)


def popularity(trial: Trial, values: Values) -> float:
    """Quality of lists of what is rated most."""
    counts = noisy_popularity(trial)
    return ndcg(lambda users: np.tile(counts, (len(users), 1)), trial)


def mask_alone(trial: Trial, values: Values) -> float:
    """Quality of lists by noisy popularity and a private mask of public features."""
    n_users, w0 = trial.train.n_users, values["unrated_weight"]
    counts = np.minimum(noisy_popularity(trial), n_users)
    bias = counts / (counts + w0 * (n_users - counts))  # of targets 1 and 0 with weights 1 and w0
    x = regressors(trial.train)
    theta = solve_masks(Pairs.of(trial.train), x, bias, values)
    return ndcg(lambda users: bias + theta[users] @ x.T, trial)


def regressors(ratings: Ratings) -> Array:
    """Public columns of items: 1, and their features. (n_items, 1 + d)."""
    ones = np.ones((ratings.n_items, 1))
    if ratings.features is None:
        return ones
    return np.hstack((ones, ratings.features.values.astype(np.float64)))


def solve_masks(pairs: Pairs, x: Array, bias: Array, values: Values) -> Array:
    """Weights of all users' masks: ridge regressions on all items. (n_users, 1 + d).

    Rated items count as 1, unrated ones as 0 with a small weight; the bias is given.
    """
    w0, width = values["unrated_weight"], x.shape[1]
    rated = pairs.by_user(np.ones(len(pairs.items)))
    everything = w0 * x.T @ x + values["strength"] * np.eye(width)
    curvature = everything + (1.0 - w0) * unpack(rated @ pack(x), width)
    right = rated @ (x * (1.0 - (1.0 - w0) * bias)[:, np.newaxis]) - w0 * x.T @ bias
    return np.asarray(np.linalg.solve(curvature, right[:, :, np.newaxis])[:, :, 0])


def _grid(ratings: Ratings) -> tuple[Values, ...]:
    return MASK_GRID


_EIGHT: Values = {"factors": 8}  # as many as under noise
LIST_ROWS = (
    DpRow("vb-features", "vb, lr mask and item prior", partial(library, _FEATURES)),
    DpRow("vb", "vb, no features (no mask)", partial(library, _PLAIN)),
    DpRow("mask", "lr mask alone, on noisy popularity", mask_alone, grid=_grid),
    DpRow("popularity", "popularity", popularity),
    DpRow(
        "vb-features-no-noise",
        "vb, lr mask and item prior",
        partial(library, _FEATURES | _EIGHT),
        spends=False,
        free="no noise",
    ),
    DpRow(
        "vb-no-noise",
        "vb, no features (no mask)",
        partial(library, _PLAIN | _EIGHT),
        spends=False,
        free="no noise",
    ),
    DpRow("popularity-no-noise", "popularity", popularity, spends=False, free="no noise"),
)
