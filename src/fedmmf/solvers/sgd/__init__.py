"""The paper's federated SGD, equation by equation; numpy only.

`party_update` is what a party computes in one round, `descend` is how a vector of factors moves
along a summed gradient, on the party and on the server alike. Errata 2 and 3 give the signs and the
order that we read into Eq. 7 and Algorithm 1.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale
from fedmmf.solvers.contract import (
    MAX_NUMBER,
    MAX_TOTAL,
    Bounds,
    Broadcast,
    ItemSums,
    SolverContext,
    UpdateShape,
    UserData,
    require_small,
    require_valid_broadcast,
    unrated,
)

STEPS = ("sum", "mean", "adam")
DEFAULT_RATES = {"sum": 0.0005, "mean": 0.2, "adam": 0.02}
ADAM_FIRST, ADAM_SECOND, ADAM_EPSILON = 0.9, 0.999, 1e-8
N_PLAN = 6  # parameters of a plan
MIN_VARIANCE = 1e-6  # smallest variance of an entry of p_u over users
INITIAL_SPREAD = 0.1  # standard deviation of the item factors at the start


@dataclass(frozen=True)
class SgdPlan:
    """Public parameters of the run, the same in every round."""

    step: int  # index into STEPS
    learning_rate: float
    regularization: float
    user_prior: float
    biases: float  # 1: p_u0 and q_i1 are pinned to 1, so that q_i0 and p_u1 are biases; else 0
    ratings_per_user: float = 0.0

    def to_parameters(self, users: "AllUsers") -> Array:
        """Return the plan and what is known of all p_u as parameters of a broadcast."""
        return np.concatenate((np.array(astuple(self), np.float64), users.mean, users.weight))

    @classmethod
    def of(cls, broadcast: Broadcast) -> "SgdPlan":
        """Read the plan back from a broadcast's parameters."""
        step, *numbers = broadcast.parameters[:N_PLAN].tolist()
        return cls(int(step), *numbers)

    @classmethod
    def filled_in(cls, settings: Any, context: SolverContext) -> "SgdPlan":
        """Return the settings' numbers, with values for those that are `auto`."""
        rate, regularization = settings.learning_rate, settings.regularization
        if rate == "auto":
            rate = DEFAULT_RATES[settings.step]
        if regularization == "auto":
            regularization = auto_regularization(context.span, context.ratings_per_user)
        step = STEPS.index(settings.step)
        numbers = (settings.user_prior, float(settings.biases), context.ratings_per_user)
        return cls(step, rate, regularization, *numbers)

    def prior(self, rank: int) -> Array:
        """Return p0, towards which p_u is shrunk; zero is the paper's rule. (k,)."""
        prior = np.zeros(rank, np.float32)
        prior[0] = self.user_prior
        return prior


@dataclass(frozen=True, eq=False)
class AllUsers:
    """Mean of all p_u, and its weight as a prior."""

    mean: Array  # (k,)
    weight: Array  # prior weight of the mean, in ratings, for users who join late (k,)

    @classmethod
    def of(cls, broadcast: Broadcast) -> "AllUsers":
        """Read the mean and its weight back from a broadcast's parameters."""
        return cls(*np.split(broadcast.parameters[N_PLAN:], 2))

    @classmethod
    def of_totals(cls, totals: Array, span: float) -> "AllUsers":
        """Compute mean and weight from totals, for ratings' noise of a quarter of the scale."""
        mean, square = np.split(totals[1:] / totals[0], 2)
        variance = np.maximum(square - mean * mean, MIN_VARIANCE)
        return cls(mean, (span / 4.0) ** 2 / variance)

    @staticmethod
    def totals_of(p: Array) -> Array:
        """Return what each user adds: 1, p_u and its squares. (..., k) -> (..., 1 + 2 k)."""
        p = p.astype(np.float64)
        return np.concatenate((np.ones((*p.shape[:-1], 1)), p, p * p), axis=-1)


