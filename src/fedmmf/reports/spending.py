"""What a run with differential privacy has spent, and on what."""

from pydantic import FiniteFloat, computed_field

from fedmmf.reports.typed import Count, Typed


class Release(Typed):
    """One kind of sum that a privacy budget pays for; nothing else leaves a party."""

    name: str
    rounds: Count
    sensitivity: FiniteFloat  # largest change of one of its sums by one user
    share: FiniteFloat  # of the budget
    epsilon_so_far: FiniteFloat  # of this release and all before it


class PrivacySpent(Typed):
    """What a run with differential privacy has spent: (epsilon, delta) of a whole user."""

    epsilon: FiniteFloat  # of the rounds that were used
    delta: FiniteFloat
    rounds_used: Count  # all runs of an ensemble together
    rounds_paid: Count  # after so many, parties stop
    epsilon_paid: FiniteFloat
    noise_multiplier: FiniteFloat  # standard deviation of the noise over the sensitivity
    clip: FiniteFloat  # largest length of a user's update
    noise: str
    added_by: str  # who adds the noise
    neighbours: str  # what epsilon compares
    not_covered: str  # what epsilon says nothing of
    releases: tuple[Release, ...] = ()  # in order

    @computed_field  # type: ignore[prop-decorator]
    @property
    def epsilon_left(self) -> float:
        """What is left of the epsilon that was paid for, once all releases made are composed."""
        return max(self.epsilon_paid - self.epsilon, 0.0)

    def headline(self) -> str:
        """Name the privacy spent, as a part of a sentence."""
        return f"epsilon {self.epsilon:.4g} at delta {self.delta:g} for a whole user"


OUTSIDE = (
    "These comparisons were made with all ratings at hand. They are outside epsilon, and so is a "
    "choice of settings by them."
)


class CostPoint(Typed):
    """Accuracy of a run with one epsilon, on the same test as the others."""

    epsilon: FiniteFloat
    rmse: FiniteFloat | None = None
    ndcg_at_10: FiniteFloat | None = None


class PrivacyCost(Typed):
    """What a privacy budget costs on these data: accuracy with it and without.

    Attributes:
        epsilon: of the run.
        rmse: on test ratings, with noise; None: it predicts none.
        ndcg_at_10: of lists, with noise; None: nobody asked for lists.
        rmse_without: the same test, trained without noise.
        ndcg_at_10_without: likewise.
        without: how that was trained.
        curve: runs with other epsilons, increasing; empty: nobody asked.
        outside: that epsilon covers none of this.
    """

    epsilon: FiniteFloat
    rmse: FiniteFloat | None = None
    ndcg_at_10: FiniteFloat | None = None
    rmse_without: FiniteFloat | None = None
    ndcg_at_10_without: FiniteFloat | None = None
    without: str = ""
    curve: tuple[CostPoint, ...] = ()
    outside: str = OUTSIDE

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Say what privacy costs, in one sentence."""
        pairs = {
            "RMSE": (self.rmse, self.rmse_without),
            "lists (nDCG@10)": (self.ndcg_at_10, self.ndcg_at_10_without),
        }
        said = [
            f"{name} {ours:.4f} with, {theirs:.4f} without"
            for name, (ours, theirs) in pairs.items()
            if ours is not None and theirs is not None
        ]
        return f"What epsilon {self.epsilon:g} costs here: {'; '.join(said)} ({self.without})."


class EpsilonBounds(Typed):
    """Epsilon from both sides: what was proven, and what an attack on a planted user shows.

    Attributes:
        proven: the upper bound of the accountant, for all planned rounds.
        delta: that both hold at.
        lower: one-sided lower limit by the means of scores, taken for Gaussian.
        lower_by_counting: one-sided lower limit by counting errors, which assumes nothing.
        surely: lower limit in either way, wrong in at most one audit of a million: it decides.
        estimate: epsilon at the distance that was found, without its limit.
        runs: with the planted user, and as many without.
        releases: that were attacked together.
        level: of the limits `lower` and `lower_by_counting`.
    """

    proven: FiniteFloat
    delta: FiniteFloat
    lower: FiniteFloat
    lower_by_counting: FiniteFloat
    surely: FiniteFloat
    estimate: FiniteFloat
    runs: Count
    releases: Count
    level: FiniteFloat

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def is_contradicted(self) -> bool:
        """Whether an attack found more than was proven: then something is broken."""
        return self.surely > self.proven

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Say both bounds, and from how many runs the lower one is."""
        found = (
            f"Epsilon is at most {self.proven:.4g}, as proven, and at least {self.lower:.3g}, as "
            f"found: in {self.runs:,} runs with a planted user and {self.runs:,} without, over all "
            f"{self.releases} releases (one-sided, {100 * self.level:g} %; by counting alone at "
            f"least {self.lower_by_counting:.3g})."
        )
        if self.is_contradicted:
            return (
                f"{found} The attack found more than can be, at least {self.surely:.3g} with an "
                "error of one in a million: something is broken. Report it."
            )
        if max(self.lower, self.lower_by_counting) > self.proven:
            return f"{found} That a limit is above the proof is within chance: audit more runs."
        return found
