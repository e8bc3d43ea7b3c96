"""RMSE against epsilon, with and without a mask: the paper's future work, masks under DP.

Every user's update is clipped and noisy (`aggregation.dp`); epsilon covers a user's whole
participation in one training. The mask stays in its party and costs nothing, and what is left to
learn from noisy sums is smaller.

Each model's few hyperparameters are chosen per epsilon on a part of the training ratings. That
choice is not in epsilon: whoever tunes on private data has to account for it as well.

`epsilon_table` has epsilon by three accounting methods: how far ours is from the best known. Ours
is of what is run, sums of discrete Gaussians. The others are of a continuous Gaussian of the same
size, which is not what is run, but says how much of epsilon is the method's.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import optimize, special

from fedmmf.aggregation.dp import accounting
from fedmmf.aggregation.dp.guarantee import Guarantee
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


@dataclass(frozen=True)
class Configuration:
    """The settings that decide the noise."""

    noise: Literal["local", "distributed"]
    asked: float  # epsilon
    delta: float
    clip: float
    rounds: int
    n_parties: int
    n_entries: int  # of an update


CONFIGURATIONS = (
    Configuration("distributed", 8.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("distributed", 1.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("distributed", 2.0, 1e-6, 0.1, 60, 6040, 14_824),
    Configuration("distributed", 4.0, 1e-5, 5.0, 10, 21, 200),
    Configuration("distributed", 8.0, 1e-5, 1.0, 30, 3, 1682),
    Configuration("distributed", 20.0, 1e-7, 0.5, 1, 100, 10_000),
    Configuration("distributed", 0.5, 1e-5, 2.0, 150, 400, 35_000),
    Configuration("local", 8.0, 1e-5, 1.0, 30, 943, 33_640),
    Configuration("local", 1.0, 1e-6, 0.3, 5, 1, 500),
    Configuration("local", 50.0, 1e-5, 10.0, 200, 50, 5000),
)


@dataclass(frozen=True)
class EpsilonRow(Configuration):
    """One configuration: its noise, and its epsilon by three methods."""

    multiplier: float
    steps: float  # standard deviation of one party's noise, in steps of the grid
    epsilon: float  # ours
    analytic: float
    losses: float


def epsilon_table() -> list[EpsilonRow]:
    """Compute the row of every configuration."""
    return [_row(configuration) for configuration in CONFIGURATIONS]


def _row(about: Configuration) -> EpsilonRow:
    multiplier = accounting.multiplier(about.asked, about.rounds, about.delta)
    guarantee = Guarantee(about.clip, multiplier, about.noise, about.rounds)
    n = about.n_parties
    return EpsilonRow(
        **asdict(about),
        multiplier=multiplier,
        steps=guarantee.grid(guarantee.scale_among(n), n, about.n_entries).sigma,
        epsilon=accounting.epsilon(multiplier, about.rounds, about.delta),
        analytic=analytic_gaussian(multiplier / math.sqrt(about.rounds), about.delta),
        losses=loss_distribution(multiplier, about.rounds, about.delta),
    )


def analytic_gaussian(multiplier: float, delta: float) -> float:
    """Epsilon of one continuous Gaussian (Balle and Wang 2018, theorem 8).

    T rounds are together one whose multiplier is smaller by sqrt(T) (Dong, Roth and Su 2022,
    Gaussian differential privacy, corollary 3.3).
    """

    def missing(epsilon: float) -> float:
        a, b = 1 / (2 * multiplier), epsilon * multiplier
        log_second = epsilon + special.log_ndtr(-a - b)
        return float(special.ndtr(a - b) - math.exp(log_second)) - delta

    return float(optimize.brentq(missing, 0.0, 1000.0, xtol=1e-10))


def loss_distribution(multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon of that many continuous Gaussians, by their privacy loss distribution."""
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(multiplier), rounds)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    return float(accountant.compose(event).get_epsilon(delta))
