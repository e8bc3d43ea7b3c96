"""Every attack on one run, and what it means for the users who would share in the clear.

The paper's rule lets users share if J <= threshold_j. Beside it stands what parties would decide
that audit themselves (`self_audit`): the difference is whom the rule would have exposed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmmf import federation, rng, simulation
from fedmmf.arrays import Array
from fedmmf.attacks import gradients, membership, strict
from fedmmf.attacks.contract import AttackResult
from fedmmf.attacks.inversion import INVERSION, LINEAR
from fedmmf.attacks.prior import DECODE
from fedmmf.attacks.ranking import ranking
from fedmmf.attacks.self_audit import rating_attacks
from fedmmf.attacks.view import Exposed, View, expose, restrict
from fedmmf.config import Settings
from fedmmf.coordinator import Server
from fedmmf.data import Ratings
from fedmmf.masks.indicator import histogram, privacy_groups
from fedmmf.party import Party
from fedmmf.traffic import Shape

RECOVERED = 0.9  # share of a user's ratings exact that counts as recovered
COHORT = 1000  # real parties at most whose messages are attacked
CLEAR, SUMMED = "in the clear", "in sums"
STRICT = ("masked vectors of strict mode", "sums of strict mode")


@dataclass(frozen=True, eq=False)
class Audit:
    """What the attacks found.

    Attributes:
        settings: of the run.
        j: privacy indicator of every user. (n_users,)
        in_clear: who would share in the clear by the settings' rule. (n_users,) bool
        exposed: success of the best attack on each user's ratings, which a server cannot know to
            be the best; the side of caution. (n_users,)
        results: of the attacks on masked ratings, for all users.
        messages: of the attacks on messages of some real parties, by what they attack.
        shape: what decides the traffic.
    """

    settings: Settings
    j: Array
    in_clear: Array
    exposed: Array
    results: tuple[AttackResult, ...]
    messages: dict[str, tuple[AttackResult, ...]]
    shape: Shape

    def of_group(self, result: AttackResult, group: str) -> AttackResult:
        """A result for the users of one group alone."""
        keep = self.in_clear if group == CLEAR else ~self.in_clear
        return replace(
            result,
            users=result.users[keep],
            success=result.success[keep],
            baseline=result.baseline[keep],
        )

    @property
    def sentences(self) -> list[str]:
        """The verdict in words, one sentence per attack that finds ratings, the worst first."""
        names = {attack.name for attack in rating_attacks(self.settings.mask)}
        found = {
            result.name: int((result.success[self.in_clear] >= RECOVERED).sum())
            for result in self.results
            if result.name in names
        }
        total = int(self.in_clear.sum())
        if total == 0:
            return ["Nobody would share in the clear."]
        return [
            f"{n} of {total} users who would share in the clear are recovered by {name}: "
            f"at least {RECOVERED:.0%} of their ratings exact."
            for name, n in sorted(found.items(), key=lambda pair: -pair[1])
        ]

    @property
    def verdicts(self) -> dict[str, str]:
        """What it comes to for either group."""
        n, found = int(self.in_clear.sum()), int((self.exposed[self.in_clear] >= RECOVERED).sum())
        clear = (
            f"Some attack finds at least {RECOVERED:.0%} of the ratings of {found} of {n} users."
            if n
            else "Nobody would share in the clear."
        )
        seen = [result for name in STRICT for result in self.messages[name]]
        better = sorted({r.name for r in seen if r.interval[0] > r.baseline_mean})
        summed = (
            f"Hidden in a crowd, but sums over this one help {', '.join(better)}: it is small."
            if better
            else "Hidden: to within its 95 % interval, no attack on masked vectors or sums does "
            "better than public knowledge."
        )
        return {CLEAR: clear, SUMMED: summed}

    @property
    def tradeoff(self) -> list[dict[str, Any]]:
        """For each threshold_j: who would share in the clear, bytes, and whom attacks recover."""
        points = self.shape.tradeoff(self.j)
        for point in points:
            is_lost = (self.j <= point["threshold_j"]) & (self.exposed >= RECOVERED)
            point["recovered_share"] = float(is_lost.mean())
        return points

    @property
    def grouping(self) -> dict[str, int]:
        """How many users each rule would let share in the clear, and whom J would have exposed."""
        by_indicator = self.j <= self.settings.threshold_j
        by_audit = self.exposed < self.settings.audit_limit
        return {
            "by_indicator": int(by_indicator.sum()),
            "by_audit": int(by_audit.sum()),
            "exposed_by_indicator": int((by_indicator & ~by_audit).sum()),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON can hold it."""
        return {
            "settings": self.settings.model_dump(),
            "recovered_share": RECOVERED,
            "audit_limit": self.settings.audit_limit,
            "grouping": self.grouping,
            "sentences": self.sentences,
            "verdicts": self.verdicts,
            "privacy": privacy_groups(self.j, self.settings.threshold_j),
            "j": histogram(self.j),
            "tradeoff": self.tradeoff,
            "groups": {
                group: [self.of_group(result, group).to_dict() for result in self.results]
                for group in (CLEAR, SUMMED)
            },
            "messages": {
                name: [result.to_dict() for result in results]
                for name, results in self.messages.items()
            },
        }


