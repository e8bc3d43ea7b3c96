"""Federated context models: one shared model of item features, learned from sums of gradients.

The paper's FedLR, FedFM and FedNN. In each round a party computes the gradient of its squared error
in the shared parameters; the server adds them up, adds the penalty, and takes an Adam step. Nothing
is personal: every user gets the same prediction for an item.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmmf import wire
from fedmmf.arrays import Array
from fedmmf.factorization.contract import ItemSums, Public
from fedmmf.factorization.sgd import STEPS, Factors, Plan, descend
from fedmmf.masks.models import FAMILIES, MaskFamily
from fedmmf.scale import RatingScale

RATE = 0.03


class Participants(Protocol):
    """`aggregation.plain.Plain`, as far as it is needed here."""

    def sums(self, message: wire.Round) -> ItemSums:
        """Take part in a round."""


class GradientSource(Protocol):
    """Whoever holds the ratings."""

    def __call__(self, theta: Array) -> Array:
        """Sum over parties of the gradient at theta."""


def party_gradient(
    family: MaskFamily, x: Array, ratings: Array, scale: RatingScale, theta: Array
) -> Array:
    """What one party adds to the sum: the slope of 1/2 sum (f - r)^2 on its own ratings."""
    if family.gradient is None:
        raise ValueError(f"{family.name} is no context model")
    return family.gradient(x, scale.to_unit(ratings) - 0.5, np.ones(len(x)), theta)


class RemoteGradient:
    """Asks parties over messages; each answers with its gradient, and only the sum is used."""

    def __init__(self, kind: str, participants: Participants) -> None:
        self._kind, self._participants = list(FAMILIES).index(kind), participants
        self._round = 0

    def __call__(self, theta: Array) -> Array:
        """One round."""
        self._round += 1
        public = Public(1, np.concatenate(([self._kind], theta)), np.zeros((0, 1), np.float32))
        message = wire.Round(self._round, 0, False, "context", public)
        return self._participants.sums(message).totals[-len(theta) :]


def answer_context(
    message: wire.Round, x: Array, ratings: Array, scale: RatingScale
) -> wire.Update:
    """A party's answer to a round of a context model."""
    kind, theta = int(message.public.parameters[0]), message.public.parameters[1:]
    family = list(FAMILIES.values())[kind]
    totals = np.concatenate((np.zeros(2), party_gradient(family, x, ratings, scale, theta)))
    return wire.Update(message.round, np.zeros(0, np.int32), np.zeros((0, 1), np.float32), totals)


def crowd_gradient(
    family: MaskFamily, features: Array, items: Array, ratings: Array, scale: RatingScale
) -> GradientSource:
    """The same sum for all parties at once.

    f depends on the item alone, so an item's raters can be replaced by their number and mean: the
    slope in f is sum (f - r) = n (f - mean).
    """
    gradient = family.gradient
    if gradient is None:
        raise ValueError(f"{family.name} is no context model")
    n_items = len(features)
    counts = np.bincount(items, minlength=n_items).astype(np.float64)
    totals = np.bincount(items, scale.to_unit(ratings) - 0.5, n_items)
    rated = counts > 0
    x, n, means = features[rated], counts[rated], totals[rated] / counts[rated]
    return lambda theta: gradient(x, means, n, theta)


@dataclass(frozen=True, eq=False)
class ContextModel:
    """A shared model of item features."""

    family: MaskFamily
    scale: RatingScale
    theta: Array

    def predict(self, x: Array) -> Array:
        """Predicted ratings of items with features x, clipped to the scale. (n,)."""
        unit = 0.5 + self.family.predict(x, self.theta)
        return self.scale.clip(self.scale.min + self.scale.span * unit)


def train_context(
    kind: str,
    gradient: GradientSource,
    n_features: int,
    n_ratings: int,
    scale: RatingScale,
    *,
    strength: float,
    rounds: int,
    rng: np.random.Generator,
) -> ContextModel:
    """Learn the shared parameters.

    Args:
        kind: lr, fm or nn.
        gradient: gives the sum over parties.
        n_features: d.
        n_ratings: of all parties; the step is along the mean gradient.
        scale: of the ratings.
        strength: penalty on the parameters other than the intercept, in ratings.
        rounds: how many.
        rng: where the starting parameters come from.
    """
    family = FAMILIES[kind]
    start = family.start(rng, n_features)
    theta = Factors.starting_at(start if len(start) else np.zeros(1 + n_features))
    plan = Plan(STEPS.index("adam"), RATE, 0.0, 0.0, 0.0)
    for t in range(1, rounds + 1):
        penalty = strength * theta.value
        penalty[0] = 0.0
        descend(theta, (gradient(theta.value) + penalty) / n_ratings, 1, plan, t)
    return ContextModel(family, scale, theta.value)
