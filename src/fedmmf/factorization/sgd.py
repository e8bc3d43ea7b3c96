"""The paper's federated SGD, equation by equation; numpy only.

`party_update` is what a party computes in one round, `descend` is how a vector of factors moves
along a summed gradient, on the party and on the server alike. Errata 2 and 3 give the signs and the
order that we read into Eq. 7 and Algorithm 1.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array

STEPS = ("sum", "mean", "adam")
DEFAULT_RATES = {"sum": 0.0005, "mean": 0.2, "adam": 0.02}
ADAM_FIRST, ADAM_SECOND, ADAM_EPSILON = 0.9, 0.999, 1e-8
START_LEVEL = 1.0  # the first user factor at the start; the others start at 0
INITIAL_SPREAD = 0.1  # standard deviation of the item factors at the start


@dataclass(frozen=True)
class Plan:
    """What every party of a run has to know; public."""

    factors: int
    step: str
    learning_rate: float
    regularization: float
    user_prior: float


@dataclass
class Factors:
    """Factors that are being learned, with the moments that Adam keeps of their gradients."""

    value: Array  # (..., k) float32
    first: Array
    second: Array

    @classmethod
    def starting_at(cls, value: Array) -> "Factors":
        """Begin from `value` with empty moments."""
        return cls(value, np.zeros_like(value), np.zeros_like(value))


def start_user_factors(n_users: int, factors: int) -> Array:
    """Every party starts at (1, 0, ..., 0): q_i0 can then act as the item's bias from round one."""
    start = np.zeros((n_users, factors), np.float32)
    start[:, 0] = START_LEVEL
    return start


def start_item_factors(rng: np.random.Generator, n_items: int, factors: int, level: float) -> Array:
    """Small random factors; `level` is the rating that a starting party then predicts."""
    start = rng.standard_normal((n_items, factors), np.float32) * np.float32(INITIAL_SPREAD)
    start[:, 0] += np.float32(level / START_LEVEL)
    return start


def auto_regularization(span: float, ratings_per_user: float) -> float:
    """Heuristic of ours: the best weighted lambda falls with the square root of the ratings.

    lambda multiplies the number of ratings (errata 4), so a fixed value over-regularises users with
    long histories. span/4 makes it mean the same on every scale (1..5 has span 4).
    """
    return span / 4.0 / float(np.sqrt(max(ratings_per_user, 1.0)))


def user_prior(plan: Plan) -> Array:
    """Return p0, what p_u is shrunk towards; zero is the paper's rule."""
    prior = np.zeros(plan.factors, np.float32)
    prior[0] = plan.user_prior
    return prior


def descend(factors: Factors, gradient: Array, count: Array | int, plan: Plan, t: int) -> None:
    """Move `factors` in place along a gradient summed over `count` ratings, in round t >= 1.

    sum: the paper's step (Alg. 1). mean: divided by the number of summands (errata 5). adam: Kingma
    and Ba 2015, Algorithm 1.
    """
    rate = np.float32(plan.learning_rate)
    if plan.step == "sum":
        factors.value -= rate * gradient
    elif plan.step == "mean":
        factors.value -= rate * gradient / np.maximum(count, 1).astype(np.float32)
    else:
        factors.first += np.float32(1 - ADAM_FIRST) * (gradient - factors.first)
        factors.second += np.float32(1 - ADAM_SECOND) * (gradient * gradient - factors.second)
        first = factors.first / np.float32(1 - ADAM_FIRST**t)
        second = factors.second / np.float32(1 - ADAM_SECOND**t)
        factors.value -= rate * first / (np.sqrt(second) + np.float32(ADAM_EPSILON))


def party_update(
    masked_ratings: Array, item_factors: Array, p: Factors, plan: Plan, t: int
) -> Array:
    """One party's round: update p_u in place, return eta_ui for its rated items.

    Args:
        masked_ratings: r_ui - f_u(i). (n,)
        item_factors: q_i of the rated items, from the server. (n, k)
        p: the party's own factors. (k,)
        plan: the run's public plan.
        t: number of the round, from 1.

    Returns:
        eta_ui = lambda q_i - e'_ui p_u, with e' after the update of p_u. (n, k)
    """
    error = masked_ratings - item_factors @ p.value  # (n,)
    pull = np.float32(len(error) * plan.regularization) * (p.value - user_prior(plan))
    descend(p, pull - error @ item_factors, len(error), plan, t)
    error = masked_ratings - item_factors @ p.value
    return np.float32(plan.regularization) * item_factors - np.outer(error, p.value)


def solve_user_factors(masked_ratings: Array, item_factors: Array, plan: Plan) -> Array:
    """Where the party's updates lead while the item factors stay fixed; for who joins later.

    p = argmin sum (r - q.p)^2 + n lambda |p - p0|^2. (k,)
    """
    q = item_factors.astype(np.float64)
    prior = user_prior(plan).astype(np.float64)
    weight = max(len(q) * plan.regularization, 1e-6)
    normal = q.T @ q + weight * np.eye(plan.factors)
    moved = np.linalg.solve(normal, q.T @ (masked_ratings - q @ prior))
    return np.asarray(prior + moved, np.float32)
