"""Epsilon of whole runs, from the noise that parties were seen to add, by others' methods.

Ten runs of real parties, every message included. What every party adds before it is summed is
noted: its integers, whose length says how far a user can move a sum, and its noise, whose size is
measured. Nothing is taken from the accounting that set the noise: releases are counted, lengths and
noise measured, and of noise that is shared only so many parts count as honest survivors are sure to
have added. From that, epsilon is computed
- for discrete noise, by the conversion of Canonne, Kamath and Steinke 2020 (proposition 12),
- for a continuous Gaussian, by its exact curve (Balle and Wang 2018),
- and by privacy loss distributions (dp-accounting).
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.aggregation.dp.guarantee import counted_on, spent
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf.federation.local import LocalFederation, make_parties, server_plan
from fedmmf.party import Party
from fedmmf.settings import Settings
from fedmmf_experiments.paper.agreement import Progress
from fedmmf_experiments.paper.epsilon import analytic_gaussian, loss_distribution

_VB = Settings(aggregation="dp", mask="mean", factors=3)
RUNS = (
    _VB.changed(dp_epsilon=1.0),
    _VB.changed(dp_epsilon=2.0, mask="lr"),
    _VB.changed(dp_epsilon=4.0, mask="none", rounds=6),
    _VB.changed(dp_epsilon=8.0, dp_clip=0.3, dp_delta=1e-7),
    _VB.changed(dp_epsilon=8.0, rounds=30, signed=True),
    _VB.changed(dp_epsilon=8.0, ensemble=2, rounds=6),
    _VB.changed(dp_epsilon=1.0, dp_noise="local", mask="lr"),
    _VB.changed(dp_epsilon=8.0, dp_noise="local", dp_clip=5.0),
    Settings(aggregation="dp", solver="sgd", mask="mean", factors=3, step="sum", rounds=10),
    Settings(aggregation="dp", solver="sgd", mask="lr", factors=3, step="adam", dp_noise="local"),
)


@dataclass(frozen=True)
class WholeRun:
    """One run: what its report claims, and what was seen."""

    solver: str
    mask: str
    noise: str
    delta: float
    clip: float
    releases: int  # that every party made
    claimed: float  # epsilon, by the report
    multiplier: float  # noise over sensitivity, by the report
    measured: float  # the same, as it was seen
    longest: float  # a user's integers, over the clip
    discrete: float  # epsilon of what was seen, three times
    analytic: float
    losses: float


@dataclass(eq=False)
class Noted:
    """A guarantee whose grids note what one party adds."""

    inner: Any
    steps: list[Array] = field(default_factory=list)  # of each release, over the scale (d,)
    added: list[Array] = field(default_factory=list)  # noise, likewise
    scale: float = 1.0  # of the release at hand
    cohort: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def grid(self, scale: float, *about: int) -> "Noted":
        """The grid of a release, which is noted here."""
        self.scale, self._grid = scale, self.inner.grid(scale, *about)
        self.cohort = self._grid.cohort
        return self

    def add(self, steps: Array) -> Array:
        """Rows with noise: a release begins with them."""
        found = self._grid.add(steps)
        self.steps.append(steps.ravel() / self.scale)
        self.added.append((found - steps).ravel() / self.scale)
        return np.asarray(found)

    def add_to_totals(self, steps: Array) -> Array:
        """Totals with noise, if they leave at all."""
        found = self._grid.add_to_totals(steps)
        if self.cohort.clips_totals:
            own = steps.astype(np.int64)
            parts = (own / self.scale, (found - own) / self.scale)
            for noted, part in zip((self.steps, self.added), parts, strict=True):
                noted[-1] = np.concatenate((noted[-1], part[HELD_OUT_TOTALS:]))
        return np.asarray(found)


def tiny() -> Ratings:
    """Twenty-four users of thirty items with features."""
    return synthetic(24, 30, 300, min_per_user=3, seed=6)


def run_all(progress: Progress) -> list[WholeRun]:
    """Measure every run of the table."""
    found = []
    for settings in RUNS:
        found.append(measure(tiny(), settings))
        progress("whole runs", len(found), len(RUNS))
    return found


def measure(ratings: Ratings, settings: Settings) -> WholeRun:
    """Run to the end among real parties, and compute epsilon from what they added."""
    parties = make_parties(ratings, settings)
    for party in parties.values():
        noted: Any = Noted(party.policy.noise)
        party.policy = replace(party.policy, noise=noted)
    plan, used = server_plan(ratings, settings), 0
    for member in range(settings.ensemble):
        used += len(LocalFederation.among(plan, parties, member=member).run().history)
    report = spent(settings, used)
    multiplier, longest = seen(parties, settings)
    releases = {len(noted_by(party).added) for party in parties.values()}
    (n_releases,) = releases  # as many of every party
    delta = settings.dp_delta
    return WholeRun(
        solver=settings.solver,
        mask=settings.mask,
        noise=settings.dp_noise,
        delta=delta,
        clip=settings.dp_clip,
        releases=n_releases,
        claimed=report["epsilon"],
        multiplier=report["noise_multiplier"],
        measured=multiplier,
        longest=longest,
        discrete=concentrated(n_releases / (2 * multiplier**2), delta),
        analytic=analytic_gaussian(multiplier / math.sqrt(n_releases), delta),
        losses=loss_distribution(multiplier, n_releases, delta),
    )


def noted_by(party: Party) -> Noted:
    """What a party's grids have noted."""
    noise: Any = party.policy.noise
    return noise  # type: ignore[no-any-return]


def seen(parties: dict[str, Party], settings: Settings) -> tuple[float, float]:
    """Noise over sensitivity, and the longest integers of a user over the clip."""
    noise = np.concatenate([part for party in parties.values() for part in noted_by(party).added])
    lengths = [np.linalg.norm(one) for party in parties.values() for one in noted_by(party).steps]
    is_shared = settings.dp_noise == "distributed"
    parts, moved = (counted_on(len(parties)), 1.0) if is_shared else (1, 2.0)
    measured = math.sqrt(parts * float(np.mean(noise**2))) / (moved * settings.dp_clip)
    return measured, float(max(lengths)) / settings.dp_clip


def concentrated(rho: float, delta: float) -> float:
    """Epsilon of concentrated differential privacy, at the best of many orders."""
    beyond = np.geomspace(1e-4, 1e6, 400_000)  # order - 1
    orders = 1.0 + beyond
    found = rho * orders + (beyond * np.log(beyond / orders) - np.log(orders * delta)) / beyond
    return float(max(found.min(), 0.0))
