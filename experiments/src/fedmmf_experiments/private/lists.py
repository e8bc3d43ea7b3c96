"""Lists against epsilon: `vb` with and without features, the mask alone, and noisy popularity.

The row of the mask alone is a run of one round: its only release are noisy counts. Everything else
in it is public features and weights that never leave their party: how much of a list is the mask's.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.model.accuracy import relevant_rating
from fedmmf_experiments.bench.ranking import judged
from fedmmf_experiments.private.noise import add_noise
from fedmmf_experiments.private.pairs import Pairs
from fedmmf_experiments.private.rows import DpRow, DpTrial, Values, trained

Scores = Callable[[Array], Array]  # codes of users -> scores of all items (n, n_items)
_FEATURES: Values = {"objective": "ranking", "solver": "vb", "mask": "lr"}
_PLAIN: Values = {"objective": "ranking", "solver": "vb", "mask": "none", "item_prior": False}


def ndcg(scores: Scores, trial: DpTrial) -> float:
    """Quality of everybody's lists of all unrated items."""
    least = relevant_rating(trial.train.scale, None)
    return judged(scores, trial.train, trial.test, least)["ndcg_at_10"]


def library(fixed: Values, trial: DpTrial, values: Values) -> float:
    """Quality of the lists of one of our own models."""
    found = trained(fixed, trial, values).evaluate(trial.test, top=10)["ranking"]
    return float(found.ndcg_at_10 or 0.0)  # None where nobody has anything to find


def noisy_popularity(trial: DpTrial) -> Array:
    """How often items are rated, with the whole budget; users count K^-1/2 a rating. (n_items,).

    Counts are on the scale of numbers of raters: mean weights are K^-1/2 of a usual user.
    """
    pairs, stream = Pairs.of(trial.train), rng.stream(trial.seed, "noisy popularity")
    shares = 1.0 / np.sqrt(pairs.sizes[pairs.users])
    counts = np.bincount(pairs.items, shares, pairs.n_items)
    counts = add_noise(counts, trial.privacy.budget().std(1.0, 1.0), stream)
    return np.maximum(counts, 0.0) * max(float(counts.sum()) / pairs.n_users, 1.0)


def popularity(trial: DpTrial, values: Values) -> float:
    """Quality of lists of what is rated most."""
    counts = noisy_popularity(trial)
    return ndcg(lambda users: np.tile(counts, (len(users), 1)), trial)


_NO_NOISE: Values = {"objective": "ranking", "solver": "vb", "mask": "mean", "factors": 64}
LIST_ROWS = (
    DpRow("vb-features", "vb, lr mask and item prior", partial(library, _FEATURES)),
    DpRow("vb", "vb, no features (no mask)", partial(library, _PLAIN)),
    DpRow("mask", "lr mask alone, on noisy counts", partial(library, _FEATURES | {"rounds": 1})),
    DpRow("popularity", "popularity", popularity),
    DpRow(
        "vb-no-noise",
        "vb, secure sums alone, defaults of lists",
        partial(library, _NO_NOISE),
        spends=False,
        free="no noise",
    ),
    DpRow("popularity-no-noise", "popularity", popularity, spends=False, free="no noise"),
)
