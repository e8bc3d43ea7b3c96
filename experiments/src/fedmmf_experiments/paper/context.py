"""Federated context models: one shared model of items and users, learned from sums of gradients.

The paper's FedLR, FedFM and FedNN, simulated. In each round a party would compute the gradient of
its squared error in the shared parameters; the server adds them up, adds the penalty, and takes an
Adam step. Nothing is personal but the profile, which stays with its party: users with the same
profile get the same predictions.

A model of rows x (n, d) has one vector of parameters theta and is known by its gradients, those of
1/2 sum weight (f - y)^2. Targets are centred, of unit span.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.features import content_features, scaled_features
from fedmmf.data.scales import RatingScale
from fedmmf.solvers.sgd import STEPS, Factors, SgdPlan, descend

ADAM_STEP = SgdPlan(
    STEPS.index("adam"), learning_rate=0.03, regularization=0.0, user_prior=0.0, biases=0.0
)
GradientSum = Callable[[Array], Array]
"""theta -> the sum over parties of their gradients at theta."""


@dataclass(frozen=True)
class Line:
    """b + w.x; theta = (b, w)."""

    def start(self, stream: np.random.Generator, n_features: int) -> Array:
        """Return zeros for all parameters."""
        return np.zeros(1 + n_features)

    def predict(self, x: Array, theta: Array) -> Array:
        """Predict the target of each row. (n,)."""
        return np.asarray(theta[0] + x @ theta[1:])

    def gradient(self, x: Array, y: Array, weights: Array, theta: Array) -> Array:
        """Return the gradient of the loss in theta."""
        error = weights * (self.predict(x, theta) - y)
        return np.concatenate(([error.sum()], x.T @ error))


@dataclass(frozen=True)
class FactorizationMachine:
    """b + w.x + sum_f ((V_f.x)^2 - V_f^2.x^2) / 2  (Rendle 2010, Lemma 3.1); theta = (b, w, V)."""

    rank: int

    def start(self, stream: np.random.Generator, n_features: int) -> Array:
        """Return zeros, except for small random pair weights."""
        pairs = 0.05 * stream.standard_normal(self.rank * n_features)
        return np.concatenate((np.zeros(1 + n_features), pairs))

    def predict(self, x: Array, theta: Array) -> Array:
        """Predict the target of each row. (n,)."""
        d = x.shape[1]
        pairs = theta[1 + d :].reshape(self.rank, d)
        projections = x @ pairs.T  # (n, rank)
        own = np.square(x) @ np.square(pairs).sum(axis=0)
        of_pairs = 0.5 * (np.square(projections).sum(axis=1) - own)
        return np.asarray(theta[0] + x @ theta[1 : 1 + d] + of_pairs)

    def gradient(self, x: Array, y: Array, weights: Array, theta: Array) -> Array:
        """Return the gradient of 1/2 sum weight (f - y)^2 in theta."""
        d = x.shape[1]
        pairs = theta[1 + d :].reshape(self.rank, d)
        error = weights * (self.predict(x, theta) - y)
        of_pairs = (x @ pairs.T * error[:, np.newaxis]).T @ x - pairs * (np.square(x).T @ error)
        return np.concatenate(([error.sum()], x.T @ error, of_pairs.ravel()))


@dataclass(frozen=True)
class HiddenLayer:
    """b + out . tanh(W x + c), with one hidden layer; theta = (b, out, c, W)."""

    hidden: int = 8

    def start(self, stream: np.random.Generator, n_features: int) -> Array:
        """Return small random weights, and offsets of zero."""
        out = 0.1 * stream.standard_normal(self.hidden)
        weights = 0.3 * stream.standard_normal(self.hidden * n_features)
        return np.concatenate((np.zeros(1), out, np.zeros(self.hidden), weights))

    def predict(self, x: Array, theta: Array) -> Array:
        """Predict the target of each row. (n,)."""
        return np.asarray(theta[0] + self._units(x, theta) @ theta[1 : 1 + self.hidden])

    def gradient(self, x: Array, y: Array, weights: Array, theta: Array) -> Array:
        """Return the gradient of the loss in theta, by backpropagation."""
        out, units = theta[1 : 1 + self.hidden], self._units(x, theta)
        error = weights * (theta[0] + units @ out - y)  # (n,)
        back = (1.0 - units * units) * out * error[:, np.newaxis]  # (n, hidden)
        layers = (units.T @ error, back.sum(axis=0), (back.T @ x).ravel())
        return np.concatenate(([error.sum()], *layers))

    def _units(self, x: Array, theta: Array) -> Array:
        h = self.hidden
        layer = theta[1 + 2 * h :].reshape(h, x.shape[1])
        return np.asarray(np.tanh(x @ layer.T + theta[1 + h : 1 + 2 * h]))


SharedModel = Line | FactorizationMachine | HiddenLayer


@dataclass(frozen=True)
class ContextPlan:
    """Settings of the training of a context model."""

    kind: str  # lr, fm or nn
    strength: float = 10.0  # penalty on the parameters other than the intercept, in ratings
    rounds: int = 300  # how many
    rank: int = 8  # of the pairs of fm
    profiles: bool = True  # whether it sees user profiles, where there are some
    seed: int = 0  # of the starting parameters

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


def summed_gradient(model: SharedModel, context: Context, ratings: Ratings) -> GradientSum:
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
    gradient = summed_gradient(model, context, ratings)
    theta = Factors.starting_at(model.start(rng.stream(plan.seed, "context"), context.width))
    for t in range(1, plan.rounds + 1):
        penalty = plan.strength * theta.value
        penalty[0] = 0.0
        descend(theta, (gradient(theta.value) + penalty) / len(ratings), 1, ADAM_STEP, t)
    return ContextModel(model, ratings.scale, context, theta.value)
