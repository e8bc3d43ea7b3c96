"""Models of rows x (n, d) with one vector of parameters theta, by their gradients.

Targets are centred, of unit span; gradients are those of 1/2 sum weight (f - y)^2.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmmf.arrays import Array


class SharedModel(Protocol):
    """Interface of a federated context model with parameters theta."""

    def start(self, stream: np.random.Generator, n_features: int) -> Array:
        """Return theta before the first round."""

    def predict(self, x: Array, theta: Array) -> Array:
        """Predict the target of each row. (n,)."""

    def gradient(self, x: Array, y: Array, weights: Array, theta: Array) -> Array:
        """Return the gradient of the loss in theta."""


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
