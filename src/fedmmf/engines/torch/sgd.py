"""`sgd` for every party at once, on tensors.

A round is two passes over blocks of ratings. The first is in the order of the users: it moves p_u
and leaves e'_ui behind. The second is in the order of the items: it sums eta_ui over each item's
raters. Nothing depends on where blocks end or on what runs first, so that a run can be repeated to
the last bit, and a user alone gets the same result as among others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput
from fedmmf.engines.torch.device import explain_errors
from fedmmf.solvers import sgd
from fedmmf.solvers.contract import MAX_NUMBER, Broadcast

BLOCK = 1 << 22  # ratings that are worked on at once; a block has some rows of factors for each
CHUNK = 256  # ratings that are added in turn; long segments would keep a card waiting


class Segments:
    """Ratings side by side in segments, one per user or per item, cut into chunks.

    A sum goes over each chunk, then over the chunks of each segment. So its order depends on the
    segment alone, and no two summands race each other, as in a float `index_add_`.

    Args:
        indptr: where each segment begins. (n_segments + 1,)
        device: where sums are taken.
    """

    def __init__(self, indptr: Array, device: torch.device) -> None:
        indptr = np.asarray(indptr, np.int64)
        n_chunks = -(-np.diff(indptr) // CHUNK)
        ends = np.concatenate(([0], np.cumsum(n_chunks)))
        segments = np.repeat(np.arange(len(n_chunks)), n_chunks)
        within = np.arange(ends[-1]) - ends[segments]
        begins = indptr[segments] + CHUNK * within
        self._begins = np.append(begins, indptr[-1])  # of chunks
        self._starts = torch.tensor(self._begins, device=device)  # (n_chunks + 1,)
        self._chunks = torch.tensor(ends, device=device)  # (n_segments + 1,)

    def blocks(self) -> Iterator[tuple[slice, slice]]:
        """Yield ranges of chunks and of their ratings, about `BLOCK` ratings each."""
        begin, begins = 0, self._begins
        while begin < len(begins) - 1:
            end = int(np.searchsorted(begins, begins[begin] + BLOCK, side="right")) - 1
            end = max(end, begin + 1)
            yield slice(begin, end), slice(int(begins[begin]), int(begins[end]))
            begin = end

    def sums(
        self, rows_of: Callable[[slice], torch.Tensor], width: int, dtype: torch.dtype
    ) -> torch.Tensor:
        """Sum over each segment the rows that `rows_of` gives for a block. (n_segments, width)."""
        shape = (len(self._begins) - 1, width)
        parts = torch.zeros(shape, dtype=dtype, device=self._starts.device)
        for chunks, ratings in self.blocks():
            starts = self._starts[chunks.start : chunks.stop + 1] - ratings.start
            parts[chunks] = torch.segment_reduce(rows_of(ratings), "sum", offsets=starts, axis=0)
        if not len(parts):
            return parts.new_zeros((len(self._chunks) - 1, width))
        return torch.segment_reduce(parts, "sum", offsets=self._chunks, axis=0)


class TorchRaters:
    """Ratings ordered by item.

    Args:
        items: their items. (n,) int32
        users: who gave them. (n,) int32
        order: their positions in the order by user. (n,)
        n_items: how many items there are.
    """

    def __init__(
        self, items: torch.Tensor, users: torch.Tensor, order: torch.Tensor, n_items: int
    ) -> None:
        self.items, self.users, self.order = items, users, order
        codes = torch.arange(n_items + 1, dtype=torch.int32, device=items.device)
        by_item = torch.searchsorted(items, codes)
        self.counts = by_item.diff()[:, None]  # (n_items, 1)
        self.segments = Segments(by_item.cpu().numpy(), items.device)

    def of_cohort(self, cohort: Cohort) -> "TorchRaters":
        """Return the ratings that a cohort sums."""
        if cohort.members is None and cohort.left_out is None:
            return self
        is_kept = torch.ones_like(self.items, dtype=torch.bool)
        if cohort.members is not None:
            is_kept &= torch.tensor(cohort.members, device=is_kept.device)[self.users]
        if cohort.left_out is not None:
            is_kept &= ~torch.tensor(cohort.left_out, device=is_kept.device)[self.items]
        items, users, order = (all_[is_kept] for all_ in (self.items, self.users, self.order))
        return TorchRaters(items, users, order, len(self.counts))


class TorchOrders:
    """Ratings ordered by user and, as `raters`, by item."""

    def __init__(self, lists: RatedItems, n_items: int, device: torch.device) -> None:
        self.by_user = Segments(lists.indptr, device)
        self.items = torch.tensor(lists.items, dtype=torch.int32, device=device)  # (n,)
        lengths = torch.tensor(lists.lengths, dtype=torch.int64, device=device)
        users = torch.arange(lists.n_users, dtype=torch.int32, device=device)
        self.users = torch.repeat_interleave(users, lengths)  # (n,)
        items, order = torch.sort(self.items, stable=True)
        self.raters = TorchRaters(items, self.users[order], order, n_items)


# Sorting takes a while, and the runs of an ensemble share their lists.
_ORDERS: WeakKeyDictionary[RatedItems, dict[object, TorchOrders]] = WeakKeyDictionary()


def orders_of(given: TrainingInput, device: torch.device) -> TorchOrders:
    """Return both orders of a user group's ratings."""
    found, key = _ORDERS.setdefault(given.lists, {}), (given.n_items, device)
    if key not in found:
        found[key] = TorchOrders(given.lists, given.n_items, device)
    return found[key]


