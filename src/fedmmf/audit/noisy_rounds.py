"""All releases of a run with noise, and what single people add to them.

The broadcasts are those of the run, noise and drop-outs included. Updates of a person are worked
out alone, as the party would, clipped and rounded by the run's own grid. The noise is what the
scheme adds to a sum, or with local noise to one update, in the round with the most drop-outs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.simulated import Group
from fedmmf.arrays import Array
from fedmmf.attacks import Attack, AttackResult
from fedmmf.attacks.membership import item_matrix
from fedmmf.attacks.noisy_sums import NoisyView, Signals, trusted
from fedmmf.attacks.view import levels_of
from fedmmf.audit.exposure import public_prior, restrict
from fedmmf.audit.following import SeenRound, follow, hidden_group, planned_presence
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import TrainingInput
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import SettingsError
from fedmmf.simulation import Prepared

ATTACKED, KNOWN = 200, 200  # people: who are attacked, and whom the attacker has learned from
DIRECTIONS = 8  # that signals are looked for in
_AT_ONCE = 25  # people whose updates are in memory together


@dataclass(frozen=True, eq=False)
class NoisyRounds:
    """The releases of a run with noise."""

    run: Prepared  # of everybody
    users: Array  # codes of those who may be attacked, increasing. (n_users,)
    noise_share: float = 1.0  # of the run's noise; a control of power has hardly any

    @cached_property
    def group(self) -> Group:
        """Who is summed, with the noise of what a server sees: a sum, or one update."""
        group = hidden_group(self.run)
        if group is None or not group.noise_std:
            raise SettingsError("attacks on noisy sums need aggregation 'dp'; this run adds none")
        share = [1 if self.sees_sums else one.present.sum() for one in self.rounds]
        noise = [one.sums.noise_std / np.sqrt(n) for one, n in zip(self.rounds, share, strict=True)]
        return replace(group, noise_std=float(min(noise)))

    @property
    def sees_sums(self) -> bool:
        """Whether a server sees sums alone; with local noise it sees every update."""
        return bool(self.run.settings.scheme.is_secagg(self.run.settings))

    @cached_property
    def rounds(self) -> tuple[SeenRound, ...]:
        """All planned rounds that give a sum."""
        present = planned_presence(self.run.settings, self.run.training.n_users)
        return tuple(follow(self.run, present))

    def updates(
        self, given: TrainingInput, rounds: Sequence[SeenRound] | None = None
    ) -> Iterator[list[tuple[Array, Array]]]:
        """Yield, round by round, the rows and totals of each user of a group, without noise.

        In units of the update: (n_items, width) and (n_totals,).

        Args:
            given: of these users.
            rounds: the releases; None: those of the run.
        """
        n, cohort = given.lists.n_users, self.group.cohort
        cohorts = [replace(cohort, members=np.arange(n) == user) for user in range(n)]
        halves = NUMPY.halves(replace(given, cohorts=cohorts))
        for one in self.rounds if rounds is None else rounds:
            found = halves.update(one.round.broadcast, one.round.round)
            yield [
                (rows / cohort.scale, totals / (cohort.total_scale or 1.0))
                for rows, totals in zip(found.rows, found.totals, strict=True)
            ]

    @cached_property
    def _parts(self) -> tuple[Array, Array]:
        """Codes of the people who are attacked, and of those whom the attacker knows."""
        draw = rng.stream(self.run.settings.seed, "noisy sums").permutation(self.users)
        n = min(ATTACKED, len(draw) // 2)
        return np.sort(draw[:n]), np.sort(draw[n : n + KNOWN])

    def _rows_of(self, users: Array) -> Iterator[tuple[int, Array]]:
        """Yield each user's place, and all rows side by side in deviations of the noise."""
        given = self.run.training_input
        for start in range(0, len(users), _AT_ONCE):
            some = users[start : start + _AT_ONCE]
            by_round = list(self.updates(of_users(given, some)))
            for place in range(len(some)):
                rows = [one[place][0] for one in by_round]
                yield start + place, np.hstack(rows) / self._noise

    @property
    def _noise(self) -> float:
        return self.group.noise_std * self.noise_share

    @cached_property
    def _prior(self) -> Array:
        """Probability of each level for every rating of everybody. (n, n_levels)."""
        return public_prior(self.run.training, self.run.settings.seed)

    @cached_property
    def signals(self) -> Signals:
        """What the attacker has learned from those whom it knows."""
        _, known = self._parts
        training, found, rated = self.run.training, [], []
        places = self.run.training_input.lists
        for place, rows in self._rows_of(known):
            mine = places.of(int(known[place]))
            found.append(rows[places.items[mine]])
            rated.append(np.flatnonzero(training.user_codes == known[place]))
        rows = np.concatenate(rated)
        prior, ratings = self._prior[rows], training.values[rows]
        signals, levels = np.vstack(found), levels_of(training.scale)
        learned = Signals.learned(signals, ratings - prior @ levels, DIRECTIONS)
        seen = signals @ learned.directions
        stream = rng.stream(self.run.settings.seed, "noise of known sums")
        return trusted(learned, seen + stream.standard_normal(seen.shape), prior, ratings, levels)

    @cached_property
    def view(self) -> NoisyView:
        """What is left of the sums of the attacked people."""
        attacked, _ = self._parts
        training, signals, n_items = self.run.training, self.signals, self.run.training.n_items
        stream = rng.stream(self.run.settings.seed, "noise of attacked sums")
        q = signals.directions.shape[1]
        seen = np.empty((len(attacked), n_items, q), np.float32)
        for place, rows in self._rows_of(attacked):  # white noise is white along any directions
            seen[place] = rows @ signals.directions + stream.standard_normal((n_items, q))
        mine = restrict(training, attacked)
        lengths = np.bincount(mine.user_codes, minlength=len(attacked))
        lists = RatedItems(np.concatenate(([0], np.cumsum(lengths))), mine.item_codes)
        counts, rated = self.run.lists.counts(n_items), item_matrix(lists, n_items)
        return NoisyView(
            users=attacked,
            lists=lists,
            scale=training.scale,
            prior=self._prior[np.isin(training.user_codes, attacked)],
            seen=seen,
            signals=signals,
            popularity=(counts - rated) / max(training.n_users - 1, 1),
        )

    def attacked_by(self, attack: Attack) -> AttackResult:
        """Try an attack on the releases of all planned rounds."""
        view = self.view
        if attack.target == "noisy lists":
            return attack.run(view, item_matrix(view.lists, self.run.training.n_items))
        rows = np.isin(self.run.training.user_codes, view.users)
        return attack.run(view, self.run.training.values[rows])


def of_users(given: TrainingInput, users: Sequence[int] | Array) -> TrainingInput:
    """Return the training data of some users alone."""
    rows = [given.lists.of(int(user)) for user in users]
    at = np.concatenate([np.arange(one.start, one.stop) for one in rows])
    lengths = given.lists.lengths[users]
    ordered: dict[str, Any] = {}
    if len(given.levels):
        ordered = {"levels": given.levels[at], "mask": given.mask[at]}
    return replace(
        given,
        lists=RatedItems(np.concatenate(([0], np.cumsum(lengths))), given.lists.items[at]),
        masked_ratings=given.masked_ratings[at],
        profiles=given.profiles[users],
        lines=given.lines[users],
        **ordered,
    )