@dataclass
class Factors:
    """Factors that are being learned, with the moments that Adam keeps of their gradients."""

    value: Array  # (..., k) float32
    first: Array
    second: Array

    @classmethod
    def starting_at(cls, value: Array) -> "Factors":
        """Begin at `value` with zero moments."""
        return cls(value, np.zeros_like(value), np.zeros_like(value))

    def state(self) -> dict[str, Array]:
        """Return copies of the three arrays by name."""
        return {name: value.copy() for name, value in vars(self).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, Array]) -> "Factors":
        """Copy factors and moments out of a state that `state` returned."""
        return cls(*(state[name].copy() for name in ("value", "first", "second")))


def start_user_factors(n_users: int, rank: int) -> Array:
    """Return (1, 0, ..., 0) for every party: q_i0 then acts as the item's bias from round 1."""
    start = np.zeros((n_users, rank), np.float32)
    start[:, 0] = 1.0
    return start


def auto_regularization(span: float, ratings_per_user: float) -> float:
    """Heuristic of ours: the best weighted lambda falls with the square root of the ratings.

    lambda multiplies the number of ratings (errata 4), so a fixed value over-regularises users with
    long histories. span/4 makes it mean the same on every scale (1..5 has span 4).
    """
    return span / 4.0 / float(np.sqrt(max(ratings_per_user, 1.0)))


def descend(factors: Factors, gradient: Array, count: Array | int, plan: SgdPlan, t: int) -> None:
    """Move `factors` in place along a gradient summed over `count` ratings, in round t >= 1.

    sum: the paper's step (Alg. 1). mean: divided by the number of summands (errata 5). adam: Kingma
    and Ba 2015, Algorithm 1.
    """
    rate = np.float32(plan.learning_rate)
    if STEPS[plan.step] == "sum":
        factors.value -= rate * gradient
    elif STEPS[plan.step] == "mean":
        factors.value -= rate * gradient / np.maximum(count, 1).astype(np.float32)
    else:
        factors.first += np.float32(1 - ADAM_FIRST) * (gradient - factors.first)
        factors.second += np.float32(1 - ADAM_SECOND) * (gradient * gradient - factors.second)
        first = factors.first / np.float32(1 - ADAM_FIRST**t)
        second = factors.second / np.float32(1 - ADAM_SECOND**t)
        factors.value -= rate * first / (np.sqrt(second) + np.float32(ADAM_EPSILON))


def scores(q: Array, p: Array) -> Array:
    """Return q_i . p for each row of q. (n,).

    Not `q @ p`: for short float32 rows OpenBLAS now and then flags an invalid value that is in no
    result, and numpy then warns (numpy issue 24067 has the same for other shapes).
    """
    return np.asarray(np.einsum("ij,j->i", q, p))


def party_update(masked_ratings: Array, q: Array, p: Factors, plan: SgdPlan, t: int) -> Array:
    """Compute one party's round: update p_u in place, return eta_ui for its rated items.

    Args:
        masked_ratings: r_ui - f_u(i). (n,)
        q: factors of the rated items, from the server. (n, k)
        p: the party's own factors. (k,)
        plan: the run's public plan.
        t: number of the round, from 1.

    Returns:
        eta_ui = lambda q_i - e'_ui p_u, with e' after the update of p_u. (n, k)
    """
    error = masked_ratings - scores(q, p.value)  # (n,)
    prior = plan.prior(len(p.value))
    gradient = np.float32(len(error) * plan.regularization) * (p.value - prior)
    gradient -= np.einsum("i,ij->j", error, q)
    if plan.biases:
        gradient[0] = 0.0
    descend(p, gradient, len(error), plan, t)
    error = masked_ratings - scores(q, p.value)
    return np.float32(plan.regularization) * q - np.outer(error, p.value)


def solved_factors(masked_ratings: Array, q: Array, plan: SgdPlan, users: AllUsers) -> Array:
    """Solve for p_u, given fixed item factors and the mean of all users as prior.

    p = argmin sum (r - q.p)^2 + sum_f w_f (p_f - p0_f)^2, with p0 the mean of all users, and
    p_u0 = 1 where there are biases. (k,)

    Raises:
        OverflowError: there is no such p, or its numbers are too large.
    """
    q = q.astype(np.float64)
    prior, weight = np.array(users.mean, np.float64), np.array(users.weight, np.float64)
    if plan.biases:
        prior[0], weight[0] = 1.0, 1e9
    normal = q.T @ q + np.diag(weight)
    try:
        moved = np.linalg.solve(normal, q.T @ (masked_ratings - q @ prior))
    except np.linalg.LinAlgError as error:
        raise OverflowError("a user's linear system has no solution") from error
    found = np.asarray(prior + moved, np.float32)
    require_small([found], MAX_NUMBER)
    return found


