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
