"""Search of hyperparameters, on a validation part of the training data alone.

The test part of a split is never looked at: a candidate is trained on the training part with a
tenth of each party's ratings held out, and judged by its error on those. The round with the lowest
error becomes the number of rounds, and the final run then trains on all training ratings for that
many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.data import Ratings
from fedmmf.errors import DivergenceError
from fedmmf.masks import FAMILIES
from fedmmf.model import evaluation
from fedmmf.simulation import train as train_run
from fedmmf_experiments.paper.context import train_context
from fedmmf_experiments.paper.models import Row, context_plan, local_models, settings_of

HELD_OUT = 0.1
PATIENCE = 100  # rounds; less would end those that learn slowly on a plateau
MAX_ROUNDS = {"sgd": 800, "vb": 60}


@dataclass(frozen=True)
class Trial:
    """One candidate and how it did on the validation part."""

    rmse: float
    settings: dict[str, Any]


def tune(
    row: Row,
    train: Ratings,
    n_trials: int,
    seed: int,
    progress: Callable[[int], None] = lambda done: None,
) -> Trial:
    """Random search; the first candidate is the default, and all rows of a kind get the same."""
    streams = (rng.stream(seed, "tune", row.kind), rng.stream(seed, "tune", "masks"))
    try_one = {"factorization": _try_factorization, "local": _try_local, "context": _try_context}
    trials = []
    for candidate in [{}, *(_draw(row, *streams) for _ in range(n_trials - 1))]:
        trials.append(try_one[row.kind](row, train, candidate, seed))
        progress(len(trials))
    return min(trials, key=lambda trial: trial.rmse)


def _draw(row: Row, stream: np.random.Generator, of_masks: np.random.Generator) -> dict[str, Any]:
    """A random candidate; what it has of a mask changes nothing of the rest."""
    if row.kind == "context":
        return _draw_context(row, stream)
    family = FAMILIES[row.mask]
    low, high = 0.3 * min(family.strengths), 5 * max(family.strengths)
    drawn: dict[str, Any] = {}
    if row.mask != "none":
        drawn["mask_strength"] = _log_uniform(of_masks, low, high)
    if row.kind == "local":
        return drawn
    if row.mask != "none":
        drawn["cross_fit"] = bool(of_masks.random() < 0.5)
    if row.solver == "vb":
        return drawn | {"factors": int(stream.choice([2, 4, 6, 8, 12, 16, 20, 30]))}
    step = str(stream.choice(["adam", "sum"]))
    rates = {"adam": (0.005, 0.05), "sum": (0.0002, 0.003)}[step]
    return drawn | {
        "step": step,
        "learning_rate": _log_uniform(stream, *rates),
        "regularization": _log_uniform(stream, 0.03, 0.4),
        "factors": int(stream.choice([4, 8, 12, 20, 32])),
    }


def _draw_context(row: Row, stream: np.random.Generator) -> dict[str, Any]:
    drawn = {
        "strength": _log_uniform(stream, 0.1, 1000),
        "rounds": int(stream.integers(50, 600)),
    }
    return drawn | ({"rank": int(stream.choice([2, 4, 8, 16]))} if row.mask == "fm" else {})


def _log_uniform(stream: np.random.Generator, low: float, high: float) -> float:
    value = np.exp(stream.uniform(np.log(low), np.log(high)))
    return float(f"{value:.3g}")


def _try_factorization(row: Row, train: Ratings, candidate: dict[str, Any], seed: int) -> Trial:
    limits = {"rounds": MAX_ROUNDS[row.solver], "held_out": HELD_OUT, "patience": PATIENCE}
    settings = settings_of(row, candidate | limits, seed).changed(ensemble=1)
    try:
        (member,) = train_run(train, settings).members
    except DivergenceError:
        return Trial(np.inf, candidate)
    found = {"rounds": member.best_round, "held_out": 0.0}
    return Trial(float(np.min(member.history)), candidate | found)


def _try_local(row: Row, train: Ratings, candidate: dict[str, Any], seed: int) -> Trial:
    masks = local_models(row, train, candidate, seed).masks
    predicted = np.clip(masks.unit_held_out, 0.0, 1.0)
    return Trial(evaluation.rmse(masks.unit_ratings, predicted) * train.scale.span, candidate)


def _try_context(row: Row, train: Ratings, candidate: dict[str, Any], seed: int) -> Trial:
    plan = context_plan(row, candidate, seed)
    inner, validation = train.split(HELD_OUT, seed=seed)
    predicted = train_context(plan, inner).predict(validation)
    return Trial(evaluation.rmse(validation.values, predicted), plan.tuned())
