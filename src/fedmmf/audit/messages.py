"""Attacks on what parties send: in the clear, and with secure aggregation.

Messages in the clear and masked vectors are those of real parties with the solver `sgd`: an update
of `vb` never leaves in the clear, and masked vectors are noise with any solver. Sums are those of
the run's solver.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.attacks import ATTACKS, Attack, AttackResult, Target, attacks_on
from fedmmf.attacks.contract import Attacked
from fedmmf.attacks.gradients import Uploads, to_exposed
from fedmmf.attacks.membership import CohortView, from_updates, item_matrix
from fedmmf.attacks.view import Exposed
from fedmmf.audit import recording
from fedmmf.audit.cohorts import FirstRound, weighed
from fedmmf.audit.exposure import restrict
from fedmmf.audit.recording import ROUNDS, Tell, Transcript, record_plain, record_strict
from fedmmf.audit.vb_rounds import MAX_ROUNDS, VbCohort
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


def attack_messages(run: Prepared, view: Exposed, tell: Tell) -> dict[str, Results]:
    """Attack what a cohort of real parties sends; return results by target."""
    clear = AttackedCohort.of(run, view, tell, sharing="plain", signed=False, batch=1)
    strict = AttackedCohort.of(run, view, tell, sharing="strict")
    uploads, seen = clear.uploads, strict.transcript
    vectors = recording.vectors_as_updates(seen, strict.view)
    named = recording.vectors_as_members(seen, strict.view, strict.popularity)
    on_sums = strict.attack_vb_sums if has_vb_sums(run.settings) else strict.attack_sums
    return {
        PLAIN: clear.attack_plain(uploads),
        STRICT[0]: strict.attack_strict(vectors, named),
        STRICT[1]: on_sums(run),
        TAKING_PART: (clear.attack_taking_part(uploads),),
    }


def n_steps(settings: Settings, n_users: int) -> int:
    """Number of steps that `attack_messages` reports."""

    def n_on(*targets: Target) -> int:
        return sum(len(attacks_on(target, settings.mask)) for target in targets)

    uploads, masked, cohort = n_on("uploads"), n_on("masked ratings"), n_on("cohort")
    recorded = 2 * (2 + ROUNDS)  # parties made, sums prepared, rounds
    on_sums = uploads + masked + cohort + n_on("sums")
    if has_vb_sums(settings):
        on_sums = cohort + n_on(*vb_targets(settings, n_users))
    return recorded + (uploads + 1 + cohort) + (uploads + masked + cohort) + on_sums + 2


def has_vb_sums(settings: Settings) -> bool:
    """Whether the solver's sums are those of posteriors, which have attacks of their own."""
    target: Target = "vb sums"
    return bool(settings.chosen_solver.sums_as == target)


def vb_targets(settings: Settings, n_users: int) -> tuple[Target, ...]:
    """Return the targets: ratings where they are learned, lists where some users did not join."""
    on_ratings: tuple[Target, ...] = ("vb sums",) if settings.objective == "rating" else ()
    return (*on_ratings, "lists") if n_users > COHORT else on_ratings