def _dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products a_j . b_j of pairs of rows. (n,).

    Halves of the products are added to each other. The order in which torch itself sums a row
    depends on how many rows there are.
    """
    products, width = a * b, a.shape[1]
    while width > 1:
        half = (width + 1) // 2
        products[:, : width - half] += products[:, half:width]
        width = half
    return products[:, 0]


def _largest(rows: torch.Tensor) -> torch.Tensor:
    """Largest absolute entry of each row. (n, k) -> (n,) float64."""
    return rows.abs().amax(1).double()


def _in_steps(values: torch.Tensor, bound: float, scale: float) -> torch.Tensor:
    """Bound and round as `Cohort.in_steps` does; whole numbers in float64."""
    return values.double().clamp(-bound, bound).mul_(scale).round_()


@dataclass(frozen=True, eq=False)
class _Gradients:
    """The parts of eta_ui = lambda q_i - e'_ui p_u."""

    q: torch.Tensor  # (n_items, k)
    p: torch.Tensor  # (n_users, k)
    errors: torch.Tensor  # e', by user (n,)
    regularization: float

    def rows(
        self, items: torch.Tensor, users: torch.Tensor, errors: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        """Rows eta_ui of some ratings; in float64 rounded once. (n, k)."""
        penalty = self.q[items].to(dtype).mul_(self.regularization)
        return penalty.sub_(self.p[users].to(dtype).mul_(errors.to(dtype)[:, None]))

    def weights(self, orders: TorchOrders, clip: float) -> torch.Tensor:
        """Factor of each user's rows that keeps them within the clip. (n_users, 1) float64."""

        def squares(some: slice) -> torch.Tensor:
            pairs = orders.items[some], orders.users[some]
            rows = self.rows(*pairs, self.errors[some], torch.float64)
            return _dots(rows, rows)[:, None]

        lengths = orders.by_user.sums(squares, 1, torch.float64).sqrt_()
        shrunk = (clip / lengths).clamp_(max=1.0)
        return torch.where(lengths > 0, shrunk, torch.ones_like(shrunk))

    def sent(
        self, raters: TorchRaters, weights: torch.Tensor | None
    ) -> Callable[[slice], torch.Tensor]:
        """Return a function from a block of raters to their rows, shrunk in float64 if at all."""

        def rows_of(some: slice) -> torch.Tensor:
            items, users = raters.items[some], raters.users[some]
            errors = self.errors[raters.order[some]]
            if weights is None:
                return self.rows(items, users, errors, torch.float32)
            return self.rows(items, users, errors, torch.float64).mul_(weights[users])

        return rows_of

    def are_small(self, orders: TorchOrders) -> torch.Tensor:
        """Whether a user's rows are small; |lambda q| + |e'| |p| bounds them. (n_users,) bool."""
        penalties, largest = self.regularization * _largest(self.q), _largest(self.p)

        def too_large(some: slice) -> torch.Tensor:
            pushes = self.errors[some].double().abs() * largest[orders.users[some]]
            is_small = penalties[orders.items[some]] + pushes <= MAX_NUMBER  # false for NaN
            return (~is_small).float()[:, None]

        return orders.by_user.sums(too_large, 1, torch.float32)[:, 0] == 0

    def fixed_sums(
        self, cohort: Cohort, raters: TorchRaters, weights: torch.Tensor | None
    ) -> torch.Tensor:
        """Bound and round rows, then add them as integers, in any order. (n_items, k) int64."""
        rows_of = self.sent(raters, weights)
        steps = torch.zeros_like(self.q, dtype=torch.int64)
        for _, some in raters.segments.blocks():
            rows = _in_steps(rows_of(some), cohort.bound, cohort.scale)
            steps.index_add_(0, raters.items[some], rows.to(torch.int64))
        return steps

    def sums(self, raters: TorchRaters, weights: torch.Tensor | None) -> torch.Tensor:
        """Add rows in floating point. (n_items, k) float32."""
        width, segments = self.q.shape[1], raters.segments
        if weights is not None:
            return segments.sums(self.sent(raters, weights), width, torch.float64).float()

        def pushes(some: slice) -> torch.Tensor:
            return self.p[raters.users[some]] * self.errors[raters.order[some]][:, None]

        counts = raters.counts.float()
        penalty = torch.where(counts > 0, counts * self.regularization * self.q, 0.0)
        return penalty - segments.sums(pushes, width, torch.float32)


def _descend(
    p: Mapping[str, torch.Tensor], g: torch.Tensor, n: torch.Tensor, plan: sgd.SgdPlan, t: int
) -> None:
    """`sgd.descend` for all users in place; products and sums are separate, so none are fused."""
    value, rate = p["value"], float(np.float32(plan.learning_rate))
    if sgd.STEPS[plan.step] == "sum":
        value.sub_(rate * g)
    elif sgd.STEPS[plan.step] == "mean":
        value.sub_(rate * g / n.clamp(min=1).float())
    else:
        rest = np.array((1 - sgd.ADAM_FIRST, 1 - sgd.ADAM_SECOND), np.float32).tolist()
        p["first"].add_(rest[0] * (g - p["first"]))
        p["second"].add_(rest[1] * (g * g - p["second"]))
        first = p["first"] / float(np.float32(1 - sgd.ADAM_FIRST**t))
        second = p["second"] / float(np.float32(1 - sgd.ADAM_SECOND**t))
        value.sub_(rate * first / (second.sqrt_() + float(np.float32(sgd.ADAM_EPSILON))))


class TorchSgdHalves:
    """The user group of `sgd`: the party's half of every user.

    Args:
        given: what it trains on.
        device: where the tensors are.
    """

    def __init__(self, given: TrainingInput, device: torch.device) -> None:
        self._lists, self._ratings, self._device = given.lists, given.masked_ratings, device
        self._orders = orders_of(given, device)
        self._masked = self._tensor(given.masked_ratings)  # (n,)
        self._counts = torch.tensor(given.lists.lengths, device=device)[:, None]  # (n_users, 1)
        self._cohorts = [
            (cohort, self._orders.raters.of_cohort(cohort), self._summed(cohort))
            for cohort in given.cohorts
        ]
        self._p: dict[str, torch.Tensor] = {}
        start = sgd.start_user_factors(given.lists.n_users, given.update_shape.rank)
        self.restore(sgd.Factors.starting_at(start).state())

    def _tensor(self, values: Array) -> torch.Tensor:
        """Copy to float32 on the device."""
        return torch.tensor(np.asarray(values, np.float32), device=self._device)

    def _summed(self, cohort: Cohort) -> torch.Tensor:
        """Codes of the users of a cohort who rated something. (n,)."""
        is_summed = self._lists.lengths > 0
        if cohort.members is not None:
            is_summed = is_summed & cohort.members
        return torch.tensor(np.flatnonzero(is_summed), device=self._device)

    @property
    def user_factors(self) -> Array:
        """Copy of all users' p_u. (n_users, k)."""
        return self.state()["value"]

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p["value"] = self._tensor(value)

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Run both passes of round t; the totals are for the mean of all p_u."""
        with explain_errors(), np.errstate(all="ignore"):  # each user's numbers are checked
            return self._updated(broadcast, t)

    def _updated(self, broadcast: Broadcast, t: int) -> CohortSums:
        plan, q = sgd.SgdPlan.of(broadcast), self._tensor(broadcast.item_factors)
        moved = self._moved(q, plan, t)
        errors = torch.empty_like(self._masked)
        for _, some in self._orders.by_user.blocks():
            errors[some] = self._errors(q, moved["value"], some)
        regularization = float(np.float32(plan.regularization))
        gradients = _Gradients(q, moved["value"], errors, regularization)
        is_sound = gradients.are_small(self._orders)  # (n_users,)
        for value in moved.values():
            is_sound &= (value.abs() <= MAX_NUMBER).all(1)
        is_moved = is_sound[:, None]
        self._p = {name: torch.where(is_moved, moved[name], self._p[name]) for name in moved}
        cohorts = self._cohorts if bool(is_sound.all()) else self._without(is_sound)
        gradients = replace(gradients, p=self._p["value"])
        rows = [self._sum(gradients, cohort, raters) for cohort, raters, _ in cohorts]
        totals = [self._totals(cohort, users) for cohort, _, users in cohorts]
        return CohortSums(rows, totals, int((~is_sound).sum()))

    def _without(self, is_sound: torch.Tensor) -> list[tuple[Cohort, TorchRaters, torch.Tensor]]:
        """Return the cohorts without the users who overflowed."""
        cohorts, everybody = [], is_sound.cpu().numpy()
        for cohort, _, users in self._cohorts:
            members = everybody if cohort.members is None else everybody & cohort.members
            fewer = replace(cohort, members=members)
            cohorts.append((fewer, self._orders.raters.of_cohort(fewer), users[is_sound[users]]))
        return cohorts

    def _errors(self, q: torch.Tensor, p: torch.Tensor, some: slice) -> torch.Tensor:
        """Masked ratings less q_i . p_u, of a block in the order of the users. (n,)."""
        mine = p[self._orders.users[some]]
        return self._masked[some] - _dots(q[self._orders.items[some]], mine)

    def _moved(self, q: torch.Tensor, plan: sgd.SgdPlan, t: int) -> dict[str, torch.Tensor]:
        """Run the first pass up to p_u; users without ratings have no gradient."""

        def pushes(some: slice) -> torch.Tensor:
            errors = self._errors(q, self._p["value"], some)
            return q[self._orders.items[some]] * errors[:, None]

        penalty = (self._counts * plan.regularization).float()  # (n_users, 1)
        gradient = penalty * (self._p["value"] - self._tensor(plan.prior(q.shape[1])))
        gradient -= self._orders.by_user.sums(pushes, q.shape[1], torch.float32)
        if plan.biases:
            gradient[:, 0] = 0.0
        moved = {name: value.clone() for name, value in self._p.items()}
        _descend(moved, gradient, self._counts, plan, t)
        return moved

    def _sum(self, gradients: _Gradients, cohort: Cohort, raters: TorchRaters) -> Array:
        """Run the second pass over one cohort. (n_items, k)."""
        weights = None
        if np.isfinite(cohort.clip):
            weights = gradients.weights(self._orders, cohort.clip)
        if cohort.is_fixed:
            return np.asarray(gradients.fixed_sums(cohort, raters, weights).cpu().numpy())
        return np.asarray(gradients.sums(raters, weights).cpu().numpy())

    def _totals(self, cohort: Cohort, users: torch.Tensor) -> Array:
        """Totals of the users who rated something. (1 + 2 k,) float64."""
        p, bound, scale = self._p["value"], cohort.total_bound, cohort.total_scale

        def totals_of(some: slice) -> torch.Tensor:
            mine = p[users[some]].double()
            totals = torch.cat((torch.ones_like(mine[:, :1]), mine, mine * mine), dim=1)
            return _in_steps(totals, bound, scale) if scale else totals

        everybody = Segments(np.array([0, len(users)]), self._device)
        sums = everybody.sums(totals_of, 1 + 2 * p.shape[1], torch.float64)
        return np.asarray(sums[0].cpu().numpy())

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users for fixed item factors, one after the other."""
        plan, known = sgd.SgdPlan.of(broadcast), sgd.AllUsers.of(broadcast)
        found = self.user_factors
        for user in users:
            mine = self._lists.of(user)
            q = broadcast.item_factors[self._lists.items[mine]]
            with np.errstate(all="ignore"), suppress(OverflowError):
                found[user] = sgd.solved_factors(self._ratings[mine], q, plan, known)
        self.user_factors = found

    def state(self) -> dict[str, Array]:
        """Return copies of the factors and of Adam's moments."""
        return {name: value.cpu().numpy().copy() for name, value in self._p.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore factors and Adam's moments from a state."""
        self._p = {name: self._tensor(state[name]) for name in ("value", "first", "second")}
