"""Federated context models: one shared model of items and users, learned from sums of gradients.

The paper's FedLR, FedFM and FedNN, simulated. In each round a party would compute the gradient of
its squared error in the shared parameters; the server adds them up, adds the penalty, and takes an
Adam step. Nothing is personal but the profile, which stays with its party: users with the same
profile get the same predictions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.simulation.features import content_features, scaled_features
from fedmmf.solvers.sgd import STEPS, Factors, SgdPlan, descend
from fedmmf_experiments.paper.shared_models import (
    FactorizationMachine,
    HiddenLayer,
    Line,
    SharedModel,
)

ADAM_STEP = SgdPlan(
    STEPS.index("adam"), learning_rate=0.03, regularization=0.0, user_prior=0.0, biases=0.0
)
GradientSum = Callable[[Array], Array]
"""theta -> the sum over parties of their gradients at theta."""


@dataclass(frozen=True)
class ContextPlan:
    """Settings of the training of a context model.

    Args:
        kind: lr, fm or nn.
        strength: penalty on the parameters other than the intercept, in ratings.
        rounds: how many.
        rank: of the pairs of fm.
        profiles: whether it sees user profiles, where there are some.
        seed: of the starting parameters.
    """

    kind: str
    strength: float = 10.0
    rounds: int = 300
    rank: int = 8
    profiles: bool = True
    seed: int = 0

    @property
    def model(self) -> SharedModel:
        """Model that is trained, by its kind."""
        if self.kind == "fm":
            return FactorizationMachine(self.rank)
        return Line() if self.kind == "lr" else HiddenLayer()

    def tuned(self) -> dict[str, Any]:
        """Settings that tuning searches; the rank where there is one."""
        found = {"strength": self.strength, "rounds": self.rounds}
        return found | {"rank": self.rank} if self.kind == "fm" else found


@dataclass(frozen=True, eq=False)
class Context:
    """Inputs of a context model: features of the item, and the profile of the user."""

    items: Array  # (n_items, d_items)
    users: Array  # (n_users, d_users)

    @classmethod
    def of(cls, ratings: Ratings, plan: ContextPlan) -> "Context":
        """All that is known; nothing of the users without profiles."""
        if ratings.profiles is None or not plan.profiles:
            return cls(content_features(ratings), np.zeros((ratings.n_users, 0)))
        return cls(content_features(ratings), scaled_features(ratings.profiles.values))

    @property
    def width(self) -> int:
        """Number of columns of the inputs."""
        return int(self.items.shape[1] + self.users.shape[1])

    def rows(self, users: Array, items: Array) -> Array:
        """Return the inputs of pairs of codes. (n, d)."""
        return np.hstack((self.items[items], self.users[users]))


@dataclass(frozen=True, eq=False)
class ContextModel:
    """A shared model of items and users."""

    model: SharedModel
    scale: RatingScale
    context: Context
    theta: Array

    def predict(self, ratings: Ratings) -> Array:
        """Predict these ratings, clipped to the scale. (n,)."""
        x = self.context.rows(ratings.user_codes, ratings.item_codes)
        unit = 0.5 + self.model.predict(x, self.theta)
        return self.scale.clip(self.scale.min + self.scale.span * unit)


def crowd_gradient(model: SharedModel, context: Context, ratings: Ratings) -> GradientSum:
    """The slope of 1/2 sum (f - r)^2, over all parties at once.

    f depends on item and profile alone, so ratings of one item by users of one profile can be
    replaced by their number and mean: the slope in f is sum (f - r) = n (f - mean).
    """
    users = np.unique(context.users, axis=0, return_index=True, return_inverse=True)
    one_of, profile_of = users[1], users[2].ravel()  # (n_profiles,) a user of each; (n_users,)
    keys = profile_of[ratings.user_codes] * ratings.n_items + ratings.item_codes  # (n,)
    pairs, place = np.unique(keys, return_inverse=True)  # (n_pairs,), (n,)
    x = context.rows(one_of[pairs // ratings.n_items], pairs % ratings.n_items)
    counts = np.bincount(place).astype(np.float64)
    means = np.bincount(place, ratings.scale.to_unit(ratings.values) - 0.5) / counts
    return lambda theta: model.gradient(x, means, counts, theta)


def train_context(plan: ContextPlan, ratings: Ratings) -> ContextModel:
    """Learn the shared parameters, along the mean gradient over all ratings."""
    model, context = plan.model, Context.of(ratings, plan)
    gradient = crowd_gradient(model, context, ratings)
    theta = Factors.starting_at(model.start(rng.stream(plan.seed, "context"), context.width))
    for t in range(1, plan.rounds + 1):
        penalty = plan.strength * theta.value
        penalty[0] = 0.0
        descend(theta, (gradient(theta.value) + penalty) / len(ratings), 1, ADAM_STEP, t)
    return ContextModel(model, ratings.scale, context, theta.value)
