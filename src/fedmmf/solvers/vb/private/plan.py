"""Public constants of `vb` under noise, and choices that follow from public numbers alone.

Nothing here depends on a rating of the run. docs/aggregation.md says on which splits of ML-100K and
ML-1M the constants were chosen. Those of ratings are in quarters of the rating scale's span, those
of lists in units of the highest rating less that of an unrated item, so that they mean the same on
every scale.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmmf.errors import SettingsError

COUNTS, MEANS, FACTORS = range(3)
STAGES = ("counts", "means", "factors")

MAX_USER = 2.0  # largest length of the p_u that is sent
COUNTS_PART = 0.25  # of a release of means: the part for sums of weights
TOTALS_PART = 0.03  # of a release of factors: the part for all totals
USUAL_COLUMNS = 24  # of a mask; where there are more, they share the variance of so many
BLOCKS = ("moments", "covariance", "cross", "level")  # of totals
EM_TURNS = 8  # of the items' prior, after each step


@dataclass(frozen=True)
class Constants:
    """What is assumed of ratings, or of lists, before anything is known.

    Attributes:
        factors, rounds: where nobody names a number; rounds are of equal cost.
        counts_share, means_share: of all rounds.
        coarse: noise above which two rounds of factors are averaged before a step.
        gamma: weights are proportional to n_i^-gamma: rare items get more of a party's budget.
        tau: variance of ratings around the model.
        level_variance, column_variance: prior variance of a mask's intercept, and of its weight of
            a feature.
        start, start_variance: standard deviation of item factors before the first round of
            factors, and the posterior variance that parties are told then.
        reach: units per length of a row of factors.
        bounds: largest length of each of a user's blocks of totals, before it is scaled to its part
            of the release.
        moment, covariance: what is expected of E[p p^T] and of Cov[p], times the identity. Sums
            that are mostly noise stay there.
        spreads: by how much totals may differ from what is expected.
    """

    factors: int
    rounds: int
    counts_share: float
    means_share: float
    coarse: float
    gamma: float
    tau: float
    level_variance: float
    column_variance: float
    start: float
    start_variance: float
    reach: float
    bounds: Mapping[str, float]
    moment: float
    covariance: float
    spreads: Mapping[str, float]


OF_RATINGS = Constants(
    factors=4,
    rounds=28,
    counts_share=0.0,  # one round
    means_share=0.25,
    coarse=5e-4,
    gamma=0.4,
    tau=0.8,
    level_variance=0.2,
    column_variance=0.06,
    start=0.3,
    start_variance=0.03,
    reach=1.0,
    bounds={"moments": 20.0**0.5, "covariance": 2.0, "cross": 1.0, "level": 2.0},
    moment=0.5,  # prior variance of p_u is 1; half of it is found out
    covariance=0.5,
    spreads={"user_sum": 0.1, "moment": 0.2, "covariance": 0.2, "cross": 0.01, "level": 1.0},
)
OF_LISTS = Constants(
    factors=8,
    rounds=18,  # 3 of counts, 15 of factors
    counts_share=1 / 6,
    means_share=0.0,
    coarse=5e-4,
    gamma=0.25,
    tau=0.1,
    level_variance=0.03,
    column_variance=0.01,
    start=0.05,
    start_variance=0.00075,
    reach=0.75,
    bounds={"moments": 8.0, "covariance": 2.0, "cross": 2.0, "level": 1.0},
    moment=0.5,
    covariance=0.3,
    spreads={"user_sum": 0.1, "moment": 0.2, "covariance": 0.2, "cross": 0.05, "level": 1.0},
)
COUNTS_ALONE = 2.0  # epsilon up to which lists are of counts alone, where nobody names rounds
UNRATED_WEIGHT = 0.1  # of an unrated item beside a rated one, in lists
BELOW = 0.25  # an unrated item counts as so many spans below the lowest rating
USUAL_VALUE = 0.75  # of a rated item, where an unrated one has 0 and the highest rating 1
UNEVENNESS = 1.25  # mean of K^-1/2 over users times the mean of K^1/2


def constants(*, ranks: bool) -> Constants:
    """Return the constants of lists or of ratings."""
    return OF_LISTS if ranks else OF_RATINGS


@dataclass(frozen=True)
class Schedule:
    """Rounds of each stage, and how rounds of factors are used.

    Attributes:
        n_counts: rounds of counts, which are averaged.
        n_means: rounds of means, likewise.
        n_factors: rounds of factors.
        repeats: rounds of factors with one broadcast, which are averaged before a step.
        n_active: factors in use; the other columns carry noise alone.
    """

    n_counts: int
    n_means: int
    n_factors: int
    repeats: int
    n_active: int

    def stage(self, n_done: int) -> int:
        """Stage of the round after `n_done` rounds."""
        before = self.n_counts + self.n_means
        return COUNTS if n_done < self.n_counts else MEANS if n_done < before else FACTORS

    def end(self, stage: int) -> int:
        """Rounds up to the last one of a stage."""
        return sum(self.numbers[: stage + 1])

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Rounds of each stage."""
        return self.n_counts, self.n_means, self.n_factors


