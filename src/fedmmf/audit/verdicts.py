"""Conclusions from the attacks, for users who would share in the clear and for those in sums.

The paper's rule lets users share if J <= threshold_j. Beside it stands what parties would decide
that audit themselves: the difference is whom the rule would have exposed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks import AttackResult, rating_attacks
from fedmmf.audit.following import planned_rounds
from fedmmf.audit.messages import STRICT
from fedmmf.reports.results import CLEAR, SUMMED, TradeoffPoint
from fedmmf.reports.spending import EpsilonBounds
from fedmmf.reports.verdict import AttackOutcome, GroupingCounts
from fedmmf.settings import Settings

RECOVERED = 0.9  # share of a user's ratings exact that counts as recovered
_NOBODY = "Nobody would share in the clear."
_WHO_WOULD = " who would share in the clear"
_HAD = "had they shared in the clear as adaptive lets them"


@dataclass(frozen=True, eq=False)
class AuditFindings:
    """Findings of all attacks on a run."""

    settings: Settings  # of the run
    j: Array  # privacy indicator of every attacked user. (n_drawn,)
    # success of the best attack on each user's ratings, which a server cannot know to be the best;
    # the side of caution. (n_drawn,)
    exposed: Array
    passes_audit: Array  # whom their own audit would let share. (n_drawn,) bool
    results: Sequence[AttackResult]  # of the attacks on masked ratings, for all attacked users
    # of the attacks on messages of some real parties, by what they attack
    messages: Mapping[str, Sequence[AttackResult]]
    bounds: EpsilonBounds | None = None  # of epsilon, from both sides; None: there is no budget

    @property
    def in_clear(self) -> Array:
        """Whether a user would share in the clear by the settings' rule. (n_drawn,) bool."""
        if self.settings.scheme.in_clear == "everybody":
            return np.ones(len(self.j), bool)
        if self.settings.grouping == "audit":
            return self.passes_audit
        return np.asarray(self.j <= self.settings.threshold_j)

    def groups(self) -> dict[str, tuple[AttackOutcome, ...]]:
        """Results of the attacks on masked ratings, by how their users would share."""
        return {
            group: tuple(outcome(_of_users(result, keep)) for result in self.results)
            for group, keep in ((CLEAR, self.in_clear), (SUMMED, ~self.in_clear))
        }

    def grouping(self) -> GroupingCounts:
        """Number of users each rule would let share in the clear, and whom J would have exposed."""
        by_indicator = self.j <= self.settings.threshold_j
        return GroupingCounts(
            by_indicator=int(by_indicator.sum()),
            by_audit=int(self.passes_audit.sum()),
            exposed_by_indicator=int((by_indicator & ~self.passes_audit).sum()),
        )

    def n_recovered(self) -> int:
        """Number of users in the clear whose ratings the best attack on each recovers."""
        return int((self.exposed[self.in_clear] >= RECOVERED).sum())

    def sentences(self) -> tuple[str, ...]:
        """Write one sentence per attack that finds ratings, the worst first."""
        found = {
            result.name: int((result.success[self.in_clear] >= RECOVERED).sum())
            for result in on_ratings(self.results, self.settings.mask)
        }
        total = int(self.in_clear.sum())
        if total == 0:
            return (_NOBODY,)
        whom, had = ("", f", {_HAD}") if self._is_strict else (_WHO_WOULD, "")
        return tuple(
            f"{n} of {total} users{whom} are recovered by {name}{had}: "
            f"at least {RECOVERED:.0%} of their ratings exact."
            for name, n in sorted(found.items(), key=lambda pair: -pair[1])
        )

    @property
    def _is_strict(self) -> bool:
        return self.settings.is_strict

    def verdicts(self) -> dict[str, str]:
        """Write the conclusion for either group."""
        return {CLEAR: self._verdict_in_clear(), SUMMED: self._verdict_in_sums()}

    def _verdict_in_clear(self) -> str:
        if not self.in_clear.any():
            return _NOBODY
        whom = f", {_HAD}" if self._is_strict else _WHO_WOULD
        return recovery_verdict(self.exposed[self.in_clear], f"users{whom}")

    def _verdict_in_sums(self) -> str:
        """Conclude by the paired gain: attack minus public knowledge, user by user.

        Of many attacks some gain by chance, so that intervals are those of `joint_interval`.
        """
        tried = self.messages[STRICT[1]]
        n_users = max((int(np.isfinite(result.success).sum()) for result in tried), default=0)
        n_rounds = planned_rounds(self.settings)
        is_long = n_rounds > 1
        what = f"the sums of {n_rounds} rounds" if is_long else "the sum of round 1"
        vectors, sums = (_gains(self.messages[name]) for name in STRICT)
        noise = (
            f"Masked vectors, which should be noise, seem to help {vectors}. All attacks together "
            "say so once in forty times by chance; audit again. "
        )
        most = max((joint_interval(result, len(tried))[1] for result in tried), default=0.0)
        nothing = (
            f"No gain found in {what} over these {n_users} users, user by user, to "
            f"within intervals that end at {most:+.4f}, at 95 % for all {len(tried)} attacks "
            "together."
        )
        something = (
            f"T{what[1:]} over these {n_users} users say{'' if is_long else 's'} more than the "
            "public knows. Gain over public knowledge, user by user, with intervals at 95 % "
            f"for all {len(tried)} attacks together: {sums}."
        )
        return (noise if vectors else "") + (something if sums else nothing)

    def with_recovered(self, points: Sequence[TradeoffPoint]) -> tuple[TradeoffPoint, ...]:
        """Add to thresholds the share of all users whom each would have exposed to some attack."""
        lost = self.exposed >= RECOVERED  # (n_users,)
        is_in = [self.j <= point.threshold_j for point in points]  # (n_users,) each
        return tuple(
            point.model_copy(update={"recovered_share": float((lost & inside).mean())})
            for point, inside in zip(points, is_in, strict=True)
        )


