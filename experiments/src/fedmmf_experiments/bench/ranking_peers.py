"""Rankers of other tools, where these are installed (the extra `bench`).

They are tuned over the same choices of what was chosen as our own, and asked for scores of all
items.
"""

import importlib.util
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.engines.kernels import threads
from fedmmf_experiments.bench.rankers import Ranker, Scores, chosen_matrix


def implicit_als(
    ratings: Ratings, least: float, factors: int, alpha: float, penalty: float, chosen: str
) -> Scores:
    """`implicit.als.AlternatingLeastSquares`: iALS by conjugate gradients."""
    from implicit.als import AlternatingLeastSquares

    x = chosen_matrix(ratings, chosen, least)
    with threadpool_limits(limits=1, user_api="blas"):  # it warns otherwise, when made and fitted
        model = AlternatingLeastSquares(
            factors=factors,
            regularization=penalty,
            alpha=alpha,
            num_threads=threads.n_threads(),
            random_state=0,
        )
        model.fit(x, show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def lenskit_implicit(
    ratings: Ratings, least: float, factors: int, weight: float, penalty: float, chosen: str
) -> Scores:
    """Rank items with LensKit's `ImplicitMFScorer`."""
    from lenskit.als import ImplicitMFScorer

    model = ImplicitMFScorer(
        embedding_size=factors, weight=weight, regularization=penalty, use_ratings=chosen == "value"
    )
    return _asked(model, ratings, least, chosen)


def lenskit_knn(ratings: Ratings, least: float, neighbours: int, chosen: str) -> Scores:
    """Rank items with LensKit's `ItemKNNScorer`."""
    from lenskit.knn import ItemKNNScorer

    model = ItemKNNScorer(max_nbrs=neighbours, feedback="implicit")
    return _asked(model, ratings, least, chosen)


def _asked(model: Any, ratings: Ratings, least: float, chosen: str) -> Scores:
    """Train a scorer of LensKit, and ask it for all items of each user."""
    from lenskit.data import ItemList, RecQuery
    from lenskit.training import TrainingOptions

    data = _lenskit_data(ratings, least, chosen)
    model.train(data, TrainingOptions(rng=0))
    everything = ItemList(item_ids=np.arange(ratings.n_items))

    def scores(users: Array) -> Array:
        rows = []
        for user in users:
            query = RecQuery(user_id=user, history_items=data.user_row(user))
            rows.append(model(query, everything).scores())
        return np.asarray(np.nan_to_num(np.stack(rows), nan=-np.inf))

    return scores


def _lenskit_data(ratings: Ratings, least: float, chosen: str) -> Any:
    import pandas as pd
    from lenskit.data import from_interactions_df

    x = chosen_matrix(ratings, chosen, least).tocoo()
    frame = pd.DataFrame({"user_id": x.row, "item_id": x.col})
    return from_interactions_df(frame.assign(rating=x.data) if chosen == "value" else frame)


PEERS = (
    (
        "implicit",
        Ranker(
            "implicit's ALS",
            implicit_als,
            {
                "chosen": ["rated", "liked", "value"],
                "alpha": [0.3, 1.0, 3.0, 10.0, 30.0],
                "penalty": [0.01, 0.1, 1.0, 5.0, 20.0, 60.0, 200.0],
                "factors": [16, 32, 64, 128, 256],
            },
        ),
    ),
    (
        "lenskit",
        Ranker(
            "LensKit's implicit MF",
            lenskit_implicit,
            {
                "chosen": ["rated", "liked", "value"],
                "weight": [0.5, 1.0, 2.0, 8.0, 20.0, 40.0],
                "penalty": [0.01, 0.1, 1.0, 5.0, 20.0, 60.0, 200.0],
                "factors": [16, 32, 64, 128, 256],
            },
        ),
    ),
    (
        "lenskit",
        Ranker(
            "LensKit's item kNN",
            lenskit_knn,
            {"chosen": ["rated", "liked"], "neighbours": [20, 50, 100, 200, 400, 800]},
        ),
    ),
)


def missing_rankers() -> tuple[str, ...]:
    """Names of the packages that are not installed."""
    packages = dict.fromkeys(package for package, _ in PEERS)
    return tuple(name for name in packages if importlib.util.find_spec(name) is None)


def installed_rankers() -> tuple[Ranker, ...]:
    """Rankers whose package is installed."""
    return tuple(
        ranker for package, ranker in PEERS if importlib.util.find_spec(package) is not None
    )