def schedule(rounds: int, factors: int, noise: float = 1.0, *, ranks: bool = False) -> Schedule:
    """Choose the schedule of a run from public numbers.

    Args:
        rounds: that the budget pays for.
        factors: the most factors that may be used.
        noise: standard deviation of the noise of one release that had the whole budget, over its
            clip and the number of users.
        ranks: whether lists are learned, not ratings.
    """
    about = constants(ranks=ranks)
    n_counts = min(max(1, round(about.counts_share * rounds)), rounds)
    n_means = 0 if ranks else max(1, round(about.means_share * rounds))
    n_means = min(n_means, rounds - n_counts)
    n_factors = rounds - n_counts - n_means
    # 943 users have 7e-4 at epsilon 8; 6,040 users have 8e-4 at epsilon 1, and 1e-4 at 8.
    is_coarse = noise > about.coarse
    repeats = 2 if is_coarse and n_factors > 3 else 1
    return Schedule(n_counts, n_means, n_factors, repeats, factors if n_factors else 0)


def rounds_for(epsilon: object, *, ranks: bool) -> int:
    """Rounds where nobody names a number; `epsilon` is as somebody named it, if at all.

    Up to a small epsilon, lists are noisy popularity and what masks make of it: factors would be
    mostly noise, and the counts that they take the budget from would be too.
    """
    is_small = isinstance(epsilon, int | float) and epsilon <= COUNTS_ALONE
    return 1 if ranks and is_small else constants(ranks=ranks).rounds


def releases(rounds: int, objective: str = "rating") -> tuple[tuple[str, int], ...]:
    """Names of a run's releases and their rounds, in order."""
    numbers = schedule(rounds, 1, ranks=objective == "ranking").numbers
    return tuple((name, n) for name, n in zip(STAGES, numbers, strict=True) if n)


@dataclass(frozen=True)
class UnratedPairs:
    """What an unrated item counts as, on the scale of masked ratings."""

    weight: float  # beside a rated one
    value: float
    unit: float  # the highest rating less that of an unrated item

    @classmethod
    def of(cls, settings: Any, lowest: float, span: float, level: float) -> "UnratedPairs":
        """Take the settings, or the defaults under noise.

        Args:
            settings: of the run.
            lowest: rating of the scale.
            span: of the scale.
            level: masked rating in the middle of the scale.

        Raises:
            SettingsError: an unrated item counts as much as the highest rating.
        """
        weight, value = settings.unrated_weight, settings.unrated_value
        weight = UNRATED_WEIGHT if weight == "auto" else float(weight)
        value = lowest - BELOW * span if value == "auto" else float(value)
        unit = lowest + span - value
        if unit <= 0:
            raise SettingsError(
                f"unrated_value {value:g} has to be below the highest rating, {lowest + span:g}. "
                "Leave it out, or take a lower one"
            )
        return cls(weight, value - (lowest + span / 2) + level, unit)
