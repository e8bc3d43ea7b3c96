"""Whether a simulation under noise releases what real parties release: compared over many runs.

Real parties draw discrete noise from the operating system, share it, and sum securely. A simulation
adds one Gaussian from a seed. Each of many whole runs gives one vector per stage: all rows and
totals that the server gets in the rounds of that stage, whose broadcasts follow from the releases
before. Two sets of such vectors are compared by permutation: labels of runs are exchanged at
random, and the share of exchanges that differ as much as the true labels do is the p-value. It is
exact, whatever the distribution, if simulation and reality are alike.

Epsilon is large on purpose: with little noise, an error in what parties send shows best. Two
controls, simulations of something slightly else, say what the tests would find.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist, squareform

from fedmmf import rng
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf.federation.local import LocalFederation, make_parties, server_plan
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers.contract import ItemSums

Progress = Callable[[str, int, int], None]
EPSILON, ROUNDS = 50.0, 6
KINDS: dict[str, dict[str, Any]] = {
    "vb, no mask": {"mask": "none"},
    "vb, joint lr mask": {"mask": "lr"},
    "sgd": {"solver": "sgd", "mask": "mean", "learning_rate": 0.3, "step": "sum"},
}
NOISES = ("distributed", "local")
LARGER_EPSILON = "control: epsilon a fifth larger"
OTHER_RATINGS = "control: six users' ratings turned round"


@dataclass(frozen=True)
class StageAgreement:
    """One stage of one kind of run, real and simulated: p-values of four tests."""

    kind: str
    added_by: str  # local or distributed
    simulation: str  # its engine, or what is wrong with it
    stage: str
    numbers: int  # released per run
    mean: float  # p of the largest difference of means
    variance: float  # p of the largest ratio of variances
    noise: float  # p of the mean ratio of variances: noise that is too large or small everywhere
    whole: float  # p of the energy distance between the distributions of whole vectors

    @property
    def is_control(self) -> bool:
        """Whether the simulation is of something else than the real runs."""
        return self.simulation.startswith("control")

    @property
    def tests(self) -> tuple[float, ...]:
        """All p-values."""
        return self.mean, self.variance, self.noise, self.whole


def tiny(seed: int = 6) -> Ratings:
    """Twenty-four users of twelve items with features."""
    return synthetic(24, 12, 150, min_per_user=3, seed=seed)


def settings_of(kind: str, noise: str, **changes: Any) -> Settings:
    """Settings of a kind of run."""
    base = {"aggregation": "dp", "dp_epsilon": EPSILON, "rounds": ROUNDS, "factors": 3}
    return Settings(**{**base, **KINDS[kind], "dp_noise": noise, **changes})


def run(
    engines: list[str], n_runs: int, n_permutations: int, progress: Progress
) -> list[StageAgreement]:
    """Compare every kind and noise with the simulation of every engine, and with controls."""
    found: list[StageAgreement] = []
    ratings = tiny()
    for number, (kind, noise) in enumerate((k, n) for k in KINDS for n in NOISES):
        settings = settings_of(kind, noise)
        progress("kinds of runs", number, len(KINDS) * len(NOISES))
        real = collected(real_runs(ratings, settings, n_runs), settings)
        for name, simulated in simulations(ratings, settings, engines, n_runs):
            for stage in real:
                draws = rng.stream(0, "agreement", kind, noise, name, stage)
                tests = compared(real[stage], simulated[stage], n_permutations, draws)
                found.append(StageAgreement(kind, noise, name, stage, real[stage].shape[1], *tests))
    return found


def simulations(
    ratings: Ratings, settings: Settings, engines: list[str], n_runs: int
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield the simulated releases of each engine, and of the controls."""
    for engine in engines:
        own = settings.changed(engine=engine)
        yield engine, collected(simulated_runs(ratings, own, n_runs), own)
    larger = settings.changed(dp_epsilon=1.2 * settings.dp_epsilon)  # an eighth less noise
    yield LARGER_EPSILON, collected(simulated_runs(ratings, larger, n_runs), larger)
    other = collected(simulated_runs(turned_round(ratings), settings, n_runs), settings)
    yield OTHER_RATINGS, other


