"""`sgd` for every party at once, in fused kernels.

A round is two passes. The first goes over users: it moves p_u and leaves e'_ui behind. The second
goes over items: it sums eta_ui over each item's raters. Every user and every item is one thread's
own, so nothing is shared, nothing is atomic, and the result does not depend on the number of
threads.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput, limit_in_float32
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.orders import Raters, RatingOrders, orders_of
from fedmmf.solvers import sgd
from fedmmf.solvers.contract import MAX_NUMBER, Broadcast
from fedmmf.storage.kernel_cache import cached_jit

_FLOAT32 = 2.0**126  # below the largest float32, with a bit to spare for a sum of two
_TAME = 1.0 - 2.0**-20  # of a bound, which float32 then rounds to no more than the bound

_jit = cached_jit(nogil=True, fastmath=True, error_model="numpy")
# Privacy rests on bounds, so what checks them is compiled as IEEE 754 says: `_jit` may assume that
# there are no infinite numbers.
_strict_jit = cached_jit(nogil=True, error_model="numpy")


@_jit
def _dot(a: Array, b: Array) -> Any:
    total = np.float32(0)
    for f in range(len(a)):
        total += a[f] * b[f]
    return total


@_jit
def _top_bits(values: Array) -> Any:
    """Bits of the largest absolute value, which are larger for infinity and NaN than for any other.

    Args:
        values: float32, read as int32. (n,)
    """
    top = np.int32(0)
    for j in range(len(values)):
        top = max(top, values[j] & np.int32(0x7FFFFFFF))
    return top


@_jit
def _add_gradient(items: Array, masked: Array, q: Array, pu: Array, gradient: Array) -> None:
    """Add the gradient of one party's squared errors: minus the sum of e q. (k,)."""
    for j in range(len(items)):
        qi = q[items[j]]
        error = masked[j] - _dot(qi, pu)
        for f in range(len(pu)):
            gradient[f] -= error * qi[f]


@_jit
def _find_errors(items: Array, masked: Array, q: Array, pu: Array, errors: Array) -> None:
    """Write e' of one party's ratings into `errors`. (n,)."""
    for j in range(len(items)):
        errors[j] = masked[j] - _dot(q[items[j]], pu)


@_jit
def _descend(pu: Array, first: Array, second: Array, g: Array, n: Any, rule: Any) -> None:
    """`sgd.descend` for one party; `rule` is made by `SgdHalves._rule`."""
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


@_strict_jit
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
    reaches: Array,
    cap: float,
    regularization: Any,
    prior: Array,
    is_pinned: Any,
    rule: Any,
) -> None:
    """`sgd.party_update` up to e', for users begin..end; users whose reach exceeds the cap stay."""
    k = q.shape[1]
    before, gradient = np.empty((3, k), np.float32), np.empty(k, np.float32)
    top = np.zeros(2, np.int32)
    largest = top.view(np.float32)
    error_bits, p_bits = errors.view(np.int32), p.view(np.int32)
    first_bits, second_bits = first.view(np.int32), second.view(np.int32)
    max_bits = np.array([MAX_NUMBER], np.float32).view(np.int32)[0]
    for u in range(begin, end):
        a, b = indptr[u], indptr[u + 1]
        if a == b:
            continue
        pu, n = p[u], np.float32(b - a)
        before[0], before[1], before[2] = pu, first[u], second[u]
        for f in range(k):
            gradient[f] = n * regularization * (pu[f] - prior[f])
        _add_gradient(items[a:b], masked[a:b], q, pu, gradient)
        if is_pinned:
            gradient[0] = np.float32(0)
        _descend(pu, first[u], second[u], gradient, n, rule)
        _find_errors(items[a:b], masked[a:b], q, pu, errors[a:b])
        top[0], top[1] = _top_bits(error_bits[a:b]), _top_bits(p_bits[u])
        moment = max(_top_bits(first_bits[u]), _top_bits(second_bits[u]))
        is_small = max(top[0], top[1], moment) <= max_bits
        reaches[u] += np.float64(largest[0]) * np.float64(largest[1]) if is_small else np.inf
        if not reaches[u] <= cap:
            p[u], first[u], second[u] = before[0], before[1], before[2]


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
        if n == 0:  # its factors may be too large to be multiplied
            total[:] = np.float32(0)
            continue
        for f in range(k):
            total[f] = n * regularization * q[i, f]
        for j in range(indptr[i], indptr[i + 1]):
            pu = p[users[j]]
            error = errors[order[j]]
            for f in range(k):
                total[f] -= error * pu[f]


