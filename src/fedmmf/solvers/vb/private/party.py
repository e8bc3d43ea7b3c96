"""The party's half of `vb` under noise: the posterior of p_u and mask weights, and what leaves."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL, UserData, require_small
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.reading import PrivateReading
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.shapes import pack, unpack

ROWS_GAIN = math.sqrt(1.0 - plan.TOTALS_PART)
MEANS_GAINS = (math.sqrt(plan.COUNTS_PART), math.sqrt(1.0 - plan.COUNTS_PART))


def totals_gain(n_joint: int) -> float:
    """Length of each block of totals over the clip: blocks share their part evenly."""
    return math.sqrt(plan.TOTALS_PART / (4 if n_joint else 2))


def starting_user(update_shape: PrivateShape) -> Array:
    """Factors of a user before the first round: 1 for the item's bias. (n_own,) float32."""
    start = np.zeros(update_shape.n_own, np.float32)
    start[0] = 1.0
    return start


@dataclass(frozen=True, eq=False)
class Posterior:
    """What a party knows of p_u and its mask weights, given the items."""

    mean: Array  # (a + j,)
    covariance: Array  # (a + j, a + j)
    error: Array  # of each rating (n,)


class PrivateParty:
    """The party's half of `vb` under noise, for one user."""

    def __init__(self, update_shape: PrivateShape) -> None:
        self._update_shape = update_shape
        self.user_factors = starting_user(update_shape)

    def update(self, own: UserData, reading: PrivateReading, t: int) -> tuple[Array, Array]:
        """Return the rows and totals of the stage that the broadcast names."""
        shape = self._update_shape
        rows, totals = np.zeros((len(own.items), shape.width)), np.zeros(shape.n_totals)
        moved = self.user_factors
        if len(own.items) and reading.stage == plan.COUNTS:
            rows[:, 0] = reading.clip / np.sqrt(len(own.items))
        elif len(own.items) and reading.stage == plan.MEANS:
            rows[:, :2] = _means(own, reading)
        elif len(own.items):
            found = _posterior(own, reading)
            rows[:, : 1 + reading.n_active] = _gradients(own, reading, found)
            totals = self._totals(reading, found)
            moved = self._own(reading, found)
        require_small([rows, moved], MAX_NUMBER)
        require_small([totals], MAX_TOTAL)
        self.user_factors = moved
        return rows.astype(np.float32), totals

    def solve_user(self, own: UserData, reading: PrivateReading) -> None:
        """Compute the posterior mean of p_u and mask weights for fixed item factors."""
        moved = self._own(reading, _posterior(own, reading))
        require_small([moved], MAX_NUMBER)
        self.user_factors = moved

    def _own(self, reading: PrivateReading, found: Posterior) -> Array:
        """Entries of the user's vector: 1, p_u, zeros for unused factors, mask. (n_own,)."""
        moved, a = starting_user(self._update_shape), reading.n_active
        moved[1 : 1 + a] = found.mean[:a]
        moved[self._update_shape.rank :] = found.mean[a:]
        return moved

    def _totals(self, reading: PrivateReading, found: Posterior) -> Array:
        """Moments of p_u and its covariances, each block clipped to its public bound."""
        shape, a, j = self._update_shape, reading.n_active, self._update_shape.n_joint
        p, k = np.zeros(shape.rank - 1), shape.rank - 1
        p[:a] = _shortened(found.mean[:a], plan.MAX_USER)
        covariance, cross = np.zeros((k, k)), np.zeros((k, j))
        covariance[:a, :a] = found.covariance[:a, :a]
        cross[:a] = found.covariance[:a, a:] / reading.unit
        moments = _shortened(np.concatenate((p, pack(np.outer(p, p)))), plan.BOUNDS["moments"])
        level = found.mean[a : a + (j > 0)] / reading.unit
        blocks = {
            "moments": moments,
            "covariance": _shortened(pack(covariance), plan.BOUNDS["covariance"]),
            "cross": _shortened(cross.ravel(), plan.BOUNDS["cross"]),
            "level": _shortened(level, plan.BOUNDS["level"]),
        }
        gain = reading.clip * totals_gain(j)
        scaled = [gain / plan.BOUNDS[name] * block for name, block in blocks.items()]
        return np.concatenate(scaled)

    def state(self) -> dict[str, Array]:
        """Return a copy of the user's vector."""
        return {"value": self.user_factors.copy()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the user's vector from a state."""
        self.user_factors = state["value"].copy()


def _shortened(vector: Array, length: float) -> Array:
    """Shrink a vector to that length at most."""
    found = float(np.sqrt(np.sum(vector * vector)))
    return np.asarray(vector * (length / found)) if found > length else vector


def _weights(own: UserData, reading: PrivateReading) -> Array:
    """Weights w_ui of the rated items, of length 1 together. (n,)."""
    weights = reading.weight[own.items]
    return np.asarray(weights / np.sqrt(np.sum(weights * weights)))


def _means(own: UserData, reading: PrivateReading) -> Array:
    """Weights, and weighted ratings around the party's own mean, clipped as one vector. (n, 2)."""
    weights, error = _weights(own, reading), own.masked_ratings - reading.middle
    if reading.update_shape.n_joint:  # the intercept of the mask, were it all of it
        tau, a = reading.tau, reading.n_active
        error = error - error.sum() / (len(error) + tau * reading.precision[a])
    errors = _shortened(weights * error / reading.unit, reading.clip)
    return np.column_stack((MEANS_GAINS[0] * reading.clip * weights, MEANS_GAINS[1] * errors))


def _posterior(own: UserData, reading: PrivateReading) -> Posterior:
    """Posterior of p_u and mask weights together; items with uncertain biases weigh less.

    Raises:
        OverflowError: the user's linear system has no solution.
    """
    a, items = reading.n_active, own.items
    mean, known = reading.mean[items], reading.design[items]
    spread = unpack(reading.covariance[items], 1 + a)  # (n, 1 + a, 1 + a)
    columns = np.hstack((mean[:, 1:], known))  # (n, a + j)
    weight = 1.0 / (reading.tau + spread[:, 0, 0])
    rest = own.masked_ratings - mean[:, 0]
    precision = (weight[:, np.newaxis] * columns).T @ columns + np.diag(reading.precision)
    precision[:a, :a] += np.einsum("n,nij->ij", weight, spread[:, 1:, 1:])
    right = (weight * rest) @ columns + reading.precision * reading.prior
    right[:a] -= weight @ spread[:, 0, 1:]
    try:
        half = np.linalg.inv(np.linalg.cholesky(precision))
    except np.linalg.LinAlgError as error:
        raise OverflowError("a user's linear system has no solution") from error
    covariance = half.T @ half
    found = covariance @ right
    return Posterior(found, covariance, rest - columns @ found)


def _gradients(own: UserData, reading: PrivateReading, found: Posterior) -> Array:
    """Weighted errors times (1, p_u), clipped as one vector. (n, 1 + a)."""
    p = _shortened(found.mean[: reading.n_active], plan.MAX_USER)
    errors = _weights(own, reading) * found.error / reading.unit
    rows = np.outer(errors, np.concatenate(([1.0], p)))
    return np.asarray(ROWS_GAIN * _shortened(rows, reading.clip))
