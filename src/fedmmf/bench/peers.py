"""Centralised tools that people use today, with defaults or settings that do better.

They are optional: install the extra `bench` (and the CPU build of torch first, which lenskit
wants).
"""

import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import evaluation
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.engines.kernels import threads
from fedmmf.errors import SettingsError

Predictor = Callable[[Ratings], Array]


@dataclass(frozen=True)
class Peer:
    """A tool: how it is configured, and how it is fitted and asked."""

    name: str
    package: str  # to import
    configuration: str
    prepare: Callable[[Ratings], Callable[[], Predictor]]  # builds its data, returns how to fit


@dataclass(frozen=True)
class PeerFit:
    """One fit of a peer."""

    seconds: float
    rmse: float


def measure(peer: Peer, train: Ratings, test: Ratings) -> PeerFit:
    """Seconds of fitting and RMSE on the test part; building the tool's own data is not counted."""
    fit = peer.prepare(train)
    began = time.perf_counter()
    predict = fit()
    seconds = time.perf_counter() - began
    predicted = np.nan_to_num(predict(test), nan=float(train.values.mean()))
    return PeerFit(seconds, evaluation.rmse(test.values, test.scale.clip(predicted)))


def _cmfrec(train: Ratings) -> Callable[[], Predictor]:
    import pandas as pd
    from cmfrec import CMF

    frame = pd.DataFrame(
        {"UserId": train.user_codes, "ItemId": train.item_codes, "Rating": train.values}
    )
    model = CMF(k=40, lambda_=20.0, method="als", nthreads=threads.n_threads(), verbose=False)

    def fit() -> Predictor:
        model.fit(frame)
        return lambda test: np.asarray(model.predict(test.user_codes, test.item_codes))

    return fit


def _surprise(train: Ratings) -> Callable[[], Predictor]:
    import pandas as pd
    from surprise import SVD, Dataset, Reader

    frame = pd.DataFrame({"u": train.user_codes, "i": train.item_codes, "r": train.values})
    reader = Reader(rating_scale=(train.scale.min, train.scale.max))
    data = Dataset.load_from_df(frame, reader).build_full_trainset()
    model = SVD(random_state=0)

    def fit() -> Predictor:
        model.fit(data)
        return lambda test: np.array(
            [model.predict(u, i).est for u, i in zip(test.user_codes, test.item_codes, strict=True)]
        )

    return fit


def _lenskit(train: Ratings) -> Callable[[], Predictor]:
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df

    frame = pd.DataFrame(
        {"user_id": train.user_codes, "item_id": train.item_codes, "rating": train.values}
    )
    data = from_interactions_df(frame)
    model = BiasedMFScorer(embedding_size=50)

    def fit() -> Predictor:
        model.train(data)
        return lambda test: _ask_lenskit(model, test)

    return fit


def _ask_lenskit(model: Any, test: Ratings) -> Array:
    from lenskit.data import ItemList, RecQuery

    predicted = np.zeros(len(test))
    for user in np.unique(test.user_codes):
        begin, end = test.by_user[user : user + 2]
        items = ItemList(item_ids=test.item_codes[begin:end])
        predicted[begin:end] = model(RecQuery(user_id=user), items).scores()
    return predicted


PEERS = [
    Peer("cmfrec", "cmfrec", "CMF, ALS, 40 factors, lambda 20", _cmfrec),
    Peer("lenskit", "lenskit", "BiasedMFScorer, ALS, 50 factors", _lenskit),
    Peer("surprise", "surprise", "SVD, defaults (100 factors, 20 epochs)", _surprise),
]


def installed() -> list[Peer]:
    """The peers that are there; an error where there is none."""
    found = [peer for peer in PEERS if importlib.util.find_spec(peer.package) is not None]
    if not found:
        raise SettingsError(
            "no peer is installed; run `make bench`, or install torch's CPU build and then "
            "fedmmf[bench]"
        )
    return found