class SgdParty:
    """The party's half of `sgd`, for one user."""

    def __init__(self, rank: int) -> None:
        self._p = Factors.starting_at(start_user_factors(1, rank)[0])

    @property
    def user_factors(self) -> Array:
        """Factors p_u of this user. (k,)."""
        return self._p.value

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p.value[:] = value

    def update(self, own: UserData, reading: Broadcast, t: int) -> tuple[Array, Array]:
        """Compute MaskedUpdate of Algorithm 1; the totals are for the mean of all p_u."""
        q, plan = reading.item_factors[own.items], SgdPlan.of(reading)
        if len(own.items) == 0:
            return np.zeros_like(q), np.zeros(1 + 2 * len(self._p.value))
        moved = Factors.from_state(vars(self._p))
        rows = party_update(own.masked_ratings, q, moved, plan, t)
        totals = AllUsers.totals_of(moved.value)
        require_small([rows, moved.value, moved.first, moved.second], MAX_NUMBER)
        require_small([totals], MAX_TOTAL)
        self._p = moved
        return rows, totals

    def solve_user(self, own: UserData, reading: Broadcast) -> None:
        """Compute p_u for fixed item factors."""
        q, plan = reading.item_factors[own.items], SgdPlan.of(reading)
        self.user_factors = solved_factors(own.masked_ratings, q, plan, AllUsers.of(reading))

    def state(self) -> dict[str, Array]:
        """Return copies of the factors and of Adam's moments."""
        return self._p.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore factors and Adam's moments from a state."""
        self._p = Factors.from_state(state)