def recovery_verdict(exposed: Array, whom: str = "users") -> str:
    """Write how many users are recovered, given the best attack's success on each. (n_users,)."""
    n, found = len(exposed), int((exposed >= RECOVERED).sum())
    return f"Some attack finds at least {RECOVERED:.0%} of the ratings of {found} of {n} {whom}."


def on_ratings(results: Sequence[AttackResult], mask: str) -> list[AttackResult]:
    """Return those of the attacks that find ratings."""
    names = {attack.name for attack in rating_attacks(mask)}
    return [result for result in results if result.name in names]


def joint_interval(result: AttackResult, n_attacks: int) -> tuple[float, float]:
    """Interval of the paired gain: 95 % for so many attacks at once (Bonferroni).

    Its own 95 % interval is made wider on either side, as a normal distribution's would be.
    """
    normal, middle = NormalDist(), result.advantage
    wider = normal.inv_cdf(1 - 0.025 / n_attacks) / normal.inv_cdf(0.975)
    low, high = result.advantage_interval
    return middle - wider * (middle - low), middle + wider * (high - middle)


def _gains(results: Sequence[AttackResult]) -> str:
    """Attacks whose gain exceeds chance, with their gains, the largest first."""
    found = [(result, joint_interval(result, len(results))) for result in results]
    found.sort(key=lambda pair: -pair[0].advantage)
    return "; ".join(
        f"{result.name} {result.advantage:+.4f} ({low:+.4f} to {high:+.4f})"
        for result, (low, high) in found
        if low > 0
    )


def outcome(result: AttackResult) -> AttackOutcome:
    """Convert a result for printing."""
    return AttackOutcome.from_json_dict(result.to_dict())


def _of_users(result: AttackResult, keep: Array) -> AttackResult:
    """Restrict a result to some users."""
    return replace(
        result,
        users=result.users[keep],
        success=result.success[keep],
        baseline=result.baseline[keep],
    )
