"""Every party at once: the maths of `party` in fused kernels, in one process.

A round is two passes. The first goes over users: it moves p_u and leaves e'_ui behind. The second
goes over items: it sums eta_ui over each item's raters. Every user and every item is one thread's
own, so nothing is shared, nothing is atomic, and the result does not depend on the number of
threads.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np

from fedmmf import rng, threads, wire
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import ItemSums, Server, make_plan
from fedmmf.data import Ratings
from fedmmf.factorization import sgd
from fedmmf.masks import FittedMasks, fit_masks
from fedmmf.masks.crowd import Compiled
from fedmmf.masks.fitting import needs_streams

ROW_ENERGY = 1.6  # MovieLens genres and years have it as they are
MIN_RATINGS_TO_HOLD_OUT = 5  # a party with fewer trains on all it has

_jit = numba.njit(cache=True, nogil=True, fastmath=True)


@_jit
def _dot(a: Array, b: Array) -> Any:
    total = np.float32(0)
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@_jit
def _party_gradient(items: Array, masked: Array, q: Array, pu: Array, pull: Array) -> Array:
    """Sum of lambda (p - p0) - e q over one party's ratings; `pull` is the first part. (k,)."""
    gradient = pull
    for j in range(len(items)):
        qi = q[items[j]]
        error = masked[j] - _dot(qi, pu)
        for f in range(len(pu)):
            gradient[f] -= error * qi[f]
    return gradient


@_jit
def _descend(pu: Array, first: Array, second: Array, g: Array, n: Any, rule: Any) -> None:
    """`sgd.descend` for one party; `rule` is made by `Crowd._rule`."""
    step, rate, correct_first, correct_second = rule
    for f in range(len(pu)):
        if step == 0:
            pu[f] -= rate * g[f]
        elif step == 1:
            pu[f] -= rate * g[f] / n
        else:
            first[f] += np.float32(1 - sgd.ADAM_FIRST) * (g[f] - first[f])
            second[f] += np.float32(1 - sgd.ADAM_SECOND) * (g[f] * g[f] - second[f])
            scale = np.sqrt(second[f] / correct_second) + np.float32(sgd.ADAM_EPSILON)
            pu[f] -= rate * (first[f] / correct_first) / scale


@_jit
def _user_pass(
    begin: int,
    end: int,
    indptr: Array,
    items: Array,
    masked: Array,
    q: Array,
    p: Array,
    first: Array,
    second: Array,
    errors: Array,
    regularization: Any,
    prior: Array,
    rule: Any,
) -> None:
    """`sgd.party_update` up to e', for users begin..end."""
    for u in range(begin, end):
        a, b = indptr[u], indptr[u + 1]
        if a == b:
            continue
        pu, n = p[u], np.float32(b - a)
        pull = n * regularization * (pu - prior)
        gradient = _party_gradient(items[a:b], masked[a:b], q, pu, pull)
        _descend(pu, first[u], second[u], gradient, n, rule)
        for j in range(a, b):
            errors[j] = masked[j] - _dot(q[items[j]], pu)


@_jit
def _item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    errors: Array,
    p: Array,
    q: Array,
    regularization: Any,
    gradients: Array,
) -> None:
    """Sum eta_ui = lambda q_i - e'_ui p_u over the raters of items begin..end."""
    k = q.shape[1]
    for i in range(begin, end):
        total = gradients[i]
        n = np.float32(indptr[i + 1] - indptr[i])
        for f in range(k):
            total[f] = n * regularization * q[i, f]
        for j in range(indptr[i], indptr[i + 1]):
            pu = p[users[j]]
            error = errors[order[j]]
            for f in range(k):
                total[f] -= error * pu[f]


@_jit
def _pair_pass(
    begin: int, end: int, users: Array, items: Array, p: Array, q: Array, out: Array
) -> None:
    """Out = q_i . p_u for pairs begin..end."""
    for j in range(begin, end):
        out[j] = _dot(q[items[j]], p[users[j]])


def pair_scores(users: Array, items: Array, p: Array, q: Array) -> Array:
    """q_i . p_u for each pair. (n,)."""
    out = np.empty(len(users), np.float32)
    users, items = threads.frozen(users, np.int32), threads.frozen(items, np.int32)
    p, q = threads.frozen(p, np.float32), threads.frozen(q, np.float32)
    parts = threads.ranges(np.arange(len(users) + 1), threads.n_threads())
    _run(lambda begin, end: _pair_pass(begin, end, users, items, p, q, out), parts)
    return out


def _run(function: Callable[[int, int], None], parts: list[tuple[int, int]]) -> None:
    for _ in threads.for_each(function, parts):
        pass


def choose_held_out(ratings: Ratings, settings: Settings) -> Array:
    """Which ratings their parties keep for early stopping instead of training. (n,) bool."""
    draw = rng.stream(settings.seed, "held out").random(ratings.n_ratings)
    is_long = np.diff(ratings.by_user) >= MIN_RATINGS_TO_HOLD_OUT  # (n_users,)
    return np.asarray(is_long[ratings.user_codes] & (draw < settings.held_out))


def fit_all_masks(
    ratings: Ratings, settings: Settings, progress: Callable[[int], None] | None = None
) -> FittedMasks:
    """Train every party's private model on that party's ratings."""
    streams = []
    if needs_streams(settings.mask):
        streams = [mask_stream(settings.seed, user) for user in ratings.user_ids]
    return fit_masks(
        settings.mask,
        ratings.by_user,
        ratings.item_codes,
        ratings.values,
        feature_matrix(ratings),
        ratings.scale,
        strength=settings.mask_strength,
        folds=settings.folds,
        streams=streams,
        runner=Compiled(progress),
    )


