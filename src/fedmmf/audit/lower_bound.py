"""An empirical lower bound on epsilon: how well a planted user is found in all releases of a run.

The planted user rated every item, or every other one, at the ends of the scale: its updates are
about as large as the clip lets them be, of lists less so. A server that knows everybody else's
updates takes these off each sum, and weighs what is left by what the planted user would have
added: the likelihood ratio, which no test beats. Broadcasts are those of one run; the noise is
drawn anew, as the simulation draws it, in many runs with the planted user and in as many without.
With local noise two planted users, who rated other items, are told apart.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.arrays import Array
from fedmmf.attacks.epsilon import LEVEL, Scores, epsilon_of
from fedmmf.audit.noisy_rounds import NoisyRounds, of_users
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import TrainingInput
from fedmmf.reports.spending import EpsilonBounds
from fedmmf.simulation import Prepared
from fedmmf.wire import Round

MIN_RUNS, MAX_RUNS = 200, 1000  # with the planted user, and as many without
_DRAWS = 200_000_000  # numbers of noise that an audit draws

Release = tuple[Array, Array]  # rows (n_items, width) and totals (n_totals,) of one user


@dataclass(frozen=True, eq=False)
class Planted:
    """A planted user in a run's releases.

    Attributes:
        seen: the run's releases.
        told: what the server makes of each broadcast before it reaches the planted user.
    """

    seen: NoisyRounds
    told: Callable[[Round], Round] = field(default=lambda round_: round_)

    @classmethod
    def of(cls, run: Prepared) -> "Planted":
        """Plant a user in a run."""
        return cls(NoisyRounds(run, np.arange(run.training.n_users)))

    def added(self, first: int = 0, step: int = 1) -> list[Release]:
        """What the user adds to each release, who rated every `step`-th item from `first` on."""
        rounds = [replace(one, round=self.told(one.round)) for one in self.seen.rounds]
        return [found[0] for found in self.seen.updates(self._user(first, step), rounds)]

    def _user(self, first: int, step: int) -> TrainingInput:
        """Training data of one user, whose ratings are the ends of the scale in turn."""
        given = self.seen.run.training_input
        items = np.arange(first, given.n_items, step, dtype=np.int32)
        ends = (given.masked_ratings.min(), given.masked_ratings.max())
        ratings = np.where(np.arange(len(items)) % 2, *ends).astype(np.float32)
        lists = RatedItems(np.array([0, len(items)]), items)
        return replace(of_users(given, [0]), lists=lists, masked_ratings=ratings)

    def scores(self, n_runs: int, seed: int = 0) -> Scores:
        """Draw the noise of so many runs with the planted user, and of as many without."""
        if self.seen.sees_sums:
            with_it = self.added()
            without = [(np.zeros_like(rows), np.zeros_like(totals)) for rows, totals in with_it]
        else:
            with_it, without = self.added(0, 2), self.added(1, 2)
        weights = [
            (rows - others[0], totals - others[1])
            for (rows, totals), others in zip(with_it, without, strict=True)
        ]
        streams = (rng.stream(seed, "planted", world) for world in ("present", "absent"))
        worlds = zip((with_it, without), streams, strict=True)
        present, absent = (
            np.array([self._score(releases, weights, stream) for _ in range(n_runs)])
            for releases, stream in worlds
        )
        return Scores(present, absent)

    def _score(
        self, releases: list[Release], weights: list[Release], stream: np.random.Generator
    ) -> float:
        """Log of the likelihood ratio in one run, up to a constant and a factor."""
        group, found = self.seen.group, 0.0
        nobody = np.zeros((len(group.members), HELD_OUT_TOTALS))
        scale, total_scale = group.cohort.scale, group.cohort.total_scale or 1.0
        for (rows, totals), (of_rows, of_totals) in zip(releases, weights, strict=True):
            sums = group.sums(rows * scale, totals * total_scale, nobody, stream)
            found += float(np.vdot(sums.rows, of_rows))
            found += float(sums.totals[HELD_OUT_TOTALS:] @ of_totals)
        return found

    @property
    def n_runs(self) -> int:
        """Number of runs that an audit repeats, in either world: fewer of large ones."""
        rows = sum(one.sums.rows.size for one in self.seen.rounds)
        return int(np.clip(_DRAWS // max(2 * rows, 1), MIN_RUNS, MAX_RUNS))


def bounds(planted: Planted, proven: float, delta: float, n_runs: int) -> EpsilonBounds:
    """Return the lower bound beside the proven upper bound.

    Args:
        planted: the user who is looked for.
        proven: epsilon of all planned rounds.
        delta: that both hold at.
        n_runs: with the planted user, and as many without.
    """
    scores = planted.scores(n_runs, planted.seen.run.settings.seed)
    return EpsilonBounds(
        proven=proven,
        delta=delta,
        lower=epsilon_of(scores.least_distance(), delta),
        lower_by_counting=scores.by_counting(delta),
        surely=scores.surely(delta),
        estimate=epsilon_of(scores.distance(), delta),
        runs=n_runs,
        releases=len(planted.seen.rounds),
        level=LEVEL,
    )


def bounds_of(run: Prepared) -> EpsilonBounds:
    """Return both bounds on the epsilon of a run with a privacy budget."""
    settings = run.settings
    spent = settings.scheme.spent(settings, settings.ensemble * settings.max_rounds)
    planted = Planted.of(run)
    return bounds(planted, spent["epsilon"], settings.dp_delta, planted.n_runs)
