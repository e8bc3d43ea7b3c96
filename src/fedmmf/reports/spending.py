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
