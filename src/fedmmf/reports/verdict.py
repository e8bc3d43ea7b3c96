"""Parts of an audit's result: the verdict for people who decide, and the figures behind it."""

from typing import Literal

from pydantic import Field, FiniteFloat

from fedmmf.reports.typed import Count, Interval, Typed

Light = Literal["red", "amber", "green"]


class Verdict(Typed):
    """What an audit comes to, in words that need no key."""

    light: Light
    sentence: str  # what a server could learn about a person
    rule: str  # when each light is shown, and what decided here
    changes: tuple[str, ...] = ()  # what to change for a better light
    not_tested: tuple[str, ...] = ()  # what the audit does not know


class AttackOutcome(Typed):
    """How well one attack did, beside what public knowledge alone would give.

    Attributes:
        name: of the attack.
        knows: what the attacker has, in a sentence.
        outputs: what it claims to find.
        measure: how success is counted.
        n_users: on whom it was tried.
        mean: success over users.
        interval: 95 % interval of the mean.
        baseline_mean: the same measure without the attack.
        advantage_interval: 95 % interval of success minus baseline, user by user.
        advantage: mean of that difference, the paired gain; version 0.1 did not print it.
        quantiles: of success over users, by their share of users.
        users: codes of the attacked users, in the order of success and baseline.
        success: of each user; None where there was nothing to attack.
        baseline: of each user.
    """

    name: str
    knows: str
    outputs: str
    measure: str
    n_users: Count
    mean: FiniteFloat
    interval: Interval
    baseline_mean: FiniteFloat
    advantage_interval: Interval
    advantage: FiniteFloat | None = None
    quantiles: dict[str, FiniteFloat] = Field({}, repr=False)
    users: tuple[int, ...] = Field((), repr=False)
    success: tuple[FiniteFloat | None, ...] = Field((), repr=False)
    baseline: tuple[FiniteFloat | None, ...] = Field((), repr=False)


class GroupingCounts(Typed):
    """How many users each rule would let share in the clear."""

    by_indicator: Count  # J <= threshold_j
    by_audit: Count  # their own attacks find less than audit_limit
    exposed_by_indicator: Count  # by the first rule, not by the second
