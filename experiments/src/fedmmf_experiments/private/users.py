"""What a budget costs by the number of users: the noise of a sum stays, and the sum grows.

Ratings are synthetic, since no public set has so many users under so few items. Three trainings of
`vb` have the same mask and factors: with the budget, with a budget so loose that there is hardly
any noise, and without one. The first less the second is what noise costs; the second less the third
what the mechanism costs: clipped gradients, weights of length 1 per user, few rounds and no
implicit priors.
"""

import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.data.synthetic import synthetic
from fedmmf_experiments.paper.drawing import Columns, markdown, new_figure, write_results
from fedmmf_experiments.private.curve import Told
from fedmmf_experiments.private.noise import Privacy
from fedmmf_experiments.private.rows import DpTrial, library
from fedmmf_experiments.result_cache import ResultCache

TEST = 0.2  # share of ratings
MIN_PER_USER = 10
LOOSE = 40.0  # of a larger one, the noise is too fine for sums over a million users
LITTLE = 0.01  # an RMSE that is lost and that few would miss
# As many factors as synthetic sets hide. Masks of features would take most of the time: their
# linear systems are four times as wide.
_MODEL = {"solver": "vb", "mask": "mean", "factors": 4}


@dataclass(frozen=True)
class UsersPlan:
    """Sizes of the sets, and the budgets."""

    users: list[int]
    epsilons: list[float]
    items: int = 500
    per_user: int = 25  # ratings, on average
    splits: int = 1
    delta: float = 1e-7  # below one in the number of users
    seed: int = 0


@dataclass(frozen=True)
class UsersRow:
    """One number of users at one epsilon."""

    users: int
    ratings: int
    epsilon: float
    rmse: float
    rmse_loose: float  # at epsilon `LOOSE`
    rmse_without: float  # without a budget

    @property
    def of_noise(self) -> float:
        """What the noise costs."""
        return self.rmse - self.rmse_loose

    @property
    def of_all(self) -> float:
        """What the budget costs."""
        return self.rmse - self.rmse_without


@dataclass(frozen=True)
class UsersCurve:
    """All numbers of users at all epsilons."""

    items: int
    delta: float
    splits: int
    rows: list[UsersRow]

    def enough(self, epsilon: float) -> int | None:
        """Smallest number of users at which noise costs less than `LITTLE`; None: none does."""
        cheap = [row for row in self.rows if row.epsilon == epsilon and row.of_noise < LITTLE]
        return min((row.users for row in cheap), default=None)


COLUMNS: Columns = {
    "users": lambda row: f"{row.users:,}",
    "ratings": lambda row: f"{row.ratings:,}",
    "epsilon": lambda row: f"{row.epsilon:g}",
    "RMSE": lambda row: f"{row.rmse:.4f}",
    f"RMSE at epsilon {LOOSE:g}": lambda row: f"{row.rmse_loose:.4f}",
    "RMSE without": lambda row: f"{row.rmse_without:.4f}",
    "cost of noise": lambda row: f"{row.of_noise:+.4f}",
    "of all": lambda row: f"{row.of_all:+.4f}",
}


def run(plan: UsersPlan, cache: ResultCache, told: Told) -> UsersCurve:
    """Train with and without noise, for every number of users; the fewest come first."""
    epsilons = [math.inf, LOOSE, *sorted(plan.epsilons)]
    cells, errors = list(product(sorted(plan.users), epsilons)), {}
    for done, (n_users, epsilon) in enumerate(cells):
        told(done, len(cells))
        errors[n_users, epsilon] = _mean_error(plan, n_users, epsilon, cache)
    rows = [
        UsersRow(n, n * plan.per_user, epsilon, error, errors[n, LOOSE], errors[n, math.inf])
        for (n, epsilon), error in errors.items()
        if epsilon in plan.epsilons
    ]
    told(len(cells), len(cells))
    return UsersCurve(plan.items, plan.delta, plan.splits, rows)


def _mean_error(plan: UsersPlan, n_users: int, epsilon: float, cache: ResultCache) -> float:
    """Mean over splits, each of a set of its own."""
    found: list[float] = []
    for seed in range(plan.seed, plan.seed + plan.splits):
        facts = {"items": plan.items, "per_user": plan.per_user, "delta": plan.delta}
        name = [f"users {n_users}", f"epsilon {epsilon:g}", f"split {seed}"]
        compute = partial(_trained, plan, n_users, Privacy(epsilon, plan.delta), seed)
        found.append(cache.once(name, facts, compute)["rmse"])
    return float(np.mean(found))


def _trained(plan: UsersPlan, n_users: int, privacy: Privacy, seed: int) -> dict[str, float]:
    n_ratings = n_users * plan.per_user
    ratings = synthetic(n_users, plan.items, n_ratings, seed, min_per_user=MIN_PER_USER)
    trial = DpTrial(*ratings.split(TEST, seed=seed), privacy, seed)
    return {"rmse": library(_MODEL, trial, {})}


def write(report: UsersCurve, out: Path) -> None:
    """The figures as JSON and Markdown, and drawn."""
    write_results(
        out, "dp-users", report, markdown(COLUMNS, report.rows), {"dp-users": draw(report)}
    )


def draw(report: UsersCurve) -> Any:
    """Costs against the number of users, one colour per epsilon."""
    figure, panel = new_figure()
    for number, epsilon in enumerate(sorted({row.epsilon for row in report.rows})):
        rows = [row for row in report.rows if row.epsilon == epsilon]
        places, look = [row.users for row in rows], {"color": f"C{number}"}
        noise, everything = [row.of_noise for row in rows], [row.of_all for row in rows]
        panel.plot(places, noise, marker="o", label=f"epsilon {epsilon:g}, noise", **look)
        panel.plot(places, everything, marker="s", linestyle="--", label="with clipping", **look)
    panel.axhline(LITTLE, color="black", linestyle=":", label=f"{LITTLE:g}")
    panel.set(xscale="log", xlabel="users", ylabel="test RMSE lost")
    panel.set_title(f"synthetic, {report.items:,} items, delta {report.delta:g}")
    panel.legend()
    return figure