@dataclass(frozen=True, eq=False)
class AttackedCohort:
    """Some users as real parties, with public knowledge about the others."""

    ratings: Ratings
    settings: Settings
    view: Exposed  # what would leak of these users
    rated: Array  # (n_users, n_items) bool
    popularity: Array  # (n_users, n_items) share of all other users who rated an item
    statistics: Array  # of items, that masks see beside their content (n_items, d)
    tell: Tell

    @classmethod
    def of(cls, run: Prepared, view: Exposed, tell: Tell, **sharing: Any) -> "AttackedCohort":
        """Draw at most `COHORT` users of a run, who share as the settings say."""
        ratings, seed = run.training, run.settings.seed
        users = np.sort(rng.stream(seed, "cohort").permutation(ratings.n_users)[:COHORT])
        mine = view.only(np.isin(np.arange(ratings.n_users), users))
        rated = item_matrix(mine.lists, ratings.n_items)
        counts = run.lists.counts(ratings.n_items)
        settings = run.settings.changed(
            solver="sgd",
            objective="rating",
            aggregation="secure",
            collect_masked=False,
            held_out=0.0,
            **sharing,
        )
        some = restrict(ratings, users)
        common = census_of(some, run.features.content, settings).population  # theirs
        masked = fit_all_masks(some, run.features.seen, settings, common).masked_ratings
        return cls(
            ratings=some,
            settings=settings,
            view=replace(mine, population=common, masked=masked),
            rated=rated,
            popularity=(counts - rated) / max(ratings.n_users - 1, 1),
            statistics=run.features.statistics,
            tell=tell,
        )

    @cached_property
    def uploads(self) -> Uploads:
        """Record two rounds in the clear."""
        plan, parties = self._start()
        return record_plain(plan, parties, self.view, self.tell)

    @cached_property
    def transcript(self) -> Transcript:
        """Record two rounds of secure aggregation."""
        plan, parties = self._start()
        return record_strict(plan, parties, self.view, self.tell)

    def _start(self) -> tuple[ServerPlan, dict[str, Party]]:
        self.tell("real parties are made")
        parties = make_parties(self.ratings, self.settings, statistics=self.statistics)
        for party in parties.values():  # an audit shows what such sums say
            party.policy = replace(party.policy, takes_thin_sums=True)
        return server_plan(self.ratings, self.settings), parties

    def attack_plain(self, uploads: Uploads) -> Results:
        """Run the attacks on plain updates: leaked gradients, removed masks, named items."""
        leaks = self._on_uploads(uploads)
        exposed, truth = self._exposed(uploads)
        named = from_updates(self.rated, self.popularity, self.view.users)
        chain = self._tried(_after_gradients(self.settings.mask), exposed, truth)
        return (*leaks, chain, *self._on_cohort(named))

    def attack_strict(self, uploads: Uploads, members: CohortView) -> Results:
        """Run every attack on a server's readings of a transcript."""
        leaks = self._on_uploads(uploads)
        exposed, truth = self._exposed(uploads)
        attacks = attacks_on("masked ratings", self.settings.mask)
        found = [self._tried(attack, exposed, truth) for attack in attacks]
        return (*leaks, *found, *self._on_cohort(members))

    def attack_sums(self, run: Prepared) -> Results:
        """Run every attack on sums of `sgd`: two rounds read as updates, and one weighed."""
        summed = recording.sums_as_updates(self.transcript, self.view)
        return (*self.attack_strict(summed, self._counted), *self.attack_weighed(run))

    def attack_vb_sums(self, run: Prepared) -> Results:
        """Run every attack on sums of `vb`, over the first rounds, one a membership round."""
        made = VbCohort(run, self.view.users, objective=run.settings.objective)
        found = list(self._on_cohort(self._counted))
        for target in vb_targets(run.settings, run.training.n_users):
            for attack in attacks_on(target, self.settings.mask):
                self.tell(f"attack {attack.name} on messages")
                found.append(made.attacked_by(attack, MAX_ROUNDS))
        return tuple(found)

    @property
    def _counted(self) -> CohortView:
        return recording.sums_as_members(self.transcript, self.view, self.popularity)

    def attack_weighed(self, run: Prepared) -> Results:
        """Weigh the sum of round 1 against the prior, with a weight chosen on other people."""
        first = FirstRound.of(run)
        seen = recording.sums_as_they_are(self.transcript, self.view)
        attacks = attacks_on("sums", self.settings.mask)
        views = [weighed(first, attack, seen) for attack in attacks]
        pairs = zip(attacks, views, strict=True)
        return tuple(self._tried(attack, view, self.ratings.values) for attack, view in pairs)

    def attack_taking_part(self, uploads: Uploads) -> AttackResult:
        """Compare what a sum says about its users with what it would say without each of them."""
        with_own, without = (self._rank(uploads, with_own=own) for own in (True, False))
        return replace(with_own, name="taking part", baseline=without.success)

    def _rank(self, uploads: Uploads, *, with_own: bool) -> AttackResult:
        summed = recording.twin_sums(uploads, with_own=with_own)
        return self._tried(ATTACKS["ranking"], *self._exposed(summed))

    def _on_uploads(self, uploads: Uploads) -> Results:
        attacks = attacks_on("uploads", self.settings.mask)
        return tuple(self._tried(attack, uploads, self.view.masked) for attack in attacks)

    def _on_cohort(self, members: CohortView) -> Results:
        attacks = attacks_on("cohort", self.settings.mask)
        return tuple(self._tried(attack, members, self.rated) for attack in attacks)

    def _tried(self, attack: Attack, view: Attacked, truth: Array) -> AttackResult:
        self.tell(f"attack {attack.name} on messages")
        return attack.run(view, truth)

    def _exposed(self, uploads: Uploads) -> tuple[Exposed, Array]:
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
