"""RMSE against epsilon, with and without a mask: the paper's future work, masks under DP.

Every user's update is clipped and noisy (`aggregation.dp`); epsilon covers a user's whole
participation in one training. The mask stays in its party and costs nothing, and what is left to
learn from noisy sums is smaller.

Each model's few hyperparameters are chosen per epsilon on a part of the training ratings. That
choice is not in epsilon: whoever tunes on private data has to account for it as well.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.model import FedMMF
from fedmmf.paper.drawing import new_figure, write_results

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


def run(
    ratings: Ratings,
    epsilons: list[float],
    base: Settings,
    runs: int,
    test: float,
    progress: Callable[[int, int], None],
) -> dict[str, Any]:
    """The curve of every model; `base` holds delta, clip, who adds the noise, and the seed."""
    splits = [ratings.split(test, seed=base.seed + number) for number in range(runs)]
    rows: list[dict[str, Any]] = []
    for mask, epsilon in product(NAMES, epsilons):
        progress(len(rows), len(NAMES) * len(epsilons))
        settings = base.changed(mask=mask, aggregation="dp", dp_epsilon=epsilon)
        settings = choose(splits[0][0], settings)
        errors = [
            FedMMF(**settings.changed(seed=base.seed + number).model_dump())
            .fit(train)
            .evaluate(held_back)["rmse"]
            for number, (train, held_back) in enumerate(splits)
        ]
        rows.append(
            {
                "model": NAMES[mask],
                "mask": mask,
                "epsilon": epsilon,
                "rmse_mean": float(np.mean(errors)),
                "rmse_std": float(np.std(errors)),
                "settings": settings.model_dump(),
            }
        )
    return {"data": ratings.name, "delta": base.dp_delta, "runs": runs, "test": test, "rows": rows}


def choose(train: Ratings, settings: Settings) -> Settings:
    """The candidate with the lowest error on a part of the training ratings."""
    part, validation = train.split(VALIDATION, seed=settings.seed)
    candidates = [settings.changed(**candidate) for candidate in GRID]
    errors = [
        FedMMF(**candidate.model_dump()).fit(part).evaluate(validation)["rmse"]
        for candidate in candidates
    ]
    return candidates[int(np.argmin(errors))]


def write(report: dict[str, Any], out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(out, "dp", report, to_markdown(report), {"dp": draw(report)})


def to_markdown(report: dict[str, Any]) -> str:
    """One line per model, one column per epsilon."""
    epsilons = sorted({row["epsilon"] for row in report["rows"]})
    lines = [
        "| model | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in epsilons) + " |",
        "|---" * (1 + len(epsilons)) + "|",
    ]
    for name in NAMES.values():
        cells = [
            f"{row['rmse_mean']:.4f} ± {row['rmse_std']:.4f}"
            for row in report["rows"]
            if row["model"] == name
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(report: dict[str, Any]) -> Any:
    """RMSE against epsilon, one line per model."""
    figure, panel = new_figure()
    for name in NAMES.values():
        rows = [row for row in report["rows"] if row["model"] == name]
        panel.errorbar(
            [row["epsilon"] for row in rows],
            [row["rmse_mean"] for row in rows],
            [row["rmse_std"] for row in rows],
            marker="o",
            capsize=3,
            label=name,
        )
    panel.set(xscale="log", xlabel="epsilon, per user, whole training", ylabel="test RMSE")
    panel.set_title(f"{report['data']}, delta {report['delta']:g}")
    panel.legend()
    return figure
