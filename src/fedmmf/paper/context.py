"""Federated context models: one shared model of item features, learned from sums of gradients.

The paper's FedLR, FedFM and FedNN, simulated. In each round a party would compute the gradient of
its squared error in the shared parameters; the server adds them up, adds the penalty, and takes an
Adam step. Nothing is personal: every user gets the same prediction for an item.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.masks import FAMILIES, MaskFamily
from fedmmf.scale import RatingScale
from fedmmf.simulation.features import content_features
from fedmmf.solvers.sgd import STEPS, Factors, SgdPlan, descend

ADAM_STEP = SgdPlan(
    STEPS.index("adam"), learning_rate=0.03, regularization=0.0, user_prior=0.0, biases=0.0
)
GradientSum = Callable[[Array], Array]
"""theta -> the sum over parties of their gradients at theta."""


@dataclass(frozen=True)
class ContextPlan:
    """How a context model is trained.

    Args:
        kind: lr, fm or nn.
        strength: penalty on the parameters other than the intercept, in ratings.
        rounds: how many.
        seed: of the starting parameters.
    """

    kind: str
    strength: float = 10.0
    rounds: int = 300
    seed: int = 0

    def start(self, n_features: int) -> Factors:
        """The parameters before round 1."""
        drawn = FAMILIES[self.kind].start(rng.stream(self.seed, "context"), n_features)
        return Factors.starting_at(drawn if len(drawn) else np.zeros(1 + n_features))


@dataclass(frozen=True, eq=False)
class ContextModel:
    """A shared model of item features."""

    family: MaskFamily
    scale: RatingScale
    features: Array  # (n_items, d)
    theta: Array

    def predict(self, ratings: Ratings) -> Array:
        """What it says of these ratings' items, clipped to the scale. (n,)."""
        unit = 0.5 + self.family.predict(self.features, self.theta)  # (n_items,)
        return self.scale.clip(self.scale.min + self.scale.span * unit)[ratings.item_codes]


def crowd_gradient(family: MaskFamily, features: Array, ratings: Ratings) -> GradientSum:
    """The slope of 1/2 sum (f - r)^2, over all parties at once.

    f depends on the item alone, so an item's raters can be replaced by their number and mean: the
    slope in f is sum (f - r) = n (f - mean).
    """
    gradient = family.gradient
    if gradient is None:
        raise ValueError(f"{family.name} is no context model")
    targets = ratings.scale.to_unit(ratings.values) - 0.5
    counts = np.bincount(ratings.item_codes, minlength=len(features)).astype(np.float64)
    totals = np.bincount(ratings.item_codes, targets, len(features))
    rated = counts > 0
    x, n, means = features[rated], counts[rated], totals[rated] / counts[rated]
    return lambda theta: gradient(x, means, n, theta)


def train_context(plan: ContextPlan, ratings: Ratings) -> ContextModel:
    """Learn the shared parameters, along the mean gradient over all ratings."""
    family, features = FAMILIES[plan.kind], content_features(ratings)
    gradient = crowd_gradient(family, features, ratings)
    theta = plan.start(features.shape[1])
    for t in range(1, plan.rounds + 1):
        penalty = plan.strength * theta.value
        penalty[0] = 0.0
        descend(theta, (gradient(theta.value) + penalty) / len(ratings), 1, ADAM_STEP, t)
    return ContextModel(family, ratings.scale, features, theta.value)
