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
from fedmmf.solvers.vb.shapes import pack

ROWS_GAIN = math.sqrt(1.0 - plan.TOTALS_PART)
MEANS_GAINS = (math.sqrt(plan.COUNTS_PART), math.sqrt(1.0 - plan.COUNTS_PART))


def totals_gain(update_shape: PrivateShape) -> float:
    """Length of each block of totals over the clip: blocks share their part evenly."""
    n_of_masks = 0 if not update_shape.n_joint else 1 if update_shape.ranks else 2
    return math.sqrt(plan.TOTALS_PART / (2 + n_of_masks))


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
    error: Array  # of each rating; in lists, less what counts as unrated anyway (n,)


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
            rows[:, 0] = _counts(own, reading)
        elif len(own.items) and reading.stage == plan.MEANS:
            rows[:, :2] = _means(own, reading)
        elif len(own.items):
            found = _posterior(own, reading)
            rows[:, : 1 + reading.n_active] = _gradients(own, reading, found)
            totals = _totals(reading, found, _share(own, reading))
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


def _counts(own: UserData, reading: PrivateReading) -> Array:
    """The same number for each rated item; in lists, in proportion to its value. (n,)."""
    if not reading.update_shape.ranks:
        return np.full(len(own.items), reading.clip / np.sqrt(len(own.items)))
    values = (own.masked_ratings - reading.unrated_value).astype(np.float64)
    return np.asarray(reading.clip * values / max(np.sqrt(np.sum(values * values)), 1e-300))


def _weights(own: UserData, reading: PrivateReading) -> Array:
    """Weights w_ui of the rated items, of length 1 together. (n,)."""
    weights = reading.weight[own.items]
    return np.asarray(weights / np.sqrt(np.sum(weights * weights)))


def _share(own: UserData, reading: PrivateReading) -> float:
    """Weight of the user in the totals: 1, or in lists w_u, over what is usual."""
    if not reading.update_shape.ranks:
        return 1.0
    weights = reading.weight[own.items]
    return float(1.0 / (np.sqrt(np.sum(weights * weights)) * reading.usual_weight))


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

    In lists every item counts as unrated, and the rated ones by their additional weight.

    Raises:
        OverflowError: the user's linear system has no solution.
    """
    part = 1.0 - reading.unrated_weight
    ratings = own.masked_ratings - reading.unrated_weight * reading.unrated_value
    rated, unrated = reading.evidence(own.items, ratings, part), reading.unrated
    precision = rated.precision + unrated.precision + np.diag(reading.precision)
    try:
        half = np.linalg.inv(np.linalg.cholesky(precision))
    except np.linalg.LinAlgError as error:
        raise OverflowError("a user's linear system has no solution") from error
    covariance = half.T @ half
    found = covariance @ (rated.first + unrated.first + reading.precision * reading.prior)
    scores = reading.mean[own.items, 0] + reading.columns(own.items) @ found
    return Posterior(found, covariance, ratings - part * scores)


def _gradients(own: UserData, reading: PrivateReading, found: Posterior) -> Array:
    """Weighted errors times (1, p_u), clipped as one vector. (n, 1 + a)."""
    p = _shortened(found.mean[: reading.n_active], plan.MAX_USER)
    reach = plan.constants(ranks=reading.update_shape.ranks).reach
    errors = _weights(own, reading) * found.error / (reading.unit * reach)
    rows = np.outer(errors, np.concatenate(([1.0], p)))
    return np.asarray(ROWS_GAIN * _shortened(rows, reading.clip))


def _totals(reading: PrivateReading, found: Posterior, share: float) -> Array:
    """Moments of p_u and its covariances, each block clipped to its public bound. (n_totals,)."""
    shape, a = reading.update_shape, reading.n_active
    k, j, bounds = shape.rank - 1, shape.n_joint, plan.constants(ranks=shape.ranks).bounds
    p, covariance = np.zeros(k), np.zeros((k, k))
    p[:a] = _shortened(found.mean[:a], plan.MAX_USER)
    covariance[:a, :a] = found.covariance[:a, :a]
    if shape.ranks:
        cross, level = np.outer(np.concatenate(([1.0], p)), found.mean[a:]), np.zeros(0)
    else:
        cross, level = np.zeros((k, j)), found.mean[a : a + (j > 0)]
        cross[:a] = found.covariance[:a, a:]
    blocks = {
        "moments": np.concatenate((p, pack(np.outer(p, p)))),
        "covariance": pack(covariance),
        "cross": cross.ravel() / reading.unit,
        "level": level / reading.unit,
    }
    gain = reading.clip * totals_gain(shape)
    scaled = [
        gain / bounds[name] * _shortened(share * blocks[name], bounds[name]) for name in blocks
    ]
    return np.concatenate(scaled)
