"""Public constants of `vb` under noise, and choices that follow from public numbers alone.

Nothing here depends on a rating of the run. docs/aggregation.md says on which splits of ML-100K and
ML-1M the constants were chosen; they are in quarters of the rating scale's span, so that
they mean the same on every scale.
"""

from dataclasses import dataclass

DEFAULT_FACTORS = 4  # where nobody names a number
DEFAULT_ROUNDS = 28  # of equal cost: 1 of counts, 7 of means, 20 of factors

COUNTS, MEANS, FACTORS = range(3)
STAGES = ("counts", "means", "factors")
MEANS_SHARE = 0.25  # of all rounds
COARSE = 5e-4  # noise above which two rounds of factors are averaged before a step

GAMMA = 0.4  # weights are proportional to n_i^-gamma: rare items get more of a party's budget
TAU = 0.8  # variance of ratings around the model
LEVEL_VARIANCE = 0.2  # prior variance of a mask's intercept
COLUMN_VARIANCE = 0.06  # prior variance of a mask's weight of a feature
START = 0.3  # standard deviation of item factors before the first round of factors
START_VARIANCE = 0.03  # posterior variance that parties are told then

MAX_USER = 2.0  # largest length of the p_u that is sent
COUNTS_PART = 0.25  # of a release of means: the part for sums of weights
TOTALS_PART = 0.03  # of a release of factors: the part for all totals
# Largest length of a user's block of totals, before it is scaled to its part of the release.
BOUNDS = {"moments": 20.0**0.5, "covariance": 2.0, "cross": 1.0, "level": 2.0}

# What totals are expected to be, and by how much they may differ from it: sums that are mostly
# noise stay there. Prior variance of p_u is 1; half of it is found out.
USUAL_MOMENT, MOMENT_SPREAD, MEAN_SPREAD, CROSS_SPREAD = 0.5, 0.2, 0.1, 0.01
EM_TURNS = 8  # of the items' prior, after each step


@dataclass(frozen=True)
class Schedule:
    """Rounds of each stage, and how rounds of factors are used.

    Attributes:
        n_means: rounds of means, which are averaged.
        n_factors: rounds of factors.
        repeats: rounds of factors with one broadcast, which are averaged before a step.
        n_active: factors in use; the other columns carry noise alone.
    """

    n_means: int
    n_factors: int
    repeats: int
    n_active: int

    def stage(self, n_done: int) -> int:
        """Stage of the round after `n_done` rounds."""
        return COUNTS if n_done < 1 else MEANS if n_done <= self.n_means else FACTORS


def schedule(rounds: int, factors: int, noise: float = 1.0) -> Schedule:
    """Choose the schedule of a run from public numbers.

    Args:
        rounds: that the budget pays for.
        factors: the most factors that may be used.
        noise: standard deviation of the noise of one release that had the whole budget, over its
            clip and the number of users.
    """
    n_means = max(1, round(MEANS_SHARE * rounds))
    n_factors = max(rounds - 1 - n_means, 0)
    # 943 users have 7e-4 at epsilon 8; 6,040 users have 8e-4 at epsilon 1, and 1e-4 at 8.
    is_coarse = noise > COARSE
    return Schedule(n_means, n_factors, 2 if is_coarse and n_factors > 3 else 1, factors)


def releases(rounds: int) -> tuple[tuple[str, int], ...]:
    """Names of a run's releases and their rounds, in order."""
    plan = schedule(rounds, 1)
    numbers = zip(STAGES, (1, min(plan.n_means, rounds - 1), plan.n_factors), strict=True)
    return tuple((name, n) for name, n in numbers if n)
