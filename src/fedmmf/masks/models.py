"""The private models: five families of masks, each trained on one party's ratings alone.

Every function here is plain numpy, because a party trains its mask with nothing else installed. The
same functions are also compiled (`engines.kernels.masks`) so that a simulation can train every
party at once; there is one body for both, so the results are the same. The trainer stays in this
file with what it calls, because numba's cache notices changes of a kernel's own file alone.

A model sees features x (n, d) and targets y (n,): ratings less the default user's, divided
by the span of the scale, so that one strength of regularisation means the same on every scale. Its
parameters are one flat vector theta. The shrinkage is the penalty of the intercept, in ratings.
What tells `lr`, `fm` and `nn` apart is what they see: `fm` and `nn` see interactions of features
besides (`feature_maps.py`), and have private weights for these too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array


def fit_none(x: Array, y: Array, strength: float, shrinkage: float) -> Array:
    """Return no parameters: the control that masks nothing."""
    return np.zeros(0)


def predict_none(x: Array, theta: Array) -> Array:
    """Return 0 for every row."""
    return np.zeros(len(x))


def fit_mean(x: Array, y: Array, strength: float, shrinkage: float) -> Array:
    """Fit a shrunken mean: minimise sum (y - b)^2 + strength b^2."""
    return np.full(1, y.sum() / (len(y) + strength))


def predict_mean(x: Array, theta: Array) -> Array:
    """Return the intercept for every row."""
    return np.full(len(x), theta[0])


def fit_lr(x: Array, y: Array, strength: float, shrinkage: float) -> Array:
    """Fit a ridge regression in closed form; theta = (b, w)."""
    n, d = x.shape
    normal = np.empty((d + 1, d + 1))
    moments = np.empty(d + 1)
    normal[0, 0] = n + shrinkage
    normal[0, 1:] = normal[1:, 0] = x.sum(axis=0)
    normal[1:, 1:] = x.T @ x + strength * np.eye(d)
    moments[0] = y.sum()
    moments[1:] = x.T @ y
    theta: Array = np.linalg.solve(normal, moments)
    return theta


def predict_lr(x: Array, theta: Array) -> Array:
    """Return b + w.x for every row. (n,)."""
    out: Array = theta[0] + x @ theta[1:]
    return out


def _trainer(fit: Callable[..., Array], predict: Callable[..., Array]) -> Callable[..., None]:
    """Make the function that trains many parties in turn, or a single one."""

    def train(
        indptr: Array,  # (n_users + 1,) where each user's ratings begin
        items: Array,  # (n,) rows of `features`
        features: Array,  # (n_items, d)
        targets: Array,  # (n,) centred, unit span
        penalties: Array,  # (s, 2) strength and shrinkage; who has a choice picks by held-out error
        n_folds: int,
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
                        strength, shrinkage = penalties[s]
                        part = fit(x[outside], y[outside], strength, shrinkage)
                        predicted[inside] = predict(x[inside], part)
                error = np.sum((y - predicted) ** 2)
                if error < best_error:
                    best_error, chosen[u] = error, s
                    held_out[begin:end] = predicted
            strength, shrinkage = penalties[chosen[u]]
            theta[u] = fit(x, y, strength, shrinkage)
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
    """A kind of private model: how to fit, apply and regularise it."""

    name: str
    order: str  # the paper's name for it
    fit: Callable[[Array, Array, float, float], Array]
    predict: Callable[[Array, Array], Array]
    n_parameters: Callable[[int], int]
    default_strength: float | None  # None: the shrinkage
    strengths: tuple[float, ...]  # what `auto` chooses from
    needs_features: bool = True
    is_centred: bool = True  # predicts around the default user's rating; else around 0
    is_linear: bool = False  # theta is an intercept and weights of the features, as far as it goes
    helpers: tuple[Callable[..., Any], ...] | None = None  # to compile first; None: stays numpy

    @property
    def is_empty(self) -> bool:
        """Whether there are no parameters, so that nothing is masked."""
        return self.n_parameters(1) == 0

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
    n_parameters=lambda d: 1 + d,
    default_strength=30.0,
    strengths=(5.0, 10.0, 20.0, 40.0, 80.0),
    is_linear=True,
    helpers=(),
)
# The same on more columns, which the strength must shrink.
FM = replace(
    LR,
    name="fm",
    order="two-order",
    default_strength=60.0,
    strengths=(15.0, 30.0, 60.0, 120.0),
)
NN = replace(FM, name="nn", order="high-order")
