"""`sgd` for every party at once, in fused kernels.

A round is two passes. The first goes over users: it moves p_u and leaves e'_ui behind. The second
goes over items: it sums eta_ui over each item's raters. Every user and every item is one thread's
own, so nothing is shared, nothing is atomic, and the result does not depend on the number of
threads.
"""

from collections.abc import Mapping
from typing import Any

import numba
import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CrowdInput, CrowdUpdate, require_finite
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.orders import Raters, orders_of
from fedmmf.solvers import sgd
from fedmmf.solvers.contract import Public

_jit = numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
# Where lengths are bounded, which privacy rests on, every step is rounded as IEEE 754 has it.
_strict_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


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
    """`sgd.descend` for one party; `rule` is made by `SgdCrowd._rule`."""
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
    is_pinned: Any,
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
        if is_pinned:
            gradient[0] = np.float32(0)
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


@_strict_jit
def _entry(regularization: Any, qi: Any, error: Any, pu: Any) -> Any:
    """Of eta_ui, rounded once: products of two float32 are exact in float64."""
    return np.float64(regularization) * np.float64(qi) - np.float64(error) * np.float64(pu)


@_strict_jit
def _length_pass(
    begin: int,
    end: int,
    indptr: Array,
    items: Array,
    errors: Array,
    p: Array,
    q: Array,
    regularization: Any,
    clip: Any,
    weights: Array,
) -> None:
    """How much each of the users begin..end shrinks its rows, to be at most `clip` long."""
    for u in range(begin, end):
        pu, square = p[u], 0.0
        for j in range(indptr[u], indptr[u + 1]):
            for f in range(len(pu)):
                square += _entry(regularization, q[items[j], f], errors[j], pu[f]) ** 2
        weights[u] = min(1.0, clip / np.sqrt(square)) if square > 0 else 1.0


@_jit
def _clipped_item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    errors: Array,
    p: Array,
    q: Array,
    regularization: Any,
    weights: Array,
    gradients: Array,
) -> None:
    """`_item_pass` over rows that their users have shrunk."""
    for i in range(begin, end):
        total = gradients[i]
        total[:] = np.float32(0)
        for j in range(indptr[i], indptr[i + 1]):
            pu, error, weight = p[users[j]], errors[order[j]], weights[users[j]]
            for f in range(q.shape[1]):
                total[f] += weight * (regularization * q[i, f] - error * pu[f])


@_jit
def _fixed_item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    errors: Array,
    p: Array,
    q: Array,
    regularization: Any,
    limit: Any,
    scale: Any,
    is_tame: bool,
    steps: Array,
) -> None:
    """`_item_pass` as a secure sum gives it: rows are bounded and rounded, then added exactly.

    The scale is a power of two, so that it may be multiplied in early; `limit` is the bound times
    the scale. Where nothing can reach it, `is_tame` saves the time.
    """
    k = q.shape[1]
    total = np.zeros(k, np.int32)  # the sum over everybody fits, as in the ring
    pull = np.zeros(k, np.float32)
    for i in range(begin, end):
        total[:] = 0
        for f in range(k):
            pull[f] = regularization * q[i, f] * scale
        for j in range(indptr[i], indptr[i + 1]):
            pu, error = p[users[j]], errors[order[j]] * scale
            if is_tame:
                for f in range(k):
                    total[f] += np.int32(np.rint(pull[f] - error * pu[f]))
            else:
                for f in range(k):
                    entry = pull[f] - error * pu[f]
                    total[f] += np.int32(np.rint(min(max(entry, -limit), limit)))
        for f in range(k):
            steps[i, f] = total[f]


@_strict_jit
def _clipped_fixed_item_pass(
    begin: int,
    end: int,
    indptr: Array,
    order: Array,
    users: Array,
    errors: Array,
    p: Array,
    q: Array,
    regularization: Any,
    weights: Array,
    limit: Any,
    scale: Any,
    steps: Array,
) -> None:
    """`_fixed_item_pass` over rows that their users have shrunk, of the same entries as lengths."""
    for i in range(begin, end):
        steps[i] = 0
        for j in range(indptr[i], indptr[i + 1]):
            pu, error, weight = p[users[j]], errors[order[j]], weights[users[j]]
            for f in range(q.shape[1]):
                entry = weight * _entry(regularization, q[i, f], error, pu[f]) * scale
                steps[i, f] += np.int64(np.rint(min(max(entry, -limit), limit)))


