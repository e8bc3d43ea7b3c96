"""Attacks on the sums of all planned rounds, and the control that shows their power.

A test that finds nothing says something only if it finds what is there. So the same attacks are
tried on the sums of a few people of the same data, without noise, where there is much to find.
Attacks on noisy sums are tried with a hundredth of the noise instead.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import Attack, AttackResult, Target, attacks_on
from fedmmf.audit.cohorts import FirstRound, without_budget
from fedmmf.audit.following import planned_presence, planned_rounds
from fedmmf.audit.noisy_rounds import NoisyRounds
from fedmmf.audit.sgd_rounds import SgdCohort
from fedmmf.audit.trials import Trials
from fedmmf.audit.vb_rounds import VbCohort
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared

POWER = "sums over few people, or with hardly any noise: a control of power"
FEWER = "sums of a quarter of the rounds"
NOISY: tuple[Target, ...] = ("noisy sums", "noisy lists")
HARDLY_ANY = 0.01  # of the noise, in the control of power of attacks on noisy sums
FEW = 50  # people of the control of power, where there are twice as many
Results = tuple[AttackResult, ...]


def has_vb_sums(settings: Settings) -> bool:
    """Whether the solver's sums are those of posteriors, which have attacks of their own."""
    target: Target = "vb sums"
    return bool(settings.chosen_solver.sums_as == target)


def counts_raters(settings: Settings) -> bool:
    """Whether sums of posteriors come with how many rated each item; under noise nobody knows."""
    return has_vb_sums(settings) and not settings.scheme.has_budget


def fewer_rounds(settings: Settings) -> int:
    """Return a quarter of the planned rounds, which the same attacks are tried on."""
    return max(planned_rounds(settings) // 4, 2)


def reads_sums(settings: Settings) -> bool:
    """Whether sums come without noise, so that they are read as updates, and weighed."""
    return not has_vb_sums(settings) and not settings.scheme.has_budget


def round_targets(settings: Settings, *, has_others: bool) -> tuple[Target, ...]:
    """Return the kinds of views that the sums of many rounds give.

    Args:
        settings: of the run.
        has_others: whether some users are not in the cohort, so that lists can be compared.
    """
    if settings.scheme.has_budget:  # nobody counts raters, which other attacks begin with
        return NOISY if has_vb_sums(settings) else ("rounds", *NOISY)
    if not has_vb_sums(settings):
        return "rounds", "unnamed rounds"
    if settings.objective == "ranking":
        return ("lists",)
    return ("vb sums", "lists") if has_others else ("vb sums",)


def power_targets(settings: Settings) -> tuple[Target, ...]:
    """Return the kinds of views of the control of power."""
    first: tuple[Target, ...] = () if has_vb_sums(settings) else ("sums",)
    return (*first, *round_targets(settings, has_others=False))


def _without_noise(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    return tuple(target for target in targets if target not in NOISY)


def fewer_targets(settings: Settings) -> tuple[Target, ...]:
    """Return the kinds of views that are attacked with fewer rounds too."""
    return () if has_vb_sums(settings) else ("rounds",)


@dataclass(frozen=True, eq=False)
class AttackedRounds:
    """The sums of all planned rounds over some users."""

    run: Prepared  # of everybody
    users: Array  # codes of the cohort, increasing. (n_users,)
    trials: Trials
    noise_share: float = 1.0  # of the noise of noisy sums

    def attack(self, where: str) -> Results:
        """Run every attack on the sums of all planned rounds."""
        settings, n_everybody = self.run.settings, self.run.training.n_users
        targets = round_targets(settings, has_others=len(self.users) < n_everybody)
        return self._on(where, targets, planned_rounds(settings))

    def attack_fewer(self) -> Results:
        """Run the attacks that find ratings on a quarter of the rounds of `sgd`."""
        settings = self.run.settings
        return self._on(FEWER, fewer_targets(settings), fewer_rounds(settings))

    def attack_few(self) -> Results:
        """Run the same attacks on few people, without noise or batches: they have to find much."""
        settings = self.run.settings
        shared = settings.changed(
            sharing="strict",
            aggregation="secure",
            batch=1,
            collect_masked=False,
            **without_budget(settings),
        )
        few = replace(self, run=replace(self.run, settings=shared), users=self._few)
        n, targets = planned_rounds(shared), power_targets(settings)
        return (*few._on(POWER, _without_noise(targets), n), *self._with_hardly_any_noise(targets))

    def _with_hardly_any_noise(self, targets: tuple[Target, ...]) -> Results:
        """Run the attacks on noisy sums with a hundredth of the noise."""
        control = replace(self, noise_share=HARDLY_ANY)
        targets = tuple(target for target in targets if target in NOISY)
        return control._on(POWER, targets, planned_rounds(self.run.settings))

    @property
    def _few(self) -> Array:
        """Some users of the cohort; none of them is chosen for what is found. (n_few,)."""
        size = max(min(FEW, len(self.users) // 2), self.run.settings.smallest_cohort)
        return self.users[:: max(len(self.users) // size, 1)][:size]

    def _on(self, where: str, targets: tuple[Target, ...], n_rounds: int) -> Results:
        mask = self.run.settings.mask
        attacks = [attack for target in targets for attack in attacks_on(target, mask)]
        return tuple(
            self.trials.once(attack.name, where, partial(self._attacked, attack, n_rounds))
            for attack in attacks
        )

    def _attacked(self, attack: Attack, n_rounds: int) -> AttackResult:
        if attack.target in NOISY:
            return self._noisy.attacked_by(attack)
        if attack.target == "sums":
            return attack.run(*self._first.summed(self.users))
        if has_vb_sums(self.run.settings):
            return self._vb.attacked_by(attack, n_rounds)
        return self._sgd.attacked_by(attack, n_rounds)

    @cached_property
    def _first(self) -> FirstRound:
        return FirstRound.of(self.run)

    @cached_property
    def _noisy(self) -> NoisyRounds:
        return NoisyRounds(self.run, self.users, self.noise_share)

    @cached_property
    def _sgd(self) -> SgdCohort:
        return SgdCohort(self.run, self.users)

    @cached_property
    def _vb(self) -> VbCohort:
        settings, users = self.run.settings, self.users
        is_ranking = settings.objective == "ranking"
        if is_ranking and len(users) == self.run.training.n_users:  # there is nobody to compare
            users = users[np.arange(len(users)) % 4 != 0]  # three of four take part
        present = planned_presence(settings, len(users))
        return VbCohort(self.run, users, objective=settings.objective, present=present)