def mask_stream(seed: int, user_id: object) -> np.random.Generator:
    """Where a simulated party takes its mask's random start from."""
    return rng.stream(seed, "mask", str(user_id))


def feature_matrix(ratings: Ratings) -> Array:
    """Item features as the masks take them; no columns where there are none. (n_items, d).

    All are scaled by one number, so that a strength of regularisation means the same for a few
    genres and for twenty components of tags: the mean squared length of a row becomes `ROW_ENERGY`.
    """
    if ratings.features is None:
        return np.zeros((ratings.n_items, 0))
    values = np.asarray(ratings.features.values, np.float64)
    energy = np.square(values).sum(axis=1).mean()
    return np.ascontiguousarray(values * np.sqrt(ROW_ENERGY / max(energy, 1e-12)))


def make_server(ratings: Ratings, settings: Settings) -> Server:
    """Set up the server for these ratings."""
    plan = make_plan(settings, ratings.scale.span, ratings.n_ratings / ratings.n_users)
    level = ratings.scale.midpoint if settings.mask == "none" else 0.0
    return Server(plan, settings, ratings.n_items, level)


class Crowd:
    """All parties of a simulation.

    Args:
        train: what the parties train on.
        masked_ratings: the same ratings, masked. (n,)
        factors: length of p_u.
        held_out: what they keep for early stopping, if anything.
        held_out_mask: f_u(i) of the held-out ratings. (n_held_out,)
    """

    def __init__(
        self,
        train: Ratings,
        masked_ratings: Array,
        factors: int,
        held_out: Ratings | None = None,
        held_out_mask: Array | None = None,
    ) -> None:
        self._ratings, self._masked = train, masked_ratings
        self._held_out, self._held_out_mask = held_out, held_out_mask
        self._users_by_item = train.user_codes[train.by_item.order]
        self._n_raters = np.diff(train.by_item.indptr)
        self._errors = np.zeros(train.n_ratings, np.float32)
        self._p = sgd.Factors.starting_at(sgd.start_user_factors(train.n_users, factors))
        self._best = self._p.value.copy()
        n_threads = threads.n_threads()
        self._user_parts = threads.ranges(train.by_user, n_threads)
        self._item_parts = threads.ranges(train.by_item.indptr, n_threads)

    @property
    def user_factors(self) -> Array:
        """p_u of everybody. (n_users, k)."""
        return self._p.value

    def sums(self, message: wire.Round) -> ItemSums:
        """Take part in a round."""
        self._remember_best(message)
        self._update_users(message)
        gradients = self._sum_gradients(message)
        n_held_out, squared_error = self._held_out_error(message.item_factors)
        return ItemSums(gradients, self._n_raters, n_held_out, squared_error)

    def finish(self, message: wire.Round) -> None:
        """Go back to the p_u of the best round, where there is one."""
        self._remember_best(message)
        if message.best_round:
            self._p.value[:] = self._best

    def _remember_best(self, message: wire.Round) -> None:
        if message.best_round and message.best_round == message.round - 1:
            self._best[:] = self._p.value

    def _update_users(self, message: wire.Round) -> None:
        p, prior = self._p, sgd.user_prior(message.plan)
        arrays = (self._ratings.by_user, self._ratings.item_codes, self._masked)
        state = (message.item_factors, p.value, p.first, p.second, self._errors)
        rule = self._rule(message.plan, message.round)
        weight = np.float32(message.plan.regularization)
        _run(
            lambda begin, end: _user_pass(begin, end, *arrays, *state, weight, prior, rule),
            self._user_parts,
        )

    @staticmethod
    def _rule(plan: sgd.Plan, t: int) -> tuple[int, Any, Any, Any]:
        """Step, rate and Adam's corrections of round t, as the kernels take them."""
        correct_first, correct_second = 1 - sgd.ADAM_FIRST**t, 1 - sgd.ADAM_SECOND**t
        numbers = np.array((plan.learning_rate, correct_first, correct_second), np.float32)
        return sgd.STEPS.index(plan.step), numbers[0], numbers[1], numbers[2]

    def _sum_gradients(self, message: wire.Round) -> Array:
        by_item, q = self._ratings.by_item, message.item_factors
        gradients = np.empty_like(q)
        arrays = (by_item.indptr, by_item.order, self._users_by_item, self._errors)
        factors = (self._p.value, q, np.float32(message.plan.regularization), gradients)
        _run(lambda begin, end: _item_pass(begin, end, *arrays, *factors), self._item_parts)
        return gradients

    def _held_out_error(self, q: Array) -> tuple[int, float]:
        held_out = self._held_out
        if held_out is None:
            return 0, 0.0
        scores = pair_scores(held_out.user_codes, held_out.item_codes, self._p.value, q)
        predicted = held_out.scale.clip(scores + self._held_out_mask)
        squares = np.square(held_out.values - predicted, dtype=np.float64)
        return held_out.n_ratings, float(squares.sum())

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round, for a checkpoint."""
        p = self._p
        values = {"value": p.value, "first": p.first, "second": p.second, "best": self._best}
        return {f"crowd/{name}": value for name, value in values.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        parts = ("value", "first", "second")
        self._p = sgd.Factors(*(state[f"crowd/{part}"].copy() for part in parts))
        self._best = state["crowd/best"].copy()