@_strict_jit
def _entry(regularization: Any, qi: Any, error: Any, pu: Any) -> Any:
    """Return an entry of eta_ui, rounded once: products of two float32 are exact in float64."""
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
    """Find the factor by which each user begin..end shrinks its rows to length `clip` at most."""
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
    """`_item_pass` over rows that were shrunk by their users."""
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
    penalty = np.zeros(k, np.float32)
    for i in range(begin, end):
        total[:] = 0
        for f in range(k):
            penalty[f] = regularization * q[i, f] * scale
        for j in range(indptr[i], indptr[i + 1]):
            pu, error = p[users[j]], errors[order[j]] * scale
            if is_tame:
                for f in range(k):
                    total[f] += np.int32(np.rint(penalty[f] - error * pu[f]))
            else:
                for f in range(k):
                    entry = penalty[f] - error * pu[f]
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
    """`_fixed_item_pass` over rows that were shrunk by their users."""
    for i in range(begin, end):
        steps[i] = 0
        for j in range(indptr[i], indptr[i + 1]):
            pu, error, weight = p[users[j]], errors[order[j]], weights[users[j]]
            for f in range(q.shape[1]):
                entry = weight * _entry(regularization, q[i, f], error, pu[f]) * scale
                steps[i, f] += np.int64(np.rint(min(max(entry, -limit), limit)))


