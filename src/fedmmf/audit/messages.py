"""Attacks on what parties send: in the clear, and with secure aggregation.

Messages in the clear and masked vectors are those of real parties with the solver `sgd`: an update
of `vb` never leaves in the clear, and masked vectors are noise with any solver. Sums are those of
the run's solver.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import ATTACKS, Attack, AttackResult, Target, attacks_on
from fedmmf.attacks.contract import Attacked
from fedmmf.attacks.gradients import Uploads, to_exposed
from fedmmf.attacks.membership import from_updates, item_matrix
from fedmmf.attacks.view import Exposed, View
from fedmmf.audit import recording
from fedmmf.audit.cohorts import FirstRound, weighed, without_budget
from fedmmf.audit.exposure import drawn_users, restrict
from fedmmf.audit.recording import ROUNDS, Transcript, record_plain, record_strict
from fedmmf.audit.rounds import (
    FEWER,
    POWER,
    AttackedRounds,
    counts_raters,
    fewer_targets,
    power_targets,
    reads_sums,
    round_targets,
)
from fedmmf.audit.trials import Trials
from fedmmf.data import Ratings
from fedmmf.federation.local import make_parties, server_plan
from fedmmf.party import Party
from fedmmf.server import ServerPlan
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared
from fedmmf.simulation.prepared import fit_all_masks
from fedmmf.simulation.surveys import census_of

COHORT = 1000  # real parties at most whose messages are attacked
PLAIN, TAKING_PART = "plain updates", "sums with and without the user"
STRICT = ("masked vectors of strict mode", "sums of strict mode")
Results = tuple[AttackResult, ...]
Seen = tuple[Attacked, Array]
"""A view, and the truth that only the score is given."""


def attack_messages(
    run: Prepared, view: Exposed, trials: Trials, sample: int
) -> dict[str, Results]:
    """Attack what a cohort of real parties sends; return results by target.

    Args:
        run: of everybody.
        view: what would leak of everybody.
        trials: what each attack goes through.
        sample: how many users are attacked at most.
    """
    clear = AttackedCohort.of(run, view, trials, sample, sharing="plain", signed=False, batch=1)
    strict = AttackedCohort.of(run, view, trials, sample, sharing="strict")
    rounds = AttackedRounds(run, strict.view.users, trials)
    return {
        PLAIN: clear.attack_plain(),
        STRICT[0]: strict.attack_vectors(),
        STRICT[1]: (*strict.attack_sums(), *rounds.attack(STRICT[1])),
        TAKING_PART: (clear.attack_taking_part(),),
        FEWER: rounds.attack_fewer(),
        POWER: rounds.attack_few(),
    }


def n_steps(settings: Settings, *, has_others: bool) -> int:
    """Number of steps that `attack_messages` reports; `has_others` as in `round_targets`."""

    def n_on(*targets: Target) -> int:
        return sum(len(attacks_on(target, settings.mask)) for target in targets)

    battery = n_on("uploads", "masked ratings", "cohort")
    recorded = 2 * (2 + ROUNDS)  # parties made, sums prepared, rounds
    plain = n_on("uploads", "cohort") + 1
    on_first = n_on("cohort") if counts_raters(settings) else 0
    on_first += battery + n_on("sums") if reads_sums(settings) else 0
    on_rounds = round_targets(settings, has_others=has_others)
    followed = (*on_rounds, *fewer_targets(settings), *power_targets(settings))
    return recorded + plain + battery + on_first + 2 + n_on(*followed)


@dataclass(frozen=True, eq=False)
class AttackedCohort:
    """Some users as real parties, with public knowledge about the others."""

    run: Prepared  # of everybody
    ratings: Ratings
    settings: Settings
    view: Exposed  # what would leak of these users
    rated: Array  # (n_users, n_items) bool
    popularity: Array  # (n_users, n_items) share of all other users who rated an item
    statistics: Array  # of items, that masks see beside their content (n_items, d)
    trials: Trials

    @classmethod
    def of(
        cls, run: Prepared, view: Exposed, trials: Trials, sample: int = COHORT, **sharing: Any
    ) -> "AttackedCohort":
        """Draw at most `COHORT` users of a run, who share as the settings say."""
        ratings = run.training
        users = drawn_users(ratings, run.settings.seed, min(sample, COHORT))
        mine = view.only(np.isin(np.arange(ratings.n_users), users))
        rated = item_matrix(mine.lists, ratings.n_items)
        counts = run.lists.counts(ratings.n_items)
        settings = run.settings.changed(
            solver="sgd",
            objective="rating",
            aggregation="secure",
            collect_masked=False,
            held_out=0.0,
            **without_budget(run.settings),
            **sharing,
        )
        some = restrict(ratings, users)
        common = census_of(some, run.features.content, settings).population  # theirs
        masked = fit_all_masks(some, run.features.seen, settings, common).masked_ratings
        return cls(
            run=run,
            ratings=some,
            settings=settings,
            view=replace(mine, population=common, masked=masked),
            rated=rated,
            popularity=(counts - rated) / max(ratings.n_users - 1, 1),
            statistics=run.features.statistics,
            trials=trials,
        )

    @cached_property
    def uploads(self) -> Uploads:
        """Record two rounds in the clear."""
        plan, parties = self._start()
        return record_plain(plan, parties, self.view, self.trials.tell)

    @cached_property
    def transcript(self) -> Transcript:
        """Record two rounds of secure aggregation."""
        plan, parties = self._start()
        return record_strict(plan, parties, self.view, self.trials.tell)

    def _start(self) -> tuple[ServerPlan, dict[str, Party]]:
        self.trials.tell("real parties are made")
        parties = make_parties(self.ratings, self.settings, statistics=self.statistics)
        for party in parties.values():  # an audit shows what such sums say
            party.policy = replace(party.policy, takes_thin_sums=True)
        return server_plan(self.ratings, self.settings), parties

    def attack_plain(self) -> Results:
        """Run the attacks on plain updates: leaked gradients, removed masks, named items."""

        def exposed() -> Seen:
            return self._exposed(self.uploads)

        def named() -> Seen:
            return from_updates(self.rated, self.popularity, self.view.users), self.rated

        leaks = self._on(PLAIN, "uploads", lambda: (self.uploads, self.view.masked))
        chain = self._tried(PLAIN, _after_gradients(self.settings.mask), exposed)
        return (*leaks, chain, *self._on(PLAIN, "cohort", named))

    def attack_vectors(self) -> Results:
        """Run every attack on masked vectors, read as if they had no masks."""
        read = recording.vectors_as_updates
        return tuple(self._read_as_updates(STRICT[0], read, self._named_by_masks))

    def attack_sums(self) -> Results:
        """Run every attack on the sums of the first rounds between real parties."""
        found: list[AttackResult] = []
        if counts_raters(self.run.settings):
            found += self._on(STRICT[1], "cohort", self._counted)
        if reads_sums(self.run.settings):
            found += self._read_as_updates(STRICT[1], recording.sums_as_updates, self._counted)
            found += self.attack_weighed()
        return tuple(found)

    def _read_as_updates(
        self, where: str, read: Callable[[Transcript, View], Uploads], members: Callable[[], Seen]
    ) -> list[AttackResult]:
        """Run the attacks on updates on a server's reading of a transcript."""

        def uploads() -> Seen:
            return read(self.transcript, self.view), self.view.masked

        def exposed() -> Seen:
            return self._exposed(read(self.transcript, self.view))

        return [
            *self._on(where, "uploads", uploads),
            *self._on(where, "masked ratings", exposed),
            *self._on(where, "cohort", members),
        ]

    def _named_by_masks(self) -> Seen:
        view = recording.vectors_as_members(self.transcript, self.view, self.popularity)
        return view, self.rated

    def _counted(self) -> Seen:
        view = recording.sums_as_members(self.transcript, self.view, self.popularity)
        return view, self.rated

    def attack_weighed(self) -> list[AttackResult]:
        """Weigh the sum of round 1 against the prior, with a weight chosen on other people."""

        def seen(attack: Attack) -> Seen:
            view = recording.sums_as_they_are(self.transcript, self.view)
            return weighed(self._first, attack, view), self.ratings.values

        attacks = attacks_on("sums", self.settings.mask)
        return [self._tried(STRICT[1], one, partial(seen, one)) for one in attacks]

    @cached_property
    def _first(self) -> FirstRound:
        """Round 1 of everybody."""
        return FirstRound.of(self.run)

    def attack_taking_part(self) -> AttackResult:
        """Compare what a sum says about its users with what it would say without each of them."""
        with_own, without = (self._rank(with_own=own) for own in (True, False))
        return replace(with_own, name="taking part", baseline=without.success)

    def _rank(self, *, with_own: bool) -> AttackResult:
        def summed() -> Seen:
            return self._exposed(recording.twin_sums(self.uploads, with_own=with_own))

        where = "sums with the user" if with_own else "sums without the user"
        return self._tried(where, ATTACKS["ranking"], summed)

    def _on(self, where: str, target: Target, seen: Callable[[], Seen]) -> list[AttackResult]:
        """Run every attack on one kind of view."""
        attacks = attacks_on(target, self.settings.mask)
        return [self._tried(where, attack, seen) for attack in attacks]

    def _tried(self, where: str, attack: Attack, seen: Callable[[], Seen]) -> AttackResult:
        return self.trials.once(attack.name, where, lambda: attack.run(*seen()))

    def _exposed(self, uploads: Uploads) -> Seen:
        """Return the leaked view, with the true ratings of its users."""
        exposed = to_exposed(uploads, self.view)
        rows = self.view.rows_of(np.isin(uploads.users, exposed.users))
        return exposed, self.ratings.values[rows]


def _after_gradients(mask: str) -> Attack:
    """Return the attack that takes the mask off what gradients leaked."""
    inversion = ATTACKS["inversion"]
    unmasking = inversion if inversion.applies_to(mask) else ATTACKS["decode"]
    knows = f"{ATTACKS['gradients'].knows} Also what {unmasking.name} knows besides."
    return replace(unmasking, name=f"gradients, then {unmasking.name}", knows=knows)