class SgdServer:
    """The server's half of `sgd`.

    Args:
        plan: the run's public plan.
        context: what it starts from.
        rank: k.
    """

    def __init__(self, plan: SgdPlan, context: SolverContext, rank: int) -> None:
        self._plan = plan
        start = np.zeros(rank, np.float32)
        start[0] = context.level
        shape, spread = (context.n_items, rank), np.float32(INITIAL_SPREAD)
        noise = context.stream.standard_normal(shape, np.float32) * spread
        if plan.biases:
            start[1], noise[:, 1] = 1.0, 0.0
        self._q = Factors.starting_at(noise + start)
        self._is_rated = np.zeros(context.n_items, bool)  # whether in some round
        self._span, weight = context.span, plan.ratings_per_user * plan.regularization
        mean = start_user_factors(1, rank)[0].astype(np.float64)
        self._users = AllUsers(mean, np.full(rank, max(weight, 1e-6)))

    def broadcast(self) -> Broadcast:
        """Return plan and item factors; the next round does not change this copy."""
        value = self._q.value.copy()
        return Broadcast(value.shape[1], self._plan.to_parameters(self._users), value)

    def advance(self, sums: ItemSums, t: int) -> None:
        """Update q_i <- q_i - gamma sum_u eta_ui (Alg. 1)."""
        rows = np.asarray(sums.rows, np.float32)
        if self._plan.biases:
            rows = rows.copy()
            rows[:, 1] = 0.0
        descend(self._q, rows, sums.n_raters[:, np.newaxis], self._plan, t)
        if sums.totals[0] >= 1:  # with differential privacy, noise hides the number of users
            self._users = AllUsers.of_totals(np.asarray(sums.totals, np.float64), self._span)
        self._is_rated |= ~unrated(sums)
        if self._is_rated.any():
            self._q.value[~self._is_rated] = self._q.value[self._is_rated].mean(axis=0)

    def check(self, broadcast: Broadcast) -> None:
        """Raise `WireError` unless the plan's numbers are in range."""
        SGD.check(SGD.update_shape(broadcast.rank, ""), broadcast)

    def unknown(self, regressors: Array) -> Array:
        """Return the mean of all items for each unknown item. (n, k)."""
        return np.tile(self._q.value.mean(axis=0), (len(regressors), 1))

    def state(self) -> dict[str, Array]:
        """Return the factors and their moments, and what is known of all p_u."""
        users = {"mean_user": self._users.mean, "user_weight": self._users.weight}
        return self._q.state() | users | {"is_rated": self._is_rated.copy()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore factors, moments and what is known of all p_u."""
        self._q = Factors.from_state(state)
        self._users = AllUsers(state["mean_user"], state["user_weight"])
        self._is_rated = state["is_rated"].copy()


class Sgd:
    """The solver `sgd`: both halves and their declarations."""

    name, ring = "sgd", "2^32"
    default_rounds, default_held_out = 200, 0.05
    may_be_clear = may_be_noisy = True
    ranks = joins_masks = False
    spans = (0.0, np.inf)
    sums_as = "sums"

    def rank(self, settings: Any) -> int:
        """Return the number of factors, plus two where biases are learned."""
        return int(settings.factors + 2 * settings.biases)

    def variant(self, settings: Any, n_profile: int, n_columns: int, n_levels: int) -> str:
        """Return an empty string, since `sgd` has one variant only."""
        return ""

    def divergence_hint(self, settings: Any) -> str:
        """Return the step rule and the learning rate, which may be too large."""
        better = "Lower the learning rate" + ", use step 'adam'" * (settings.step != "adam")
        return (
            f", step {settings.step!r} and learning_rate {settings.learning_rate}. {better}, or "
            "divide the ratings if they are large."
        )

    def update_shape(self, rank: int, variant: str) -> UpdateShape:
        """Return the shape: a gradient has k entries, and so have mean and weight of all p_u."""
        require_valid_broadcast(variant == "", f"sgd has no variant; got {variant[:40]!r}")
        sizes = {"n_parameters": N_PLAN + 2 * rank, "n_totals": 1 + 2 * rank}
        return UpdateShape(rank, width=rank, broadcast_width=rank, **sizes)

    def bounds(self, span: float) -> Bounds:
        """Return bounds: gradients are a few spans, squared errors some squared spans."""
        return Bounds(row=4.0 * span, total=2.0**10 * max(span, 1.0) ** 2)

    def check(self, update_shape: UpdateShape, broadcast: Broadcast) -> None:
        """Raise `WireError` unless the plan's numbers are in range."""
        step, rate, regularization, _, biases, per_user = broadcast.parameters[:N_PLAN].tolist()
        require_valid_broadcast(
            step in range(len(STEPS)), f"the step is one of {STEPS}; got {step:g}"
        )
        require_valid_broadcast(0 < rate <= 1e6, f"the learning rate is in (0, 1e6]; got {rate:g}")
        is_weight = 0 <= regularization <= 1e6
        require_valid_broadcast(is_weight, f"lambda is in [0, 1e6]; got {regularization:g}")
        users = AllUsers.of(broadcast)
        is_usual = bool((np.abs(users.mean) <= 1e6).all() and (users.weight > 0).all())
        require_valid_broadcast(
            is_usual, "the mean of all users is within 1e6, and its weight positive"
        )
        require_valid_broadcast(
            0 <= per_user < 1e9, f"users have ratings; got {per_user:g} on average"
        )
        is_switch = biases in (0, 1) and broadcast.rank > biases
        require_valid_broadcast(is_switch, f"biases are 0, or 1 with two factors; got {biases:g}")

    def reading(self, update_shape: UpdateShape, broadcast: Broadcast, design: Array) -> Broadcast:
        """Return the broadcast itself, since nothing has to be precomputed."""
        return broadcast

    def party(self, update_shape: UpdateShape) -> SgdParty:
        """Make a party's half before its first round."""
        return SgdParty(update_shape.rank)

    def server(self, settings: Any, update_shape: UpdateShape, context: SolverContext) -> SgdServer:
        """Make the server's half before the first round."""
        return SgdServer(SgdPlan.filled_in(settings, context), context, update_shape.rank)

    def default_user(self, update_shape: UpdateShape, broadcast: Broadcast) -> Array:
        """Factors of the default user: the mean of all p_u. (k,)."""
        return np.asarray(AllUsers.of(broadcast).mean, np.float32)

    def ratings_of(
        self, update_shape: UpdateShape, broadcast: Broadcast, scores: Array, scale: RatingScale
    ) -> Array:
        """Clip scores to the rating scale. (n,)."""
        return np.asarray(scale.clip(scores))


SGD = Sgd()