def _largest(values: Array) -> float:
    """Largest absolute value."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


class SgdCrowd:
    """The party's half of every user."""

    def __init__(self, given: CrowdInput) -> None:
        self._orders = orders_of(given)
        self._masked = threads.frozen(given.masked_ratings, np.float32)
        self._cohorts = [
            (cohort, self._orders.raters.of_cohort(cohort)) for cohort in given.cohorts
        ]
        self._errors = np.zeros(len(given.masked_ratings), np.float32)
        start = sgd.start_user_factors(self._orders.n_users, given.form.rank)
        self._p = sgd.Factors.starting_at(start)

    @property
    def user_factors(self) -> Array:
        """p_u of everybody. (n_users, k)."""
        return self._p.value

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p.value[:] = value

    def update(self, public: Public, t: int) -> CrowdUpdate:
        """Both passes of round t; there are no totals."""
        plan, p, orders = sgd.SgdPlan.of(public), self._p, self._orders
        weight = np.float32(plan.regularization)
        q = threads.frozen(public.item_factors, np.float32)
        arrays = (
            orders.by_user,
            orders.items,
            self._masked,
            q,
            p.value,
            p.first,
            p.second,
            self._errors,
        )
        rest = (weight, plan.prior(q.shape[1]), bool(plan.biases), self._rule(plan, t))
        threads.run(lambda a, b: _user_pass(a, b, *arrays, *rest), orders.user_parts)
        rows = [self._sum(cohort, raters, q, weight) for cohort, raters in self._cohorts]
        return CrowdUpdate(rows, [self._totals(cohort) for cohort, _ in self._cohorts])

    def _totals(self, cohort: Cohort) -> Array:
        """Of the users who rated something. (1 + 2 k,)."""
        is_summed = np.diff(self._orders.by_user) > 0
        if cohort.members is not None:
            is_summed &= cohort.members
        totals = sgd.AllUsers.totals_of(self._p.value[is_summed])
        return np.asarray(cohort.totals_in_steps(totals).sum(axis=0), np.float64)

    def settle(self, public: Public, users: Array) -> None:
        """Let some users find p_u for finished item factors."""
        plan, orders, known = sgd.SgdPlan.of(public), self._orders, sgd.AllUsers.of(public)
        for user in users:
            mine = slice(orders.by_user[user], orders.by_user[user + 1])
            q = public.item_factors[orders.items[mine]]
            self._p.value[user] = sgd.settled_factors(self._masked[mine], q, plan, known)

    def _sum(self, cohort: Cohort, raters: Raters, q: Array, regularization: Any) -> Array:
        """The second pass, over one cohort. (n_items, k)."""
        arrays = (raters.by_item, raters.order, raters.users, self._errors, self._p.value, q)
        if cohort.is_fixed:
            return self._fixed_sum(cohort, raters, arrays, regularization)
        gradients = np.empty_like(q)
        rest: tuple[Any, ...] = (regularization, gradients)
        kernel: Any = _item_pass
        if np.isfinite(cohort.clip):
            weights = self._weights(cohort.clip, q, regularization)
            kernel, rest = _clipped_item_pass, (regularization, weights, gradients)
        threads.run(lambda a, b: kernel(a, b, *arrays, *rest), raters.parts)
        return gradients

    def _fixed_sum(
        self, cohort: Cohort, raters: Raters, arrays: tuple[Any, ...], regularization: Any
    ) -> Array:
        """The same in whole steps. (n_items, k) int64."""
        q = arrays[-1]
        steps = np.empty(q.shape, np.int64)
        limit, scale = cohort.bound * cohort.scale, cohort.scale
        is_tame = self._is_tame(cohort, q, regularization)
        kernel: Any = _fixed_item_pass
        rest: tuple[Any, ...] = (np.float32(limit), np.float32(scale), is_tame)
        if np.isfinite(cohort.clip):
            weights = self._weights(cohort.clip, q, regularization)
            kernel, rest = _clipped_fixed_item_pass, (weights, float(limit), float(scale))
        given = (*arrays, regularization, *rest, steps)
        threads.run(lambda a, b: kernel(a, b, *given), raters.parts)
        return steps

    def _is_tame(self, cohort: Cohort, q: Array, regularization: Any) -> bool:
        """Whether no entry of any row can reach the bound."""
        errors, p = _largest(self._errors), _largest(self._p.value)
        largest = float(regularization) * _largest(q) + errors * p
        with np.errstate(over="ignore"):
            require_finite(np.array(largest * cohort.scale, np.float32))  # as kernels have it
        return largest < cohort.bound

    def _weights(self, clip: float, q: Array, regularization: Any) -> Array:
        """What each user's rows are multiplied by. (n_users,) float64."""
        orders = self._orders
        weights = np.ones(orders.n_users)
        arrays = (orders.by_user, orders.items, self._errors, self._p.value, q)
        rest = (regularization, float(clip), weights)
        threads.run(lambda a, b: _length_pass(a, b, *arrays, *rest), orders.user_parts)
        return weights

    @staticmethod
    def _rule(plan: sgd.SgdPlan, t: int) -> tuple[int, Any, Any, Any]:
        """Step, rate and Adam's corrections of round t, as the kernels take them."""
        correct_first, correct_second = 1 - sgd.ADAM_FIRST**t, 1 - sgd.ADAM_SECOND**t
        numbers = np.array((plan.learning_rate, correct_first, correct_second), np.float32)
        return plan.step, numbers[0], numbers[1], numbers[2]

    def state(self) -> dict[str, Array]:
        """The factors and their moments."""
        return self._p.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        self._p = sgd.Factors.from_state(state)
