"""The rows of Table 1: which model each is, and how it is run on one split."""

import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fedmmf import evaluation, rng, simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.context import crowd_gradient, train_context
from fedmmf.data import Ratings
from fedmmf.errors import UnknownNameError
from fedmmf.masks import FAMILIES
from fedmmf.masks.crowd import Compiled
from fedmmf.model import FedMMF

Kind = Literal["local", "context", "factorization"]


@dataclass(frozen=True)
class Row:
    """One model of the table."""

    name: str
    kind: Kind
    mask: str
    solver: str = "sgd"  # of a factorization
    fixed: tuple[tuple[str, Any], ...] = ()  # settings that make the model what it is
    paper_name: str | None = None  # its name in the paper's table; None: not in it


def _factorization(name: str, mask: str, paper: bool = True, **fixed: Any) -> list[Row]:
    """The same model with both solvers; the paper's figures stand beside both."""
    known = name if paper else None
    sgd = Row(name, "factorization", mask, "sgd", tuple(fixed.items()), known)
    return [sgd, Row(f"{name} (vb)", "factorization", mask, "vb", (), known)]


ROWS = [
    # The paper's FedMF has no biases, so nothing is shrunk to anything but 0.
    *_factorization("FedMF", "none", user_prior=0.0),
    Row("FedMF with biases", "factorization", "none", "sgd", (("biases", True),)),
    *_factorization("User-mean FedMMF", "mean", paper=False),
    Row("User-mean FedMMF (vb, 5 runs)", "factorization", "mean", "vb", (("ensemble", 5),)),
    Row("LocalLR", "local", "lr", paper_name="LocalLR"),
    Row("FedLR", "context", "lr", paper_name="FedLR"),
    *_factorization("One-order FedMMF", "lr"),
    Row("LocalFM", "local", "fm", paper_name="LocalFM"),
    Row("FedFM", "context", "fm", paper_name="FedFM"),
    *_factorization("Two-order FedMMF", "fm"),
    Row("LocalNN", "local", "nn", paper_name="LocalNN"),
    Row("FedNN", "context", "nn", paper_name="FedNN"),
    *_factorization("High-order FedMMF", "nn"),
]
BY_NAME = {row.name: row for row in ROWS}


def row_called(name: str) -> Row:
    """Return a row by its name."""
    if name not in BY_NAME:
        raise UnknownNameError(f"there is no model {name!r}; the models are {', '.join(BY_NAME)}")
    return BY_NAME[name]


def chosen(solver: str) -> list[Row]:
    """Rows of the table; `solver` keeps the factorizations of one solver or of both."""
    return [
        row
        for row in ROWS
        if row.kind != "factorization" or solver == "both" or row.solver == solver
    ]


def settings_of(row: Row, tuned: dict[str, Any], seed: int) -> Settings:
    """The settings of a factorization or a local model."""
    # The table is about what is learned: sums are exact, and no item is left out of them.
    base = {"mask": row.mask, "solver": row.solver, "seed": seed, "sharing": "plain"}
    return Settings.checked(**base | dict(row.fixed) | tuned)


def run_row(
    row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int
) -> dict[str, Any]:
    """Train one model on one split; return its scores, seconds and settings."""
    began = time.perf_counter()
    if row.kind == "factorization":
        model = FedMMF(**settings_of(row, tuned, seed).model_dump()).fit(train)
        scores: dict[str, Any] = dict(model.evaluate(test))
        scores["mean_j"] = float(np.nanmean(model.learned.j_train))
        scores["settings"] = model.get_params()
    else:
        predict = _local if row.kind == "local" else _context
        predicted = predict(row, train, test, tuned, seed)
        scores = {
            "rmse": evaluation.rmse(test.values, predicted),
            "mae": evaluation.mae(test.values, predicted),
            "settings": {"mask": row.mask, "seed": seed, **tuned},
        }
    return scores | {"seconds": round(time.perf_counter() - began, 3)}


def _local(row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int) -> Array:
    """Each party's own model alone."""
    settings = Settings.checked(mask=row.mask, seed=seed, **tuned)
    features = simulation.feature_matrix(train, settings)
    masks = simulation.fit_all_masks(train, features, settings)
    return train.scale.clip(masks.predict(test.by_user, test.item_codes, features, Compiled()))


def _context(row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int) -> Array:
    """One shared context model."""
    features, scale = simulation.content_features(train), train.scale
    gradient = crowd_gradient(FAMILIES[row.mask], features, train.item_codes, train.values, scale)
    stream = rng.stream(seed, "context")
    sizes = (features.shape[1], len(train), scale)
    model = train_context(row.mask, gradient, *sizes, rng=stream, **tuned)
    return model.predict(features)[test.item_codes]
