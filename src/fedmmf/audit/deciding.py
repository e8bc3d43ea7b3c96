"""From findings to a verdict for people who decide: light, sentence, what to change, what is open.

The rule is in `RULE`, and in every verdict. It is on the side of caution: no attack that found
nothing makes a light green unless attacks of its kind have found something on the control of power.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.attacks import ATTACKS, Attack, AttackResult
from fedmmf.attacks.noisy_sums import LIMITS
from fedmmf.audit.following import MAX_ROUNDS, planned_rounds
from fedmmf.audit.messages import STRICT
from fedmmf.audit.rounds import FEWER, POWER, fewer_rounds, has_vb_sums
from fedmmf.audit.verdicts import RECOVERED, AuditFindings, joint_interval
from fedmmf.reports.verdict import Light, Verdict
from fedmmf.settings import Settings

RED_GAIN = 0.05  # more than public knowledge: one rating in twenty
GREEN_GAIN = 0.02  # all intervals have to end below
GREEN_EPSILON = 1.0  # the largest that is called a strong promise
RULE = (
    "Red: an attack finds clearly more about people than the public knows, by 5 in 100 or more, or "
    "reads people whose own numbers leave, or finds a planted user better than epsilon allows. "
    "Green: attacks that have shown their power on sums over few people, or with a hundredth of "
    "the noise, find less than 2 in 100 here, over all planned rounds; where noise protects, "
    "epsilon is at most 1 as well. Amber: everything else."
)
# Settings that noise forbids, or that it has other defaults for.
_NOT_NOISY = {"sharing", "aggregation", "dp_epsilon", "solver", "factors", "rounds", "step"}
_NOT_NOISY |= {"collect_masked", "item_statistics", "mask_fit", "likelihood", "held_out"}
SMALL_BATCH = 20  # from so many people in a batch on, no larger batch is proposed


def offered_epsilon(settings: Settings) -> float:
    """Epsilon that a verdict proposes: the usual one, or where there is noise, a strong one."""
    usual = type(settings).model_fields["dp_epsilon"].default
    return GREEN_EPSILON if settings.scheme.has_budget else float(usual)


def with_noise(settings: Settings, epsilon: float) -> Settings:
    """Return what `train` would run with differential privacy, and none of what that forbids."""
    kept = {name: value for name, value in settings.named().items() if name not in _NOT_NOISY}
    return type(settings)(**kept, aggregation="dp", dp_epsilon=epsilon)


@dataclass(frozen=True)
class NoiseCost:
    """Accuracy with differential privacy, beside that of the audited settings, on the same test."""

    epsilon: float
    rmse: float  # with noise
    rmse_now: float  # of the audited settings


@dataclass(frozen=True, eq=False)
class Decision:
    """One audit, on the way to its verdict."""

    found: AuditFindings
    n_users: int  # of the data
    cost: NoiseCost | None = None  # of noise; None: not measured

    @property
    def settings(self) -> Settings:
        """Settings of the audited run."""
        return self.found.settings

    def verdict(self) -> Verdict:
        """Decide, and say why."""
        return Verdict(
            light=self.light,
            sentence=self.sentence,
            rule=f"{RULE} {self._why}",
            changes=tuple(self._changes()),
            not_tested=tuple(self._not_tested()),
        )

    # What was found

    @cached_property
    def _tried(self) -> list[AttackResult]:
        """Attacks on sums that were tried on anybody; none where nothing is hidden in sums."""
        if self._in_clear == "everybody":
            return []
        tried = self.found.messages.get(STRICT[1], ())
        return [one for one in tried if np.isfinite(one.success).any()]

    @cached_property
    def _gains(self) -> list[AttackResult]:
        """Attacks on sums that clearly gain, those on ratings first, the largest gain first."""
        sure = [one for one in self._tried if joint_interval(one, len(self._tried))[0] > 0]
        return sorted(sure, key=lambda one: (_kind(one) != "ratings", -one.advantage))

    @property
    def _largest(self) -> float:
        """Largest sure gain from sums."""
        return max((one.advantage for one in self._gains), default=0.0)

    @property
    def _has_power(self) -> bool:
        """Whether attacks of these kinds found something on the control of power."""
        tried = self.found.messages.get(POWER, ())
        sure = [one for one in tried if joint_interval(one, len(tried))[0] > 0]
        return any(one.advantage >= RED_GAIN for one in sure)

    @property
    def _in_clear(self) -> str:
        return str(self.settings.scheme.in_clear)

    @property
    def _n_clear(self) -> int:
        """Number of attacked people whose own numbers leave in the clear."""
        return 0 if self.settings.is_strict else int(self.found.in_clear.sum())

    @property
    def epsilon(self) -> float | None:
        """Epsilon of the whole training; None: there is no guarantee."""
        return self.settings.dp_epsilon if self.settings.scheme.has_budget else None

    # The light

    @property
    def light(self) -> Light:
        """The light, by `RULE`."""
        if self._largest >= RED_GAIN or self._reads_clear or self._is_contradicted:
            return "red"
        return "green" if not self._doubts else "amber"

    @property
    def _reads_clear(self) -> bool:
        """Whether attacks read at least one in twenty of those in the clear."""
        return self._n_clear > 0 and self.found.n_recovered() >= 0.05 * self._n_clear

    @property
    def _is_contradicted(self) -> bool:
        """Whether a planted user was found better than epsilon allows."""
        return self.found.bounds is not None and self.found.bounds.is_contradicted

    @cached_property
    def _doubts(self) -> list[str]:
        """Reasons against a green light."""
        ends = [joint_interval(one, len(self._tried))[1] for one in self._tried]
        on_ratings = any(_kind(one) == "ratings" for one in self._tried)
        found = {
            "people's own numbers leave in the clear": self._n_clear > 0,
            "no attack on ratings in sums could be tried": not on_ratings,
            f"up to {_in_100(max(ends, default=1.0))} more cannot be excluded": max(
                ends, default=0.0
            )
            >= GREEN_GAIN,
            "the attacks did not find anything on the control of power either": not self._has_power,
            f"only {MAX_ROUNDS} of the planned rounds were followed": self._is_cut,
            f"epsilon {self.epsilon or 0:g} is above {GREEN_EPSILON:g}": (self.epsilon or 0)
            > GREEN_EPSILON,
        }
        return [reason for reason, holds in found.items() if holds]

    @property
    def _is_cut(self) -> bool:
        return self.settings.max_rounds > MAX_ROUNDS

    @property
    def _why(self) -> str:
        """What decided here."""
        if self._reads_clear:
            n, total = self.found.n_recovered(), self._n_clear
            share = f"{RECOVERED:.0%} of their ratings or more".replace("%", " %")
            return f"Here: {n:,} of {total:,} people in the clear lose {share}."
        if self._is_contradicted and self.found.bounds is not None:
            return f"Here: {self.found.bounds.sentence}"
        if self._largest >= GREEN_GAIN:
            most = max(self._gains, key=lambda one: one.advantage)
            low, high = joint_interval(most, len(self._tried))
            return f"Here: {_in_100(most.advantage)} more ({100 * low:.1f} to {100 * high:.1f})."
        if self._doubts:
            return f"Here: {'; '.join(self._doubts)}."
        return "Here: nothing was found by attacks that have shown their power."

    # The sentence

    @property
    def sentence(self) -> str:
        """What a server could learn about a person, in one sentence."""
        if self._n_clear:
            return self._sentence_in_clear()
        if self.epsilon is not None:
            return self._sentence_of_noise(self.epsilon)
        return self._sentence_of_sums("A server that follows the protocol")

    def _sentence_in_clear(self) -> str:
        n, total = self._n_clear, len(self.found.exposed)
        read = self.found.n_recovered()
        who = "Everybody" if n == total else f"{n:,} of {total:,} people"
        said = f"{who} would send their own numbers to the server, which could work out "
        said += f"nearly every rating of {'all' if read == n else f'{read:,}'} of them"
        if not self._tried or n == total:
            return f"{said}."
        return f"{said}; of the others, {self._learned() or 'we found next to nothing'}."

    def _sentence_of_noise(self, epsilon: float) -> str:
        found, case = self._learned(), round(1 / self.settings.dp_delta)
        found = f"our attacks still found: {found}" if found else "our attacks found nothing"
        if self._is_contradicted and self.found.bounds is not None:
            return f"Noise does not hide people as it should. {self.found.bounds.sentence}"
        return (
            "Noise hides each person: whatever anybody concludes from what leaves, one person's "
            f"part changes the odds at most {_odds(epsilon)}-fold (epsilon {epsilon:g}), but for "
            f"about one case in {case:,}; {found}."
        )

    def _sentence_of_sums(self, who: str) -> str:
        learned = self._learned()
        if learned:
            return f"{who} could learn about a person from sums over many: {learned}."
        if not self._doubts:
            return (
                f"{who} could learn next to nothing about a person from sums over many: attacks "
                "that work on sums over few people found less than 2 in 100 here."
            )
        return (
            f"We do not know what {who[0].lower()}{who[1:]} could learn about a person from sums "
            "over many: our attacks found nothing sure, and that proves little here."
        )

    def _learned(self) -> str:
        """What attacks on sums surely found, in words; empty: nothing."""
        if not self._gains or self._largest < GREEN_GAIN:
            return ""
        first = next(one for one in self._gains if one.advantage >= GREEN_GAIN)
        found, public = _in_100(first.mean), _in_100(first.baseline_mean)
        return _SAID[_kind(first)].format(found=found, public=public)

    # What to change

    def _changes(self) -> Iterator[str]:
        if self.light == "green":
            yield "Nothing. Audit again when people, items or rounds change."
            return
        if self._n_clear:
            yield "--sharing strict: nobody's own numbers leave, only sums over many people."
        yield self._with_noise()
        if self._in_clear == "everybody":
            return
        yield from self._larger_cohorts()
        if self.epsilon is None:  # fewer rounds of the same budget have less noise each
            yield from self._fewer_rounds()
        if self.epsilon is not None or not self.settings.scheme.is_secagg(self.settings):
            return
        if self.settings.batch < SMALL_BATCH:
            yield (
                f"Batches: --batch {SMALL_BATCH} lets people come and go together, so that no two "
                "sums differ by one person. Audit again with it."
            )

    def _with_noise(self) -> str:
        wanted = offered_epsilon(self.settings)
        if self.settings.objective == "ranking":
            return (
                "Noise: --objective rating --aggregation dp; lists under noise are not there yet."
            )
        if self.epsilon is not None and self.epsilon <= wanted:
            return "Epsilon is strong already; a smaller --dp-epsilon is what is left."
        flags, bound = f"--dp-epsilon {wanted:g}", f"More noise: at most {_odds(wanted)}-fold with "
        if self.epsilon is None:
            flags = f"--aggregation dp {flags}"
            bound = "Noise bounds what any attack can find, with "
        if self.cost is None:
            return f"{bound}{flags}; fedmmf train with the same flags tells the accuracy."
        now, then = self.cost.rmse_now, self.cost.rmse
        return f"{bound}{flags}. On a fifth of these ratings, RMSE {then:.4f}; now {now:.4f}."

    def _larger_cohorts(self) -> Iterator[str]:
        few = {one.name: one for one in self.found.messages.get(POWER, ())}
        here = next((one for one in self._tried if one.name in few and self._is_rating(one)), None)
        if here is None or self.epsilon is not None:  # there noise hides people, not the crowd
            return
        then = few[here.name]
        n_few, n_here = (int(np.isfinite(one.success).sum()) for one in (then, here))
        if then.advantage <= here.advantage or n_few >= n_here:
            return
        yield (
            f"More people in each sum: over {n_few:,} people the same attack finds "
            f"{_in_100(then.mean)}, over these {n_here:,} people {_in_100(here.mean)}."
        )

    def _is_rating(self, one: AttackResult) -> bool:
        return _kind(one) == "ratings" and one.name in {gain.name for gain in self._gains}

    def _fewer_rounds(self) -> Iterator[str]:
        n_rounds, n_fewer = planned_rounds(self.settings), fewer_rounds(self.settings)
        all_of_them = {one.name: one for one in self._gains}
        for fewer in self.found.messages.get(FEWER, ()):
            here = all_of_them.get(fewer.name)
            is_less = here is not None and fewer.advantage < here.advantage
            if here is not None and is_less and n_fewer < n_rounds:
                yield (
                    f"Fewer rounds: with --rounds {n_fewer} instead of {n_rounds} the same "
                    f"attack finds {_in_100(fewer.mean)}, not {_in_100(here.mean)}."
                )

    # What is open

    def _not_tested(self) -> Iterator[str]:
        yield "A server that breaks the protocol, alone or with some of the people who take part."
        yield "What the finished model and its lists tell about the people who trained it."
        yield "Attacks that nobody has thought of yet: what was not found is not proved safe."
        if self._is_cut:
            more = self.settings.max_rounds - MAX_ROUNDS
            yield f"The last {more:,} of {self.settings.max_rounds:,} planned rounds."
        if self.settings.objective == "ranking" and self.epsilon is None:
            yield "How people rated items, from the sums of a model of lists."
        if self.settings.ensemble > 1:
            yield f"All but the first of the {self.settings.ensemble} runs that are averaged."
        if self.epsilon is not None:
            yield LIMITS
            yield (
                "Servers that choose their broadcasts to find somebody: the planted user was "
                "looked for with those of one honest run. Epsilon covers them."
            )
        elif has_vb_sums(self.settings) and self.settings.objective == "rating":
            yield "Ratings from rounds after the first 8, membership rounds apart."
        n_drawn = len(self.found.exposed)
        if n_drawn < self.n_users:
            yield (
                f"{self.n_users - n_drawn:,} of {self.n_users:,} people: {n_drawn:,} were drawn. A "
                f"share found among these is within {98 / math.sqrt(n_drawn):.1f} in 100 of "
                "everybody's (95 %); sums were over those drawn, and larger sums tell less."
            )


_SAID = {
    "ratings": "knowing which items the person rated, as a shop does, it gets {found} of the "
    "person's ratings right, where public knowledge gets {public}",
    "order": "knowing which items the person rated, as a shop does, it gets {found} of the "
    "person's favourites right, where public knowledge gets {public}",
    "masked ratings": "it gets {found} of the person's masked ratings right, where a guess gets "
    "{public}",
    "items": "shown an item that the person rated and one that the person did not, it names the "
    "right one in {found} cases, where public knowledge does in {public}",
    "lists": "shown what a person rated, it tells somebody who took part from somebody who did not "
    "in {found} cases, where counts that are public do in {public}",
}


def _kind(result: AttackResult) -> str:
    """What an attack finds; one of the keys of `_SAID`, or masked ratings."""
    known: dict[str, Attack] = {ATTACKS[name].name: ATTACKS[name] for name in ATTACKS.names()}
    attack = known.get(result.name)
    if attack is None:
        return "ratings"
    return "lists" if attack.target == "lists" else str(attack.finds)


def _odds(epsilon: float) -> str:
    """The factor that epsilon allows, as people read it."""
    factor = math.exp(min(epsilon, 100))
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.2f}"


def _in_100(share: float) -> str:
    """A share as people say it: 53 in 100; a small one with a digit more."""
    value = 100 * share
    shown = f"{value:.0f}" if abs(value) >= 10 or abs(value) < 0.05 else f"{value:.1f}"
    return f"{shown} in 100"