def _second_pass(
    cohort: Cohort, weights: Array | None, *, is_tame: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Return the kernel that sums a cohort's rows, and its arguments besides the ratings."""
    if not cohort.is_fixed:
        return (_item_pass, ()) if weights is None else (_clipped_item_pass, (weights,))
    if weights is None:
        limit = limit_in_float32(cohort.bound, cohort.scale)
        return _fixed_item_pass, (limit, np.float32(cohort.scale), is_tame)
    whole = float(np.rint(cohort.bound * cohort.scale))
    return _clipped_fixed_item_pass, (weights, whole, float(cohort.scale))


class _Pulled:
    """Item factors and lambda: the public part of a row."""

    def __init__(self, q: Array, regularization: Any) -> None:
        self.q, self.regularization = q, regularization
        size = max(float(q.max(initial=0.0)), -float(q.min(initial=0.0)))
        self.largest = float(regularization) * size  # of |lambda q|; may be NaN

    def barred(self, orders: RatingOrders, cap: float) -> Array:
        """Infinite for users who rated an item whose |lambda q| is above the cap. (n_users,)."""
        reaches = np.zeros(orders.n_users)
        if self.largest <= cap:  # as in every honest round
            return reaches
        penalties = np.abs(self.q).max(axis=1, initial=0.0) * np.float64(self.regularization)
        is_far = ~(penalties <= cap)  # (n_items,) true for NaN too
        users = np.repeat(np.arange(orders.n_users), np.diff(orders.by_user))
        reaches[users[is_far[orders.items]]] = np.inf
        return reaches


class SgdHalves:
    """The user group of `sgd`: the party's half of every user."""

    def __init__(self, given: TrainingInput) -> None:
        self._orders = orders_of(given)
        self._masked = threads.frozen(given.masked_ratings, np.float32)
        self._cohorts = [
            (cohort, self._orders.raters.of_cohort(cohort)) for cohort in given.cohorts
        ]
        self._errors = np.zeros(len(given.masked_ratings), np.float32)
        start = sgd.start_user_factors(self._orders.n_users, given.update_shape.rank)
        self._p = sgd.Factors.starting_at(start)

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users. (n_users, k)."""
        return self._p.value

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p.value[:] = value

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Run both passes of round t; the totals are for the mean of all p_u."""
        with np.errstate(all="ignore"):  # hostile factors overflow; each user's numbers are checked
            return self._updated(broadcast, t)

    def _updated(self, broadcast: Broadcast, t: int) -> CohortSums:
        plan, q = sgd.SgdPlan.of(broadcast), threads.frozen(broadcast.item_factors, np.float32)
        about = _Pulled(q, np.float32(plan.regularization))
        reaches = self._move(about, plan, t)
        is_sound = reaches <= self._cap
        largest = about.largest + float(reaches.max(initial=0.0, where=is_sound))
        cohorts = self._cohorts if is_sound.all() else self._without(is_sound)
        rows = [self._sum(cohort, raters, about, largest) for cohort, raters in cohorts]
        totals = [self._totals(cohort) for cohort, _ in cohorts]
        return CohortSums(rows, totals, int(np.count_nonzero(~is_sound)))

    @property
    def _cap(self) -> float:
        """Largest |lambda q| and |e' p| that float32 holds, also in steps of every cohort."""
        scale = max([1.0, *(cohort.scale for cohort, _ in self._cohorts)])
        return min(MAX_NUMBER, _FLOAT32 / scale) / 2

    def _move(self, about: "_Pulled", plan: sgd.SgdPlan, t: int) -> Array:
        """Run the first pass; return the largest |e' p| of each user. (n_users,)."""
        p, orders = self._p, self._orders
        reaches = about.barred(orders, self._cap)
        arrays = (
            orders.by_user,
            orders.items,
            self._masked,
            about.q,
            p.value,
            p.first,
            p.second,
            self._errors,
            reaches,
            self._cap,
        )
        prior = plan.prior(about.q.shape[1])
        rest = (about.regularization, prior, bool(plan.biases), self._rule(plan, t))
        threads.run(lambda a, b: _user_pass(a, b, *arrays, *rest), orders.user_parts)
        return reaches

    def _without(self, is_sound: Array) -> list[tuple[Cohort, Raters]]:
        """Return the cohorts without the users who overflowed."""
        cohorts = []
        for cohort, raters in self._cohorts:
            members = is_sound if cohort.members is None else is_sound & cohort.members
            cohorts.append(
                (replace(cohort, members=members), raters.select(is_sound[raters.users]))
            )
        return cohorts

    def _totals(self, cohort: Cohort) -> Array:
        """Totals of the users who rated something. (1 + 2 k,)."""
        is_summed = np.diff(self._orders.by_user) > 0
        if cohort.members is not None:
            is_summed &= cohort.members
        totals = sgd.AllUsers.totals_of(self._p.value[is_summed])
        return np.asarray(cohort.totals_in_steps(totals).sum(axis=0), np.float64)

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users for fixed item factors."""
        plan, orders, known = sgd.SgdPlan.of(broadcast), self._orders, sgd.AllUsers.of(broadcast)
        for user in users:
            mine = slice(orders.by_user[user], orders.by_user[user + 1])
            q = broadcast.item_factors[orders.items[mine]]
            with np.errstate(all="ignore"), suppress(OverflowError):
                self._p.value[user] = sgd.solved_factors(self._masked[mine], q, plan, known)

    def _sum(self, cohort: Cohort, raters: Raters, about: "_Pulled", largest: float) -> Array:
        """Sum the rows of one cohort; no entry of a row is above `largest`. (n_items, k)."""
        users = (raters.by_item, raters.order, raters.users, self._errors, self._p.value)
        arrays = (*users, about.q, about.regularization)
        weights = self._weights(cohort.clip, about) if np.isfinite(cohort.clip) else None
        sums = np.empty(about.q.shape, np.int64 if cohort.is_fixed else np.float32)
        # Read the errors once, in order: the pass by items, which reads them in another order, then
        # finds them in the processor's cache.
        self._errors.max(initial=0.0)
        kernel, rest = _second_pass(cohort, weights, is_tame=largest < _TAME * cohort.bound)
        threads.run(lambda a, b: kernel(a, b, *arrays, *rest, sums), raters.parts)
        return sums

    def _weights(self, clip: float, about: "_Pulled") -> Array:
        """Factor of each user's rows that keeps them within the clip. (n_users,) float64."""
        orders = self._orders
        weights = np.ones(orders.n_users)
        arrays = (orders.by_user, orders.items, self._errors, self._p.value, about.q)
        rest = (about.regularization, float(clip), weights)
        threads.run(lambda a, b: _length_pass(a, b, *arrays, *rest), orders.user_parts)
        return weights

    @staticmethod
    def _rule(plan: sgd.SgdPlan, t: int) -> tuple[int, Any, Any, Any]:
        """Return step, rate and Adam's corrections of round t, as the kernels take them."""
        correct_first, correct_second = 1 - sgd.ADAM_FIRST**t, 1 - sgd.ADAM_SECOND**t
        numbers = np.array((plan.learning_rate, correct_first, correct_second), np.float32)
        return plan.step, numbers[0], numbers[1], numbers[2]

    def state(self) -> dict[str, Array]:
        """Return copies of the factors and of Adam's moments."""
        return self._p.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore factors and Adam's moments from a state."""
        self._p = sgd.Factors.from_state(state)