def turned_round(ratings: Ratings) -> Ratings:
    """The same ratings, but six users like what they disliked."""
    values = ratings.values.copy()
    is_other = ratings.user_codes < 6
    values[is_other] = ratings.scale.min + ratings.scale.max - values[is_other]
    return replace(ratings, values=values)


def real_runs(ratings: Ratings, settings: Settings, n_runs: int) -> Iterator[list[ItemSums]]:
    """Yield the releases of each run among real parties, with every message."""
    for _ in range(n_runs):
        federation = LocalFederation.among(
            server_plan(ratings, settings), make_parties(ratings, settings)
        )
        federation.prepare_sums()
        coordinator, side, released = federation.server.coordinator, federation.server.side, []
        while not coordinator.is_finished:
            round_ = coordinator.next_round()
            released.append(side.sums(round_))
            coordinator.advance(round_, released[-1])
        yield released


def simulated_runs(ratings: Ratings, settings: Settings, n_runs: int) -> Iterator[list[ItemSums]]:
    """Yield the releases of each simulated run; every one has noise of its own."""
    prepared = prepare(ratings, settings)
    for number in range(n_runs):
        coordinator, parties, released = prepared.coordinator(), prepared.parties(number), []
        while not coordinator.is_finished:
            round_ = coordinator.next_round()
            released.append(parties.sums(round_))
            coordinator.advance(round_, released[-1])
        yield released


def collected(runs: Iterator[list[ItemSums]], settings: Settings) -> dict[str, Array]:
    """The releases of each stage as one vector per run. (n_runs, d) each."""
    table = getattr(settings.chosen_solver, "releases", lambda rounds: (("updates", rounds),))
    found: dict[str, list[Array]] = {}
    for released in runs:
        done = 0
        for stage, n in table(settings.max_rounds):
            parts = [
                np.concatenate((sums.rows.ravel(), sums.totals[HELD_OUT_TOTALS:]))
                for sums in released[done : done + n]
            ]
            found.setdefault(stage, []).append(np.concatenate(parts))
            done += n
    return {stage: np.array(vectors, np.float64) for stage, vectors in found.items()}


def compared(
    some: Array, others: Array, n_permutations: int, draws: np.random.Generator
) -> tuple[float, ...]:
    """P-values in the order of `StageAgreement.tests`.

    Args:
        some: vectors of one kind of runs. (n, d)
        others: of the other. (m, d)
        n_permutations: of the labels.
        draws: where these come from.
    """
    both = np.concatenate((some, others))
    spread = both.std(axis=0)
    scaled = (both - both.mean(axis=0))[:, spread > 0] / spread[spread > 0]  # (n + m, d)
    first = np.zeros((1 + n_permutations, len(both)), bool)  # the true labels, then exchanged ones
    first[:, : len(some)] = True
    first[1:] = draws.permuted(first[1:], axis=1)
    weights = np.where(first, 1 / len(some), -1 / len(others))
    means, squares = weights @ scaled, np.square(scaled)
    of_first, of_others = (first / len(some)) @ squares, (~first / len(others)) @ squares
    ratios = np.log(np.maximum(of_first, 1e-300) / np.maximum(of_others, 1e-300))
    energy = -np.einsum("pi,pi->p", weights @ squareform(pdist(scaled)), weights)
    of_all = np.abs(ratios.mean(axis=1))
    largest = (np.abs(means).max(axis=1), np.abs(ratios).max(axis=1), of_all, energy)
    return tuple(float(np.mean(values >= values[0] * (1 - 1e-12))) for values in largest)


def verdict(rows: list[StageAgreement]) -> tuple[float, float]:
    """Smallest p-value of all true comparisons, times their number; largest of the controls.

    Of the controls, the smallest p-value of each kind and noise counts: some stages do not differ.
    """
    true = [p for row in rows if not row.is_control for p in row.tests]
    controls: dict[tuple[str, str, str], float] = {}
    for row in rows:
        if row.is_control:
            key = (row.kind, row.added_by, row.simulation)
            controls[key] = min(*row.tests, controls.get(key, 1.0))
    return min(1.0, min(true) * len(true)), max(controls.values())
