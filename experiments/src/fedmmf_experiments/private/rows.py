"""Rows of the table of `fedmmf reproduce dp`: what each is, what it tries, how it is scored."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

from fedmmf.data import Ratings
from fedmmf.errors import UnknownNameError
from fedmmf.model import FedMMF
from fedmmf_experiments.paper.models import Row as TableRow
from fedmmf_experiments.paper.models import run_row
from fedmmf_experiments.private import search
from fedmmf_experiments.private.dpals import DpalsSettings, fit
from fedmmf_experiments.private.noise import Privacy

Values = dict[str, Any]
GRID = tuple(
    {"rounds": rounds, "factors": factors, "learning_rate": rate}
    for rounds, factors, rate in product((10, 30, 60), (1, 4), (0.01, 0.02, 0.05, 0.1))
)
SHORT_GRID = tuple(
    {"rounds": rounds, "factors": 4, "learning_rate": rate}
    for rounds, rate in product((30, 60), (0.02, 0.05))
)


@dataclass(frozen=True)
class DpTrial:
    """One training and its test: everything but the hyperparameters."""

    train: Ratings
    test: Ratings
    privacy: Privacy
    seed: int
    base: Values = field(default_factory=dict)  # of our own rows: clip, and who adds noise


@dataclass(frozen=True)
class DpRow:
    """One row: a model with everything that is fixed about it.

    Attributes:
        name: by which the command knows it.
        model: what the table calls it.
        score: error of one trial with some values of hyperparameters, or quality of its lists.
        space: what a random search draws; or `grid`, which is tried whole. Neither: nothing is
            chosen.
        spends: whether it has an epsilon; else it is trained once for all of them.
        free: why a row has no epsilon.
    """

    name: str
    model: str
    score: Callable[[DpTrial, Values], float]
    space: search.Space = field(default_factory=dict)
    grid: Callable[[Ratings], tuple[Values, ...]] | None = None
    spends: bool = True
    free: str = ""


def trained(fixed: Values, trial: DpTrial, values: Values) -> FedMMF:
    """Train one of our own models; without noise if epsilon is infinite."""
    noise: Values = {}
    if not math.isinf(trial.privacy.epsilon):
        noise = {
            "aggregation": "dp",
            "dp_epsilon": trial.privacy.epsilon,
            "dp_delta": trial.privacy.delta,
            **trial.base,
        }
    return FedMMF(**(fixed | noise | values), seed=trial.seed).fit(trial.train)


def library(fixed: Values, trial: DpTrial, values: Values) -> float:
    """Error of one of our own models."""
    return trained(fixed, trial, values).evaluate(trial.test)["rmse"]


def dpals(fixed: Values, trial: DpTrial, values: Values) -> float:
    """Error of DPALS."""
    settings = DpalsSettings(**(fixed | values))
    return fit(trial.train, settings, trial.privacy, trial.seed).rmse(trial.test)


def local(mask: str, trial: DpTrial, values: Values) -> float:
    """Error of the parties' own models, of which nothing leaves."""
    row = TableRow("local", "local", mask)
    return run_row(row, trial.train, trial.test, values, trial.seed).rmse


def sgd_grid(ratings: Ratings) -> tuple[Values, ...]:
    """Rounds, factors and learning rates to try: fewer on many ratings, which take longer."""
    return SHORT_GRID if len(ratings) > search.MANY_RATINGS else GRID


_SGD = {"none": "DP-FedMF", "mean": "User-mean DP-FedMMF", "lr": "One-order DP-FedMMF"}
_VB_FEATURES: Values = {"solver": "vb", "mask": "lr"}
_VB_PLAIN: Values = {"solver": "vb", "mask": "mean", "item_prior": False}
_MEANS: Values = {"factors": 0, "rounds": 1, "bias": True}
ROWS = (
    DpRow("vb-features", "vb, lr mask and item prior", partial(library, _VB_FEATURES)),
    DpRow("vb", "vb, no features (mean mask)", partial(library, _VB_PLAIN)),
    *(
        DpRow(
            f"sgd-{mask}",
            f"{name} (sgd)",
            partial(library, {"solver": "sgd", "mask": mask}),
            grid=sgd_grid,
        )
        for mask, name in _SGD.items()
    ),
    DpRow(
        "dpals-features",
        "DPALS, user means and item features",
        partial(dpals, {"features": True}),
        search.DPALS_FEATURES,
    ),
    DpRow("dpals-means", "DPALS, user means", partial(dpals, {}), search.DPALS_MEANS),
    DpRow("dpals", "DPALS as published", partial(dpals, {}), search.DPALS),
    DpRow(
        "user-item-means",
        "user means, noisy item means",
        partial(dpals, _MEANS),
        search.USER_ITEM_MEANS,
    ),
    DpRow("item-means", "noisy item means", partial(dpals, _MEANS), search.ITEM_MEANS),
    DpRow("local-lr", "LocalLR", partial(local, "lr"), spends=False, free="nothing leaves"),
    DpRow("user-means", "user means", partial(local, "mean"), spends=False, free="nothing leaves"),
    DpRow(
        "vb-features-no-noise",
        "vb, lr mask and item prior",
        partial(library, _VB_FEATURES),
        spends=False,
        free="no noise",
    ),
    DpRow(
        "vb-no-noise",
        "vb, no features (mean mask)",
        partial(library, _VB_PLAIN),
        spends=False,
        free="no noise",
    ),
)


def rows_called(names: list[str] | None, known: tuple[DpRow, ...] = ROWS) -> list[DpRow]:
    """Return the rows of these names, or all.

    Raises:
        UnknownNameError: there is no such row.
    """
    by_name = {row.name: row for row in known}
    if unknown := set(names or ()) - set(by_name):
        raise UnknownNameError(
            f"there is no row {sorted(unknown)[0]!r}; the rows are {', '.join(by_name)}"
        )
    return [by_name[name] for name in names] if names else list(known)
