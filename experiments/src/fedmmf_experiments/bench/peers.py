"""Centralised tools that people use today, each as it comes and with settings that do better.

The other settings are for ML-1M, and may be worse than the defaults on other data. Each does better
than the defaults on a tenth of the training part of a 90/10 split, where they were compared:

- cmfrec: implicit features and item features both help. Of lambda 10 to 35 and of weights of the
  item features from 0.3 to 30, the best. More iterations gain nothing.
- LensKit: of a dozen regularisations, dampings, sizes and numbers of epochs, the best that takes no
  longer than the defaults. Twice the epochs or twice the factors gain at most 0.002.
- Surprise: not tuned. One setting that was known to do well, held against the defaults: fewer and
  more strongly regularised factors, longer steps and more epochs.

The peers are optional: install the extra `bench` (and the CPU build of torch first, which lenskit
wants).
"""

import importlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.engines.kernels import threads
from fedmmf.errors import SettingsError
from fedmmf.model import evaluation

Predictor = Callable[[Ratings], Array]  # ratings of the pairs, as predicted (n,)
Fit = Callable[[], Predictor]


@dataclass(frozen=True)
class Tool:
    """What is compared: how it is set, and how it is fitted and asked."""

    name: str
    package: str  # to import
    setting: str  # such as default, tuned or quick
    configuration: str  # the same in words
    prepare: Callable[[Ratings], Fit]  # builds its own data, returns how to fit


@dataclass(frozen=True)
class Fitted:
    """One fit of a tool."""

    seconds: float
    rmse: float


def measure(tool: Tool, train: Ratings, test: Ratings) -> Fitted:
    """Seconds of fitting and RMSE on the test part; building the tool's own data is not counted."""
    fit = tool.prepare(train)
    began = time.perf_counter()
    predict = fit()
    seconds = time.perf_counter() - began
    predicted = np.nan_to_num(predict(test), nan=float(train.values.mean()))
    return Fitted(seconds, evaluation.rmse(test.values, test.scale.clip(predicted)))


def require(tools: Iterable[Tool]) -> None:
    """Import every tool's package.

    Raises:
        SettingsError: one cannot be imported; a table without it would be another comparison.
    """
    for package in dict.fromkeys(tool.package for tool in tools):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise SettingsError(
                f"the comparison needs the package {package}, which cannot be imported: {error}. "
                "Run `make bench`, or install torch's CPU build and then ./experiments[bench]"
            ) from error


def _cmfrec(train: Ratings, *, uses_features: bool = False, **options: Any) -> Fit:
    from cmfrec import CMF

    frame = _frame(train, "UserId", "ItemId", "Rating")
    items = _feature_frame(train) if uses_features else None
    model = CMF(method="als", nthreads=threads.n_threads(), verbose=False, **options)

    def fit() -> Predictor:
        model.fit(frame, I=items)
        return lambda test: np.asarray(model.predict(test.user_codes, test.item_codes))

    return fit


def _surprise(train: Ratings, **options: Any) -> Fit:
    from surprise import SVD, Dataset, Reader

    reader = Reader(rating_scale=(train.scale.min, train.scale.max))
    data = Dataset.load_from_df(_frame(train, "u", "i", "r"), reader).build_full_trainset()
    model = SVD(random_state=0, **options)

    def fit() -> Predictor:
        model.fit(data)
        return lambda test: np.array(
            [model.predict(u, i).est for u, i in zip(test.user_codes, test.item_codes, strict=True)]
        )

    return fit


def _lenskit(train: Ratings, **options: Any) -> Fit:
    from lenskit.als import BiasedMFScorer
    from lenskit.data import from_interactions_df
    from lenskit.training import TrainingOptions

    data = from_interactions_df(_frame(train, "user_id", "item_id", "rating"))
    model = BiasedMFScorer(**options)

    def fit() -> Predictor:
        model.train(data, TrainingOptions(rng=0))
        return lambda test: _ask_lenskit(model, test)

    return fit


def _ask_lenskit(model: Any, test: Ratings) -> Array:
    """Predictions, user by user. (n,)."""
    from lenskit.data import ItemList, RecQuery

    predicted = np.zeros(len(test))
    for user in np.unique(test.user_codes):
        begin, end = test.by_user[user : user + 2]
        items = ItemList(item_ids=test.item_codes[begin:end])
        predicted[begin:end] = model(RecQuery(user_id=user), items).scores()
    return predicted


def _frame(train: Ratings, user: str, item: str, value: str) -> Any:
    """The ratings as a pandas frame with these columns."""
    import pandas as pd

    return pd.DataFrame({user: train.user_codes, item: train.item_codes, value: train.values})


def _feature_frame(train: Ratings) -> Any:
    """The item features as a pandas frame; None where there are none."""
    import pandas as pd

    if train.features is None:
        return None
    frame = pd.DataFrame(train.features.values, columns=list(train.features.names))
    return frame.assign(ItemId=np.arange(train.n_items))


PEERS = (
    Tool("cmfrec", "cmfrec", "default", "CMF, ALS, 40 factors, lambda 10", _cmfrec),
    Tool(
        "cmfrec",
        "cmfrec",
        "tuned",
        "CMF, ALS, 40 factors, lambda 20, implicit features, item features (if any) of weight 10",
        partial(
            _cmfrec,
            uses_features=True,
            k=40,
            lambda_=20.0,
            add_implicit_features=True,
            w_item=10.0,
        ),
    ),
    Tool("LensKit", "lenskit", "default", "BiasedMFScorer, ALS, 50 factors, 10 epochs", _lenskit),
    Tool(
        "LensKit",
        "lenskit",
        "tuned",
        "BiasedMFScorer, ALS, 50 factors, 10 epochs, regularisation 0.08",
        partial(_lenskit, embedding_size=50, epochs=10, regularization=0.08),
    ),
    Tool("Surprise", "surprise", "default", "SVD, 100 factors, 20 epochs", _surprise),
    Tool(
        "Surprise",
        "surprise",
        "one setting",
        "SVD, 50 factors, 30 epochs, step 0.007, regularisation 0.05",
        partial(_surprise, n_factors=50, n_epochs=30, lr_all=0.007, reg_all=0.05),
    ),
)
