"""The rows of Table 1: which model each is, and how it is run on one split."""

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedmmf.data import Ratings
from fedmmf.errors import UnknownNameError
from fedmmf.model import FedMMF, evaluation
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf_experiments.paper.context import ContextPlan, train_context

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

    def suits(self, ratings: Ratings) -> bool:
        """Whether the row suits a set: a row that ignores profiles needs a set that has some."""
        return dict(self.fixed).get("profiles", True) or ratings.profiles is not None


@dataclass(frozen=True)
class SplitScores:
    """How one model did on one split."""

    rmse: float
    mae: float
    settings: dict[str, Any]  # everything that decides the result
    mean_j: float | None = None  # of the masks of a factorization
    seconds: float = 0.0


def _factorization(name: str, mask: str, paper: bool = True) -> list[Row]:
    """The same model with both solvers; the paper's figures stand beside both."""
    known = name if paper else None
    sgd = Row(name, "factorization", mask, "sgd", (), known)
    return [sgd, Row(f"{name} (vb)", "factorization", mask, "vb", (), known)]


def _context_rows(name: str, kind: str) -> list[Row]:
    """The same model with user profiles, which the paper says it used, and without."""
    without = (("profiles", False),)
    alone = Row(f"{name} without profiles", "context", kind, fixed=without, paper_name=name)
    return [Row(name, "context", kind, paper_name=name), alone]


ROWS = [
    *_factorization("FedMF", "none"),
    # The paper's own has nothing that is shrunk to anything but 0.
    Row("FedMF, shrunk to 0", "factorization", "none", "sgd", (("user_prior", 0.0),), "FedMF"),
    Row("FedMF with biases", "factorization", "none", "sgd", (("biases", True),)),
    *_factorization("User-mean FedMMF", "mean", paper=False),
    Row("LocalLR", "local", "lr", paper_name="LocalLR"),
    *_context_rows("FedLR", "lr"),
    *_factorization("One-order FedMMF", "lr"),
    Row("LocalFM", "local", "fm", paper_name="LocalFM"),
    *_context_rows("FedFM", "fm"),
    *_factorization("Two-order FedMMF", "fm"),
    Row("LocalNN", "local", "nn", paper_name="LocalNN"),
    *_context_rows("FedNN", "nn"),
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
    """The settings of a factorization."""
    base = {"mask": row.mask, "solver": row.solver, "seed": seed}
    return Settings.checked(**base | dict(row.fixed) | tuned)


def run_row(
    row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int
) -> SplitScores:
    """Train one model on one split."""
    began = time.perf_counter()
    run = {"factorization": _factorize, "local": _local, "context": _context}[row.kind]
    scores = run(row, train, test, tuned, seed)
    return replace(scores, seconds=round(time.perf_counter() - began, 3))


def _factorize(
    row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int
) -> SplitScores:
    """A federated factorization, with a mask or without."""
    model = FedMMF(**settings_of(row, tuned, seed).model_dump()).fit(train)
    mean_j, found = float(np.nanmean(model.learned.j_train)), model.evaluate(test)
    return SplitScores(found["rmse"], found["mae"], model.get_params(), mean_j)


def _local(
    row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int
) -> SplitScores:
    """Fit and score each party's own model alone."""
    scores = mask_scores(local_models(row, train, tuned, seed), test)
    return SplitScores(**scores, settings={"mask": row.mask, "seed": seed, **tuned})


def mask_scores(run: Prepared, test: Ratings) -> dict[str, float]:
    """Errors of masks without any factors, on test ratings."""
    predicted = run.masks.predict(test.rated_items, run.features.seen, run.engine.mask_runner())
    return evaluation.scored(test.values, run.ratings.scale.clip(predicted))


def local_models(row: Row, train: Ratings, tuned: dict[str, Any], seed: int) -> Prepared:
    """Each party's own model, fitted on everything that it has, and on nothing of others.

    In strict sums masks shrink towards a line that all users have in common, which no party has
    by itself. Where masks decide what leaves, they do not.
    """
    alone = {"sharing": "adaptive", "held_out": 0.0}
    settings = Settings.checked(mask=row.mask, seed=seed, **alone, **tuned)
    return prepare(train, settings)


def _context(
    row: Row, train: Ratings, test: Ratings, tuned: dict[str, Any], seed: int
) -> SplitScores:
    """Train and score one shared context model on one split."""
    plan = context_plan(row, tuned, seed)
    scores = evaluation.scored(test.values, train_context(plan, train).predict(test))
    settings = {"mask": row.mask, "seed": seed, "profiles": plan.profiles, **plan.tuned()}
    return SplitScores(**scores, settings=settings)


def context_plan(row: Row, tuned: dict[str, Any], seed: int) -> ContextPlan:
    """How a context model of the table is trained."""
    return ContextPlan(row.mask, seed=seed, **dict(row.fixed) | tuned)
