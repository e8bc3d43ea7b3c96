"""What the variational solver gives: errors, traffic, and what each of its parts is worth.

Every row gets the same splits, one run and five runs averaged; rows differ in what their names say.
Masks are fitted alone here; what joint ones give is in the factorial table.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedmmf.data import Ratings, load
from fedmmf.model import FedMMF, evaluation
from fedmmf.model.learned import Learned
from fedmmf_experiments.paper.splitting import Part, Splitting

MEMBERS = 5


@dataclass(frozen=True)
class SolverProblem:
    """A data set, how it is split, and what is tried on it."""

    name: str
    ratings: Callable[[], Ratings]
    splitting: Splitting
    rows: Mapping[str, Mapping[str, Any]]

    def parts(self, n_splits: int, seed: int) -> Iterator[Part]:
        """Return some splits, from that seed on."""
        return replace(self.splitting, count=n_splits, seed=seed).parts(self.ratings())


@dataclass(frozen=True)
class SolverRow:
    """One row of one problem; errors of each split, and their means."""

    problem: str
    row: str
    settings: Mapping[str, Any]
    single: tuple[float, ...]  # RMSE of one run, split by split
    averaged: tuple[float, ...]  # of five runs averaged
    up_mb: float  # that a user sends in one whole training
    down_mb: float
    seconds: float  # of a split

    def to_json_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with means and standard deviations."""
        means = {
            f"{name}_{what}": figure
            for name, values in (("single", self.single), ("averaged", self.averaged))
            for what, figure in (("mean", np.mean(values)), ("std", _deviation(values)))
        }
        return asdict(self) | {name: round(float(value), 5) for name, value in means.items()}


def _deviation(values: tuple[float, ...]) -> float:
    return float(np.std(values, ddof=min(1, len(values) - 1)))


_ROWS: dict[str, dict[str, Any]] = {
    "no mask": {"mask": "none"},
    "user mean": {"mask": "mean", "mask_fit": "alone"},
    "no mask, no item features": {"mask": "none", "item_prior": False},
    "no mask, no profiles": {"mask": "none", "profile_prior": False},
    "no mask, no implicit prior": {"mask": "none", "implicit_prior": "none"},
    "no mask, ordinal": {"mask": "none", "likelihood": "ordinal"},
    "user mean, 10 rounds": {"mask": "mean", "mask_fit": "alone", "rounds": 10},
}
_PROBLEMS = (
    SolverProblem("ml-100k", partial(load, "ml-100k"), Splitting(), _ROWS),
    SolverProblem(
        "ml-100k-u1-u5",
        partial(load, "ml-100k"),
        Splitting("published", 5),
        {name: _ROWS[name] for name in list(_ROWS)[:4]},
    ),
    SolverProblem(
        "ml-1m",
        partial(load, "ml-1m"),
        Splitting(count=3, test=0.1),
        {
            **{f"{name}, k=20": _ROWS[name] for name in ("no mask", "user mean")},
            **{
                f"{name}, k=40": {**_ROWS[name], "factors": 40}
                for name in ("no mask", "user mean", "no mask, ordinal")
            },
        },
    ),
    SolverProblem(
        "lastfm",
        partial(load, "lastfm"),
        Splitting(count=3),
        {f"user mean, k={k}": {**_ROWS["user mean"], "factors": k} for k in (2, 6)},
    ),
)
PROBLEMS = {problem.name: problem for problem in _PROBLEMS}


def run_row(
    problem: SolverProblem, row: str, n_splits: int, seed: int, tell: Callable[[int], None]
) -> SolverRow:
    """Train one row on some splits of a problem."""
    singles, averages, began = [], [], time.perf_counter()
    settings = {"solver": "vb", **problem.rows[row]}
    for number, part in enumerate(problem.parts(n_splits, seed), start=1):
        train, test = part.make()
        model = FedMMF(**settings, ensemble=MEMBERS).fit(train)
        one = replace(model.learned, members=model.learned.members[:1])
        singles.append(_rmse(one, test))
        averages.append(_rmse(model.learned, test))
        tell(number)
    traffic, rounds = model.traffic(), len(model.learned.members[0].history)
    return SolverRow(
        problem=problem.name,
        row=row,
        settings=settings,
        single=tuple(singles),
        averaged=tuple(averages),
        up_mb=round(traffic.up_bytes_per_user_round * rounds / 1e6, 3),
        down_mb=round(traffic.down_bytes_per_user_round * rounds / 1e6, 3),
        seconds=round((time.perf_counter() - began) / len(singles), 1),
    )


def _rmse(learned: Learned, test: Ratings) -> float:
    users = learned.user_codes(test.user_ids)[test.user_codes]
    items = learned.item_codes(test.item_ids)[test.item_codes]
    return round(evaluation.rmse(test.values, learned.predict(users, items)), 6)
