"""A caller's program: `mypy --strict` checks the types that the public API promises.

`make lint` checks this file, and `test_public_api.py` runs it. `assert_type` fails in the type
checker where a type becomes another, or `Any`.
"""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt
import polars as pl

from fedmmf import FedMMF, FedMMFError, Ratings, RatingScale, Settings, load
from fedmmf.model.accuracy import Accuracy
from fedmmf.model.newcomer import Newcomer
from fedmmf.reports.results import PrivacyGroups, TrainResult

FRAME = pl.DataFrame(
    {
        "user_id": [user for user in range(20) for _ in range(10)],
        "item_id": [(user + 3 * number) % 25 for user in range(20) for number in range(10)],
        "rating": [float(1 + (user * number) % 5) for user in range(20) for number in range(10)],
    }
)


def read() -> tuple[Ratings, Ratings]:
    """Ratings from a name and from a frame, split."""
    assert_type(load("synthetic"), Ratings)
    ratings = Ratings.from_frame(FRAME, scale=(1, 5, 1), name="mine")
    assert_type(ratings, Ratings)
    assert_type(ratings.scale, RatingScale)
    assert_type(ratings.n_users, int)
    assert_type(ratings.to_frame(), pl.DataFrame)
    train, test = ratings.split(test=0.2, seed=0)
    assert_type(train, Ratings)
    assert_type(test, Ratings)
    return train, test


def fit(train: Ratings) -> FedMMF:
    """Models from ratings and from a frame."""
    model = FedMMF(mask="mean", factors=2, rounds=2, seed=0).fit(train)
    assert_type(model, FedMMF)
    assert_type(FedMMF(mask="mean", factors=2, rounds=1).fit(FRAME, scale=(1, 5, 1)), FedMMF)
    assert_type(model.settings, Settings)
    assert_type(model.item_factors, npt.NDArray[Any])
    return model


def judge(model: FedMMF, test: Ratings) -> float | None:
    """Errors, lists and privacy of a model."""
    found = model.evaluate(test, top=5)
    assert_type(found, Accuracy)
    summary = model.summary(test)
    assert_type(summary, TrainResult)
    assert_type(summary.to_json_dict(), dict[str, Any])
    assert_type(summary.verdict, str)
    assert_type(model.privacy(), PrivacyGroups)
    assert_type(summary.rmse, float | None)
    return summary.rmse


def recommend(model: FedMMF) -> list[int]:
    """Lists for one user, for many, and for a newcomer."""
    assert_type(model.recommend(user=3, n=2), pl.DataFrame)
    assert_type(model.recommend(users=[3, 4], candidates=[1, 2, 3], seen=True), pl.DataFrame)
    assert_type(model.predict([3, 3], [1, 2]), npt.NDArray[Any])
    newcomer = model.join({1: 5.0, 2: 1.0})
    assert_type(newcomer, Newcomer)
    assert_type(newcomer.recommend(2), pl.DataFrame)
    return [int(item) for item in model.recommend(3, 2)["item_id"]]


def keep(model: FedMMF, folder: Path) -> FedMMF:
    """Save a model, and load it again."""
    model.save(folder / "model.fedmmf")
    again = FedMMF.load(folder / "model.fedmmf")
    assert_type(again, FedMMF)
    return again


def main(folder: Path) -> None:
    """Run all of it."""
    train, test = read()
    model = fit(train)
    if judge(model, test) is None:
        raise FedMMFError("a model that predicts ratings has an error")
    again = keep(model, folder)
    if recommend(again) != recommend(model):
        raise FedMMFError("a model that was loaded recommends something else")
    np.testing.assert_array_equal(again.item_factors, model.item_factors)
