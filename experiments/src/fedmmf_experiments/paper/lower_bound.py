"""An empirical lower bound on epsilon: how well the best test finds a planted user in whole runs.

The attacker knows everything but whether one user took part, and what the noise was: every other
user's ratings, every broadcast, and the planted user's own, who has rated all items as far from
everybody as the scale allows. In each release it subtracts what the others must have sent, and
projects the rest on what the planted user would have sent. Were the broadcasts fixed, no test would
be more powerful (Neyman and Pearson 1933). Runs are whole, with the product's own integers and its
own noise, and each broadcast follows from the releases before it.

Two bounds of epsilon follow from runs with the user and runs without:
- *means*: releases of a run are together one Gaussian with shift mu (Dong, Roth and Su 2022). mu is
  estimated by the difference of the mean scores; the lower end of its interval gives an epsilon.
- *counting*: a threshold, chosen on half of the runs, finds some of those with the user and some
  without; Clopper-Pearson limits p and q of the other half give log((p - delta) / q).

In a build without the clip, the bound has to be above the claim: else the test could find nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fedmmf.aggregation.dp.guarantee import discrete_gaussian, spent
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.synthetic import synthetic
from fedmmf.engines.contract import Cohort, TrainingInput, UserHalves
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation.prepared import Prepared
from fedmmf.solvers.contract import Broadcast, ItemSums
from fedmmf.solvers.vb.private import PrivateShape
from fedmmf_experiments.paper.epsilon import analytic_gaussian

Progress = Callable[[str, int, int], None]
LEVEL = 0.95  # of every interval
MASKS = ("none", "mean", "lr")
LARGER_CLIP = 10.0  # what a server names where the clip is taken out


@dataclass(frozen=True)
class LowerBound:
    """One kind of run: what is claimed, and what the best test shows at least."""

    mask: str
    build: str
    runs: int  # with the user, and as many without
    claimed: float  # epsilon
    delta: float
    shift: float  # mu, estimated
    shift_low: float  # interval of mu
    shift_high: float
    by_means: float  # lower bound of epsilon
    by_counting: float

    @property
    def is_below(self) -> bool:
        """Whether both bounds are below the claim."""
        return max(self.by_means, self.by_counting) < self.claimed


@dataclass(frozen=True, eq=False)
class PlantedRuns:
    """Whole runs with a planted user, or without.

    Attributes:
        run: as it is prepared; its first user is replaced.
        given: training data with the planted user.
        has_clip: whether the engine clips, and the server names the clip of the settings.
    """

    run: Prepared
    given: TrainingInput
    has_clip: bool = True

    @classmethod
    def among(cls, settings: Settings, has_clip: bool = True) -> "PlantedRuns":
        """Plant a user who has rated everything, in turn as high and as low as can be."""
        run = prepare(synthetic(60, 40, 1_000, min_per_user=5, seed=3), settings)
        given, n = run.training_input, run.training_input.n_items
        others = slice(int(given.lists.indptr[1]), None)
        items = np.concatenate((np.arange(n, dtype=np.int32), given.lists.items[others]))
        half = run.training.scale.span / 2
        own = np.where(np.arange(n) % 2, half, -half)
        masked = np.concatenate((own, given.masked_ratings[others])).astype(np.float32)
        indptr = given.lists.indptr + n - given.lists.indptr[1]
        indptr[0] = 0
        lists = RatedItems(indptr, items)
        return cls(run, replace(given, lists=lists, masked_ratings=masked), has_clip)

    def halves(self) -> UserHalves:
        """All users, and all but the planted one, as two cohorts of one engine."""
        cohort = self.cohort
        others = np.arange(self.given.lists.n_users) > 0
        cohorts = (cohort, replace(cohort, members=others))
        return self.run.engine.halves(replace(self.given, cohorts=cohorts))

    @property
    def cohort(self) -> Cohort:
        """How each user is clipped and rounded."""
        (group,) = self.run.groups
        if self.has_clip:
            return group.cohort
        bound = 10 * LARGER_CLIP * group.cohort.bound
        return replace(group.cohort, clip=np.inf, bound=bound, total_bound=bound)

    def score(self, is_present: bool) -> float:
        """Run once; return the projection on what the user would send, over its noise."""
        halves, half, (group,) = self.halves(), self.run.coordinator().half, self.run.groups
        sigma = math.ceil(group.noise_std * group.cohort.scale)  # steps
        found, square = 0.0, 0.0
        for t in range(1, self.run.settings.max_rounds + 1):
            update = halves.update(self._named(half.broadcast()), t)
            everybody, others = (
                np.concatenate((rows.ravel(), totals)).astype(np.int64)
                for rows, totals in zip(update.rows, update.totals, strict=True)
            )
            released = (everybody if is_present else others) + discrete_gaussian(len(others), sigma)
            own = everybody - others
            found += float((released - others) @ own) / sigma
            square += float(own @ own)
            half.advance(self._sums(released, update.rows[0].shape, sigma), t)
        return found / math.sqrt(square)

    def _named(self, broadcast: Broadcast) -> Broadcast:
        """The broadcast, with a larger clip where the clip is taken out."""
        if self.has_clip:
            return broadcast
        shape, parameters = self.given.update_shape, broadcast.parameters.copy()
        if isinstance(shape, PrivateShape):
            parameters[shape.blocks["parameters"].place("clip")] *= LARGER_CLIP
        return replace(broadcast, parameters=parameters)

    def _sums(self, released: Array, shape: tuple[int, int], sigma: int) -> ItemSums:
        """The release as the server reads it."""
        (group,) = self.run.groups
        scale, n = group.cohort.scale, shape[0] * shape[1]
        rows = (released[:n].reshape(shape) / scale).astype(np.float32)
        return ItemSums(rows, group.counts, released[n:] / scale, sigma / scale)


def run(epsilons: list[float], n_runs: int, progress: Progress) -> list[LowerBound]:
    """Bounds for every mask and epsilon, and for builds without the clip."""
    plans = [(mask, epsilon, True) for epsilon in epsilons for mask in MASKS]
    plans += [("mean", epsilon, False) for epsilon in epsilons]
    found = []
    for mask, epsilon, has_clip in plans:
        settings = Settings(aggregation="dp", mask=mask, dp_epsilon=epsilon)
        found.append(measure(settings, n_runs, has_clip))
        progress("kinds of runs", len(found), len(plans))
    return found


def measure(settings: Settings, n_runs: int, has_clip: bool = True) -> LowerBound:
    """Bounds from so many runs with the planted user, and as many without."""
    planted = PlantedRuns.among(settings, has_clip)
    scores = np.array([[planted.score(is_present=b) for b in (True, False)] for _ in range(n_runs)])
    with_user, without = scores.T
    delta, paid = settings.dp_delta, spent(settings, settings.max_rounds)
    low, shift, high = shift_between(with_user, without)
    return LowerBound(
        mask=settings.mask,
        build="as it is" if has_clip else "without the clip",
        runs=n_runs,
        claimed=paid["epsilon"],
        delta=delta,
        shift=shift,
        shift_low=low,
        shift_high=high,
        by_means=analytic_gaussian(1 / low, delta) if low > 0 else 0.0,
        by_counting=counted(with_user, without, delta),
    )


def shift_between(with_user: Array, without: Array) -> tuple[float, float, float]:
    """Interval of the difference of means, and the difference: low, estimate, high."""
    shift = float(with_user.mean() - without.mean())
    variance = with_user.var(ddof=1) / len(with_user) + without.var(ddof=1) / len(without)
    reach = float(stats.norm.isf((1 - LEVEL) / 2) * math.sqrt(variance))
    return shift - reach, shift, shift + reach


def counted(with_user: Array, without: Array, delta: float) -> float:
    """Lower bound of epsilon by counting what a threshold finds."""
    half = len(with_user) // 2
    thresholds = np.quantile(without[:half], np.linspace(0.02, 0.98, 49))
    chosen = max(thresholds, key=lambda at: _bound(with_user[:half], without[:half], at, delta))
    return max(0.0, _bound(with_user[half:], without[half:], float(chosen), delta))


def _bound(with_user: Array, without: Array, at: float, delta: float) -> float:
    """log((p - delta) / q) of the limits of the shares above a threshold."""
    each = (1 - LEVEL) / 2
    n_with, n_without = int((with_user > at).sum()), int((without > at).sum())
    p = stats.beta.ppf(each, n_with, len(with_user) - n_with + 1) if n_with else 0.0
    is_all = n_without == len(without)
    q = 1.0 if is_all else stats.beta.isf(each, n_without + 1, len(without) - n_without)
    return math.log(max(p - delta, 1e-12) / q)


def as_columns() -> dict[str, Any]:
    """Columns of the table that the command prints."""
    return {
        "mask": lambda row: row.mask,
        "build": lambda row: row.build,
        "runs": lambda row: f"2 x {row.runs:,}",
        "epsilon claimed": lambda row: f"{row.claimed:.3f}",
        "shift, 95 %": lambda row: f"{row.shift:.3f} ({row.shift_low:.3f} to {row.shift_high:.3f})",
        "at least, by means": lambda row: f"{row.by_means:.3f}",
        "at least, by counting": lambda row: f"{row.by_counting:.3f}",
    }
