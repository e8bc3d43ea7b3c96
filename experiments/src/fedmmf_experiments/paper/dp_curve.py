"""RMSE against epsilon, with and without a mask: the paper's future work, masks under DP.

Every user's update is clipped and noisy (`aggregation.dp`); epsilon covers a user's whole
participation in one training. The mask stays in its party and costs nothing, and what is left to
learn from noisy sums is smaller.

Each model's few hyperparameters are chosen per epsilon on a part of the training ratings. That
choice is not in epsilon: whoever tunes on private data has to account for it as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.data import Ratings
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf_experiments.paper.drawing import new_figure, write_results

NAMES = {
    "none": "DP-FedMF",
    "mean": "User-mean DP-FedMMF",
    "lr": "One-order DP-FedMMF",
    "fm": "Two-order DP-FedMMF",
}
GRID = [
    {"rounds": rounds, "factors": factors, "learning_rate": rate}
    for rounds, factors, rate in product((10, 30, 60), (1, 4), (0.01, 0.02, 0.05, 0.1))
]
VALIDATION = 0.1  # of the training ratings


@dataclass(frozen=True)
class DpPoint:
    """One model at one epsilon: test RMSE over the splits, and the settings that were chosen."""

    model: str
    mask: str
    epsilon: float
    rmse_mean: float
    rmse_std: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class DpCurve:
    """All models at all epsilons."""

    data: str
    delta: float
    runs: int
    test: float
    rows: list[DpPoint]

    def of(self, model: str) -> list[DpPoint]:
        """The points of one model, by epsilon."""
        return [row for row in self.rows if row.model == model]


def run(
    ratings: Ratings,
    epsilons: list[float],
    base: Settings,
    runs: int,
    test: float,
    progress: Callable[[int, int], None],
) -> DpCurve:
    """The curve of every model; `base` holds delta, clip, who adds the noise, and the seed."""
    splits = [ratings.split(test, seed=base.seed + number) for number in range(runs)]
    rows: list[DpPoint] = []
    for mask, epsilon in product(NAMES, epsilons):
        progress(len(rows), len(NAMES) * len(epsilons))
        settings = base.changed(solver="sgd", mask=mask, aggregation="dp", dp_epsilon=epsilon)
        rows.append(_point(splits, choose(splits[0][0], settings)))
    return DpCurve(ratings.name, base.dp_delta, runs, test, rows)


def _point(splits: list[tuple[Ratings, Ratings]], settings: Settings) -> DpPoint:
    errors = [
        _error(train, test, settings.changed(seed=settings.seed + number))
        for number, (train, test) in enumerate(splits)
    ]
    return DpPoint(
        model=NAMES[settings.mask],
        mask=settings.mask,
        epsilon=settings.dp_epsilon,
        rmse_mean=float(np.mean(errors)),
        rmse_std=float(np.std(errors)),
        settings=settings.model_dump(),
    )


def choose(train: Ratings, settings: Settings) -> Settings:
    """The candidate with the lowest error on a part of the training ratings."""
    part, validation = train.split(VALIDATION, seed=settings.seed)
    candidates = [settings.changed(**candidate) for candidate in GRID]
    errors = [_error(part, validation, candidate) for candidate in candidates]
    return candidates[int(np.argmin(errors))]


def _error(train: Ratings, test: Ratings, settings: Settings) -> float:
    return FedMMF(**settings.model_dump()).fit(train).evaluate(test)["rmse"]


def write(report: DpCurve, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, "dp", report, to_markdown(report), {"dp": draw(report)})


def to_markdown(report: DpCurve) -> str:
    """One line per model, one column per epsilon."""
    epsilons = sorted({row.epsilon for row in report.rows})
    lines = [
        "| model | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (1 + len(epsilons)) + "|",
    ]
    for name in NAMES.values():
        cells = [f"{row.rmse_mean:.4f} ± {row.rmse_std:.4f}" for row in report.of(name)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(report: DpCurve) -> Any:
    """RMSE against epsilon, one line per model."""
    figure, panel = new_figure()
    for name in NAMES.values():
        rows = report.of(name)
        places, means = [row.epsilon for row in rows], [row.rmse_mean for row in rows]
        spread = [row.rmse_std for row in rows]
        panel.errorbar(places, means, spread, marker="o", capsize=3, label=name)
    panel.set(xscale="log", xlabel="epsilon, per user, whole training", ylabel="test RMSE")
    panel.set_title(f"{report.data}, delta {report.delta:g}")
    panel.legend()
    return figure