def audit(
    ratings: Ratings,
    settings: Settings,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Audit:
    """Fit the masks as the run would, and attack; `progress` is told (done, of).

    Masked ratings of all users are attacked; those of users who share in the clear are what a
    server would hold. Under strict sharing these are the users whom `grouping` would let share.
    Messages are attacked on `COHORT` real parties, with the solver `sgd`.
    """
    training = ratings.select(~simulation.choose_held_out(ratings, settings))
    features = simulation.feature_matrix(training, settings)
    masks = simulation.fit_all_masks(training, features, settings)
    view, truth = expose(training, settings, masks), training.values
    on_ratings = rating_attacks(settings.mask)
    results = []
    for attack in (*on_ratings, ranking()):
        results.append(attack.run(view, truth, settings.seed))
        progress(len(results), len(on_ratings) + 2)
    exposed = np.max([result.success for result in results[: len(on_ratings)]], axis=0)
    messages = attack_messages(training, settings, view)
    progress(len(results) + 1, len(on_ratings) + 2)
    in_clear = _would_share(settings, masks.j_train, exposed)
    public = simulation.make_server(training, settings).result
    per_user = len(training) / training.n_users
    shape = Shape(settings, public, training.n_users, per_user, training.scale.span)
    return Audit(settings, masks.j_train, in_clear, exposed, tuple(results), messages, shape)


def _would_share(settings: Settings, j: Array, exposed: Array) -> Array:
    """Who would share in the clear by the settings' rule. (n_users,) bool."""
    if settings.sharing == "plain":
        return np.ones(len(j), bool)
    if settings.grouping == "audit":
        return np.asarray(exposed < settings.audit_limit)
    return np.asarray(j <= settings.threshold_j)


def attack_messages(
    ratings: Ratings, settings: Settings, view: Exposed
) -> dict[str, tuple[AttackResult, ...]]:
    """Attack what a cohort of real parties sends: in the clear, and in strict mode."""
    users = np.sort(rng.stream(settings.seed, "cohort").permutation(ratings.n_users)[:COHORT])
    cohort = _Cohort.of(ratings, settings, view, users)
    seen = cohort.record_strict()
    vectors = strict.vectors_as_updates(seen, cohort.known)
    named = strict.vectors_as_members(seen, cohort.known, cohort.popularity)
    sums = strict.sums_as_updates(seen, cohort.known)
    counted = strict.sums_as_members(seen, cohort.known, cohort.popularity)
    return {
        "plain updates": cohort.attack_plain(),
        STRICT[0]: cohort.attack_strict(vectors, named),
        STRICT[1]: cohort.attack_strict(sums, counted),
        "sums with and without the user": cohort.attack_taking_part(),
    }


@dataclass(frozen=True, eq=False)
class _Cohort:
    """Some users as real parties, with what is public about the others."""

    ratings: Ratings
    settings: Settings
    features: Array  # (n_items, d)
    known: View
    masked: Array  # (n,)
    popularity: Array  # (n_users, n_items) share of all other users who rated an item
    rated: Array  # (n_users, n_items) bool

    @classmethod
    def of(cls, ratings: Ratings, settings: Settings, view: Exposed, users: Array) -> "_Cohort":
        is_member = np.isin(np.arange(ratings.n_users), users)
        mine = view.only(is_member)
        inside = restrict(ratings, users)
        rated = membership.item_matrix(inside, np.arange(len(users)))
        counts = np.bincount(ratings.item_codes, minlength=ratings.n_items)
        return cls(
            ratings=inside,
            settings=settings.changed(
                solver="sgd", aggregation="secure", collect_masked=False, held_out=0.0
            ),
            features=view.features,
            known=mine,
            masked=mine.masked,
            popularity=(counts - rated) / max(ratings.n_users - 1, 1),
            rated=rated,
        )

    def attack_plain(self) -> tuple[AttackResult, ...]:
        """Gradients leak, the mask comes off, and items are named."""
        uploads = self.record_plain()
        named = membership.from_updates(self.rated, self.popularity, self.known.users)
        exposed, truth = self._exposed(uploads)
        unmasking = INVERSION if self.settings.mask in LINEAR else DECODE
        knows = f"{gradients.GRADIENTS.knows} Also what {unmasking.name} knows besides."
        chain = replace(unmasking, name=f"gradients, then {unmasking.name}", knows=knows)
        return (
            gradients.GRADIENTS.run(uploads, self.masked),
            chain.run(exposed, truth),
            membership.MEMBERSHIP.run(named, self.rated),
        )

    def attack_taking_part(self) -> tuple[AttackResult, ...]:
        """What a sum says about its users beside what it would say without each of them."""
        uploads = self.record_plain()
        with_own, without = (self._rank(uploads, with_own=own) for own in (True, False))
        return (replace(with_own, name="taking part", baseline=without.success),)

    def _rank(self, uploads: gradients.Uploads, *, with_own: bool) -> AttackResult:
        summed = strict.twin_sums(uploads, with_own=with_own)
        exposed, truth = self._exposed(summed)
        return ranking().run(exposed, truth)

    def record_plain(self) -> gradients.Uploads:
        """Two rounds in the clear."""
        parties, server = self._start("plain")
        seen = gradients.record(parties, server, self.ratings.scale, self.known.prior)
        return replace(seen, users=self.known.users)

    def record_strict(self) -> strict.Transcript:
        """Two rounds of strict mode."""
        parties, server = self._start("strict")
        settings = self.settings.changed(sharing="strict")
        return strict.record_strict(parties, server, settings, self.ratings.scale.span)

    def attack_strict(
        self, uploads: gradients.Uploads, members: membership.CohortView
    ) -> tuple[AttackResult, ...]:
        """Every attack on what a server makes of a transcript."""
        exposed, truth = self._exposed(uploads)
        attacks = (*rating_attacks(self.settings.mask), ranking())
        return (
            gradients.GRADIENTS.run(uploads, self.masked),
            *(attack.run(exposed, truth) for attack in attacks),
            membership.MEMBERSHIP.run(members, self.rated),
        )

    def _exposed(self, uploads: gradients.Uploads) -> tuple[Exposed, Array]:
        """What leaks, with the true ratings of the users it leaks from."""
        exposed = gradients.to_exposed(uploads, self.features, self.settings)
        rows = self.known.rows_of(np.isin(uploads.users, exposed.users))
        return exposed, self.ratings.values[rows]

    def _start(self, sharing: str) -> tuple[dict[str, Party], Server]:
        settings = self.settings.changed(sharing=sharing)
        parties = federation.make_parties(self.ratings, settings, features=self.features)
        return parties, simulation.make_server(self.ratings, settings)
