"""The private models: five families of masks, each trained on one party's ratings alone.

Every function here is plain numpy, because a party trains its mask with nothing else installed. The
same functions are also compiled (`engines.kernels.masks`) so that a simulation can train every
party at once; there is one body for both, so the results are the same. The trainer stays in this
file with what it calls, because numba's cache notices changes of a kernel's own file alone.

A model sees features x (n, d) and targets y (n,): ratings less what somebody unknown gives, divided
by the span of the scale, so that one strength of regularisation means the same on every scale. Its
parameters are one flat vector theta. The pull is the penalty of the intercept, in
ratings' worth.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array

FM_RANK = 2
FM_SWEEPS = 8
NN_HIDDEN = 8
NN_STEPS = 60
NN_RATE = 0.05
FM_PAIR_PENALTY = 0.1  # V's share of the strength: at the full strength every V shrinks to 0


def fit_none(x: Array, y: Array, strength: float, pull: float, start: Array) -> Array:
    """Return no parameters: the control that masks nothing."""
    return np.zeros(0)


def predict_none(x: Array, theta: Array) -> Array:
    """Return 0 for every row."""
    return np.zeros(len(x))


def fit_mean(x: Array, y: Array, strength: float, pull: float, start: Array) -> Array:
    """Shrunken mean: minimise sum (y - b)^2 + strength b^2."""
    return np.full(1, y.sum() / (len(y) + strength))


def predict_mean(x: Array, theta: Array) -> Array:
    """Return the intercept for every row."""
    return np.full(len(x), theta[0])


def fit_lr(x: Array, y: Array, strength: float, pull: float, start: Array) -> Array:
    """Ridge regression in closed form; theta = (b, w)."""
    n, d = x.shape
    normal = np.empty((d + 1, d + 1))
    moments = np.empty(d + 1)
    normal[0, 0] = n + pull
    normal[0, 1:] = normal[1:, 0] = x.sum(axis=0)
    normal[1:, 1:] = x.T @ x + strength * np.eye(d)
    moments[0] = y.sum()
    moments[1:] = x.T @ y
    theta: Array = np.linalg.solve(normal, moments)
    return theta


def predict_lr(x: Array, theta: Array) -> Array:
    """Return b + w.x."""
    out: Array = theta[0] + x @ theta[1:]
    return out


def fit_fm(x: Array, y: Array, strength: float, pull: float, start: Array) -> Array:
    """Factorization machine by exact coordinate descent (Rendle 2012, ALS); theta = (b, w, V^T).

    It starts from the ridge solution and a random V, and visits every coordinate in turn. `error`
    and the projections x.V_f are kept up to date, so one visit costs one pass over the ratings.
    """
    n, d = x.shape
    theta = start.copy()
    theta[: d + 1] = fit_lr(x, y, strength, pull, start)
    columns = np.ascontiguousarray(x.T)  # (d, n)
    squares = columns * columns
    energy = squares.sum(axis=1)
    penalty = FM_PAIR_PENALTY * strength
    error = y - predict_fm(x, theta)
    for _ in range(FM_SWEEPS):
        intercept = (error.sum() + n * theta[0]) / (n + pull)
        error -= intercept - theta[0]
        theta[0] = intercept
        for j in range(d):
            step = (columns[j] @ error - strength * theta[1 + j]) / (energy[j] + strength)
            error -= step * columns[j]
            theta[1 + j] += step
        for f in range(FM_RANK):
            v = theta[1 + d + f * d : 1 + d + (f + 1) * d]  # a view: V_f, (d,)
            projection = x @ v
            for j in range(d):
                slope = columns[j] * projection - v[j] * squares[j]  # d f / d V_jf
                step = (slope @ error - penalty * v[j]) / (slope @ slope + penalty)
                error -= step * slope
                projection += step * columns[j]
                v[j] += step
    return theta


def predict_fm(x: Array, theta: Array) -> Array:
    """Return b + w.x + sum_f ((V_f.x)^2 - V_f^2.x^2) / 2  (Rendle 2010, Lemma 3.1)."""
    d = x.shape[1]
    out: Array = theta[0] + x @ theta[1 : d + 1]
    squares = x * x
    for f in range(FM_RANK):
        v = theta[1 + d + f * d : 1 + d + (f + 1) * d]
        projection = x @ v
        out += 0.5 * (projection * projection - squares @ (v * v))
    return out


def gradient_lr(x: Array, y: Array, weights: Array, theta: Array) -> Array:
    """Slope of 1/2 sum weight (f - y)^2 in theta."""
    error = weights * (predict_lr(x, theta) - y)
    gradient = np.empty_like(theta)
    gradient[0] = error.sum()
    gradient[1:] = x.T @ error
    return gradient


def gradient_fm(x: Array, y: Array, weights: Array, theta: Array) -> Array:
    """Slope of 1/2 sum weight (f - y)^2 in theta."""
    d = x.shape[1]
    error = weights * (predict_fm(x, theta) - y)
    gradient = np.empty_like(theta)
    gradient[0] = error.sum()
    gradient[1 : d + 1] = x.T @ error
    spread = (x * x).T @ error  # (d,)
    for f in range(FM_RANK):
        here = slice(1 + d + f * d, 1 + d + (f + 1) * d)
        gradient[here] = x.T @ (error * (x @ theta[here])) - theta[here] * spread
    return gradient


def gradient_nn(x: Array, y: Array, weights: Array, theta: Array) -> Array:
    """Slope of 1/2 sum weight (f - y)^2 in theta: backpropagation."""
    d, h = x.shape[1], NN_HIDDEN
    out = theta[1 : 1 + h]
    layer = theta[1 + 2 * h :].reshape(h, d)
    hidden = np.tanh(x @ layer.T + theta[1 + h : 1 + 2 * h])  # (n, h)
    error = weights * (theta[0] + hidden @ out - y)  # (n,)
    back = (1.0 - hidden * hidden) * out * error.reshape(-1, 1)  # (n, h)
    gradient = np.empty_like(theta)
    gradient[0] = error.sum()
    gradient[1 : 1 + h] = hidden.T @ error
    gradient[1 + h : 1 + 2 * h] = back.sum(axis=0)
    gradient[1 + 2 * h :] = (back.T @ x).ravel()
    return gradient


def fit_nn(x: Array, y: Array, strength: float, pull: float, start: Array) -> Array:
    """One hidden tanh layer, full-batch Adam with weight decay; theta = (b, out, c, W)."""
    theta, ones = start.copy(), np.ones(len(y))
    penalty = np.full(len(theta), strength)
    penalty[0] = pull
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    for t in range(1, NN_STEPS + 1):
        gradient = gradient_nn(x, y, ones, theta) + penalty * theta
        first = 0.9 * first + 0.1 * gradient
        second = 0.99 * second + 0.01 * gradient * gradient
        scale = np.sqrt(second / (1.0 - 0.99**t)) + 1e-8
        theta -= NN_RATE / (1.0 - 0.9**t) * first / scale
    return theta


def predict_nn(x: Array, theta: Array) -> Array:
    """Return b + out . tanh(W x + c)."""
    d, h = x.shape[1], NN_HIDDEN
    layer = theta[1 + 2 * h :].reshape(h, d)
    hidden = np.tanh(x @ layer.T + theta[1 + h : 1 + 2 * h])  # (n, h)
    out: Array = theta[0] + hidden @ theta[1 : 1 + h]
    return out


def _no_start(rng: np.random.Generator, n_features: int) -> Array:
    return np.zeros(0)


def _fm_start(rng: np.random.Generator, n_features: int) -> Array:
    pairs = 0.05 * rng.standard_normal(FM_RANK * n_features)
    return np.concatenate((np.zeros(1 + n_features), pairs))


def _nn_start(rng: np.random.Generator, n_features: int) -> Array:
    out = 0.1 * rng.standard_normal(NN_HIDDEN)
    weights = 0.3 * rng.standard_normal(NN_HIDDEN * n_features)
    return np.concatenate((np.zeros(1), out, np.zeros(NN_HIDDEN), weights))


def _trainer(fit: Callable[..., Array], predict: Callable[..., Array]) -> Callable[..., None]:
    """Make the function that trains many parties in turn; one party is a crowd of one."""

    def train(
        indptr: Array,  # (n_users + 1,) where each user's ratings begin
        items: Array,  # (n,) rows of `features`
        features: Array,  # (n_items, d)
        targets: Array,  # (n,) centred, unit span
        penalties: Array,  # (s, 2) strength and pull; who has a choice picks by held-out error
        n_folds: int,
        starts: Array,  # (n_users, n_params or 0)
        theta: Array,  # out (n_users, n_params)
        chosen: Array,  # out (n_users,) row of penalties
        fitted: Array,  # out (n,) f_u on the ratings it was trained on
        held_out: Array,  # out (n,) f_u on each rating, trained without its fold
    ) -> None:
        for u in range(len(indptr) - 1):
            begin, end = indptr[u], indptr[u + 1]
            if begin == end:
                continue
            x, y = features[items[begin:end]], targets[begin:end]
            # Every n_folds-th rating in the order of the items: balanced, and nothing random.
            fold_of = np.arange(end - begin) % n_folds
            best_error = np.inf
            for s in range(len(penalties)):
                predicted = np.zeros(end - begin)
                for fold in range(min(n_folds, end - begin)):
                    inside = np.flatnonzero(fold_of == fold)
                    outside = np.flatnonzero(fold_of != fold)
                    if len(outside) > 0:
                        strength, pull = penalties[s]
                        part = fit(x[outside], y[outside], strength, pull, starts[u])
                        predicted[inside] = predict(x[inside], part)
                error = np.sum((y - predicted) ** 2)
                if error < best_error:
                    best_error, chosen[u] = error, s
                    held_out[begin:end] = predicted
            strength, pull = penalties[chosen[u]]
            theta[u] = fit(x, y, strength, pull, starts[u])
            fitted[begin:end] = predict(x, theta[u])

    return train


def _applier(predict: Callable[..., Array]) -> Callable[..., None]:
    """Make the function that applies each user's mask to that user's pairs."""

    def apply(indptr: Array, items: Array, features: Array, theta: Array, out: Array) -> None:
        for u in range(len(indptr) - 1):
            begin, end = indptr[u], indptr[u + 1]
            if begin < end:
                out[begin:end] = predict(features[items[begin:end]], theta[u])

    return apply


@dataclass(frozen=True)
class MaskFamily:
    """One kind of private model: how to fit, apply, start and regularise it."""

    name: str
    order: str  # the paper's name for it
    fit: Callable[[Array, Array, float, float, Array], Array]
    predict: Callable[[Array, Array], Array]
    gradient: Callable[[Array, Array, Array, Array], Array] | None  # for a shared context model
    n_parameters: Callable[[int], int]
    default_strength: float | None  # None: the pull
    strengths: tuple[float, ...]  # what `auto` chooses from
    start: Callable[[np.random.Generator, int], Array] = _no_start
    needs_features: bool = True
    is_centred: bool = True  # predicts around what somebody unknown gives; else around 0
    is_linear: bool = False  # theta is an intercept and weights of the features, as far as it goes
    helpers: tuple[Callable[..., Any], ...] | None = None  # to compile first; None: stays numpy

    @property
    def train(self) -> Callable[..., None]:
        """The trainer in plain numpy; its arguments are described in `_trainer`."""
        return _trainer(self.fit, self.predict)

    @property
    def apply(self) -> Callable[..., None]:
        """The applier in plain numpy."""
        return _applier(self.predict)


NONE = MaskFamily(
    "none",
    "no mask",
    fit_none,
    predict_none,
    None,
    n_parameters=lambda d: 0,
    default_strength=1.0,
    strengths=(1.0,),
    needs_features=False,
    is_centred=False,
    is_linear=True,
    helpers=(),
)
MEAN = MaskFamily(
    "mean",
    "zero-order",
    fit_mean,
    predict_mean,
    None,
    n_parameters=lambda d: 1,
    default_strength=None,
    strengths=(0.5, 1.0, 2.0, 5.0, 10.0),
    needs_features=False,
    is_linear=True,
    helpers=(),
)
LR = MaskFamily(
    "lr",
    "one-order",
    fit_lr,
    predict_lr,
    gradient_lr,
    n_parameters=lambda d: 1 + d,
    default_strength=30.0,
    strengths=(5.0, 10.0, 20.0, 40.0, 80.0),
    is_linear=True,
    helpers=(),
)
FM = MaskFamily(
    "fm",
    "two-order",
    fit_fm,
    predict_fm,
    gradient_fm,
    n_parameters=lambda d: 1 + d + FM_RANK * d,
    default_strength=30.0,
    strengths=(10.0, 20.0, 40.0, 80.0),
    start=_fm_start,
    helpers=(fit_lr,),
)
NN = MaskFamily(
    "nn",
    "high-order",
    fit_nn,
    predict_nn,
    gradient_nn,
    n_parameters=lambda d: 1 + 2 * NN_HIDDEN + NN_HIDDEN * d,
    default_strength=4.0,
    strengths=(1.0, 2.0, 4.0, 8.0),
    start=_nn_start,
    helpers=(gradient_nn,),
)
