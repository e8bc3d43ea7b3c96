"""RMSE or nDCG@10 against epsilon, row by row: masks under noise beside their peers.

Every user's messages of the whole training are covered by epsilon. Hyperparameters of `vb` are
those of the library, which follow from public numbers. Those of all other rows are chosen per row
and epsilon on a validation part of the training ratings of one split of its own. That choice is
outside epsilon: whoever tunes on private data has to account for it as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.data import Ratings
from fedmmf_experiments.paper.drawing import new_figure, write_results
from fedmmf_experiments.private.noise import Privacy
from fedmmf_experiments.private.rows import DpRow, DpTrial, Values
from fedmmf_experiments.private.search import MANY_RATINGS, search
from fedmmf_experiments.result_cache import ResultCache

TUNING_SEED = 101  # of the split on which hyperparameters are chosen: no reported one has it
VALIDATION = 0.1  # of its training ratings
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Metric:
    """What rows are compared by."""

    name: str
    sign: float  # -1 where more is better

    def loss(self, row: DpRow, trial: DpTrial, values: Values) -> float:
        """Return what is less the better the row does."""
        return self.sign * row.score(trial, values)


RMSE, NDCG = Metric("RMSE", 1.0), Metric("nDCG@10", -1.0)


@dataclass(frozen=True)
class DpPlan:
    """What is compared, and on which splits."""

    epsilons: list[float]
    rows: list[DpRow]
    splits: int = 10
    test: float = 0.2  # share of ratings
    delta: float = 1e-5
    base: Values = field(default_factory=dict)  # of our own rows: clip, and who adds noise
    seed: int = 0  # of the first split
    metric: Metric = RMSE

    @property
    def cells(self) -> list[tuple[DpRow, Privacy]]:
        """Every row with every epsilon; rows without one come once."""
        return [
            (row, Privacy(epsilon, self.delta))
            for row in self.rows
            for epsilon in (self.epsilons if row.spends else [math.inf])
        ]


@dataclass(frozen=True)
class DpPoint:
    """One row at one epsilon: its metric over the splits, and the settings that were chosen."""

    row: str
    model: str
    epsilon: float | None  # None: see `free`
    free: str  # why it has no epsilon
    mean: float
    std: float
    n_tried: int  # settings among which was chosen; 1: nothing was
    settings: Values


@dataclass(frozen=True)
class DpCurve:
    """All rows at all epsilons, by one metric."""

    data: str
    metric: str
    delta: float
    splits: int
    test: float
    rows: list[DpPoint]

    def of(self, row: str) -> list[DpPoint]:
        """The points of one row, by epsilon."""
        return [point for point in self.rows if point.row == row]


def run(ratings: Ratings, plan: DpPlan, cache: ResultCache, told: Told) -> DpCurve:
    """Choose settings and test them, for every row and epsilon."""
    points, cells = [], plan.cells
    for done, (row, privacy) in enumerate(cells):
        told(done, len(cells))
        points.append(_point(ratings, plan, row, privacy, cache))
    told(len(cells), len(cells))
    return DpCurve(ratings.name, plan.metric.name, plan.delta, plan.splits, plan.test, points)


def _point(
    ratings: Ratings, plan: DpPlan, row: DpRow, privacy: Privacy, cache: ResultCache
) -> DpPoint:
    epsilon = privacy.epsilon if row.spends else None
    facts = {
        "data": ratings.fingerprint,
        "epsilon": epsilon,
        "delta": plan.delta,
        "test": plan.test,
        "base": plan.base,
    }
    name = [ratings.name, row.name, f"epsilon {epsilon:g}" if epsilon else "free"]
    chosen = cache.once([*name, "choice"], facts, lambda: choose(ratings, plan, row, privacy))
    values, scores = chosen["settings"], []
    for seed in range(plan.seed, plan.seed + plan.splits):
        about = facts | {"settings": values, "seed": seed}
        trial = DpTrial(*ratings.split(plan.test, seed=seed), privacy, seed, plan.base)
        found = cache.once([*name, f"split {seed}"], about, partial(_tested, row, trial, values))
        scores.append(found["score"])
    return DpPoint(
        row=row.name,
        model=row.model,
        epsilon=epsilon,
        free=row.free,
        mean=float(np.mean(scores)),
        std=float(np.std(scores)),
        n_tried=chosen["n_tried"],
        settings=values,
    )


def _tested(row: DpRow, trial: DpTrial, values: Values) -> dict[str, float]:
    return {"score": row.score(trial, values)}


def choose(ratings: Ratings, plan: DpPlan, row: DpRow, privacy: Privacy) -> dict[str, Any]:
    """Settings that do best on a validation part, and how many were tried."""
    train, _ = ratings.split(plan.test, seed=TUNING_SEED)
    part, validation = train.split(VALIDATION, seed=TUNING_SEED)
    trial = DpTrial(part, validation, privacy, TUNING_SEED, plan.base)
    loss = partial(plan.metric.loss, row, trial)
    if row.grid is not None:
        grid = row.grid(part)
        return {"settings": min(grid, key=loss), "n_tried": len(grid)}
    if not row.space:
        return {"settings": {}, "n_tried": 1}
    share = 0.4 if len(part) > MANY_RATINGS else 1.0
    values, n_tried = search(row.space, loss, TUNING_SEED, share)
    return {"settings": values, "n_tried": n_tried}


def write(report: DpCurve, out: Path, name: str = "dp") -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, name, report, to_markdown(report), {name: draw(report)})


def row_names(report: DpCurve) -> list[str]:
    """Names of rows in the order of the report."""
    return list(dict.fromkeys(point.row for point in report.rows))


def to_markdown(report: DpCurve) -> str:
    """One line per row, one column per epsilon, and one for what has no epsilon."""
    epsilons = sorted({point.epsilon for point in report.rows if point.epsilon is not None})
    heads = [f"epsilon {epsilon:g}" for epsilon in epsilons]
    lines = ["| model | " + " | ".join([*heads, "no epsilon"]) + " |"]
    lines.append("|---" * (2 + len(epsilons)) + "|")
    for name in row_names(report):
        points = {point.epsilon: point for point in report.of(name)}
        cells = [_cell(points.get(epsilon)) for epsilon in [*epsilons, None]]
        lines.append(f"| {report.of(name)[0].model} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(point: DpPoint | None) -> str:
    if point is None:
        return ""
    shown = f"{point.mean:.4f} ± {point.std:.4f}"
    return f"{shown} ({point.free})" if point.free else shown


def draw(report: DpCurve) -> Any:
    """The metric against epsilon, one line per row; dashed where there is no epsilon."""
    figure, panel = new_figure()
    figure.set_size_inches(7.5, 5.5)
    for number, name in enumerate(row_names(report)):
        points = report.of(name)
        means = [point.mean for point in points]
        label, colour = points[0].model, f"C{number % 10}"
        if points[0].epsilon is None:
            label = f"{label}, {points[0].free}"
            panel.axhline(means[0], linestyle="--", linewidth=1, color=colour, label=label)
            continue
        spread = [point.std for point in points]
        places, style = [point.epsilon for point in points], "os^Dv*"[number % 6]
        panel.errorbar(places, means, spread, marker=style, capsize=3, color=colour, label=label)
    panel.set(
        xscale="log", xlabel="epsilon, per user, whole training", ylabel=f"test {report.metric}"
    )
    epsilons = sorted({point.epsilon for point in report.rows if point.epsilon})
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons], minor=False)
    panel.minorticks_off()
    panel.set_title(f"{report.data}, delta {report.delta:g}, {report.splits} splits")
    panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
