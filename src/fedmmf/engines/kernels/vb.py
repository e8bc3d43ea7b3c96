"""`vb` for every party at once, in one fused pass over users.

A user's items are gathered once. Their Gram matrix gives the posterior of p_u; the same block times
E[p p^T] gives the gradients, which are rounded as the user would round them and added to a table of
sums. Users are cut into parts, each with a table of its own, and tables are added in the order of
the parts: integers do not mind how many parts there are, and for floating point their number is
fixed, so that the result does not depend on the number of threads.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput, limit_in_float32
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.vb_arguments import (
    PassPublic,
    PassRatings,
    PassSending,
    PassSums,
    PassUsers,
    UserTotals,
)
from fedmmf.engines.kernels.vb_pass import user_pass
from fedmmf.solvers.contract import Broadcast
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER
from fedmmf.solvers.vb.party import N_ALTERNATIONS, counted_membership_round, starting_user
from fedmmf.solvers.vb.reading import VbReading
from fedmmf.solvers.vb.shapes import VbShape

FLOAT_PARTS = 8  # tables of floating-point sums


class VbHalves:
    """The user group of `vb`, in one cohort: the party's half of every user."""

    def __init__(self, given: TrainingInput) -> None:
        if not isinstance(given.update_shape, VbShape):
            raise TypeError("vb has forms of its own")
        self._given, self._update_shape, n_users = given, given.update_shape, given.lists.n_users
        (self._cohort,) = given.cohorts
        self._by_user = threads.frozen(given.lists.indptr, np.int64)
        self._items = threads.frozen(given.lists.items, np.int32)
        self._masked = threads.frozen(given.masked_ratings, np.float32)
        self._levels = threads.frozen(given.levels, np.int32)
        self._mask = threads.frozen(given.mask, np.float32)
        self._p, self._n_membership_rounds = (
            np.tile(starting_user(given.update_shape), (n_users, 1)),
            0,
        )

    @property
    def user_factors(self) -> Array:
        """Posterior means of all p_u. (n_users, n_own)."""
        return self._p

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p[:] = value

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Compute all posteriors; return the sums of all updates."""
        is_fixed, n_items = self._cohort.is_fixed, self._given.n_items
        n_parts = threads.n_threads() if is_fixed else FLOAT_PARTS
        sums = _Sums(threads.ranges(self._by_user, n_parts), n_items, self._update_shape)
        is_ordered = self._update_shape.n_levels > 0 and t > BEGINS_AFTER
        n_overflowed = self._pass(broadcast, t, sums, is_ordered=is_ordered)
        rows = sums.rows.astype(np.int64 if is_fixed else np.float32)
        return CohortSums([rows], [sums.totals.sum(axis=0)], n_overflowed)

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute the posterior means of p_u of some users for fixed item factors."""
        before = self._p.copy()
        sums = _Sums([(0, len(before))], 1, self._update_shape)
        self._pass(broadcast, 0, sums, is_ordered=False)
        for _ in range(N_ALTERNATIONS * bool(self._update_shape.n_levels)):
            self._pass(broadcast, 0, sums, is_ordered=True)
        is_other = np.ones(len(before), bool)
        is_other[users] = False
        stays = is_other | ~np.isfinite(self._p).all(axis=1)
        self._p[stays] = before[stays]

    def _pass(self, broadcast: Broadcast, t: int, sums: "_Sums", *, is_ordered: bool) -> int:
        """Run the pass over all users; return how many overflowed. In round 0 only p moves."""
        with np.errstate(all="ignore"):  # hostile factors overflow; each user's numbers are checked
            return self._passed(broadcast, t, sums, is_ordered=is_ordered)

    def _passed(self, broadcast: Broadcast, t: int, sums: "_Sums", *, is_ordered: bool) -> int:
        cohort, given = self._cohort, self._given
        reading = VbReading.of(self._update_shape, broadcast, given.design)
        if t:
            self._n_membership_rounds = counted_membership_round(self._n_membership_rounds, reading)
        ordered = (self._levels, self._mask) if is_ordered else (self._levels[:0], self._mask[:0])
        arguments = (
            PassRatings(self._by_user, self._items, self._masked, *ordered),
            _pass_public(reading, given.design),
            self._pass_users(reading),
            _pass_sending(cohort, given.n_items, reading, with_rows=t > 0),
        )
        kernel: Any = user_pass
        overflowed: list[int] = []

        def run(begin: int, end: int) -> None:
            overflowed.append(kernel(begin, end, *arguments, sums.of(begin)))

        with threads.one_blas_thread():
            threads.run(run, sums.parts)
        return sum(overflowed)

    def _pass_users(self, reading: VbReading) -> PassUsers:
        """Return what a pass reads and writes of the users."""
        given, shape = self._given, (len(self._p), self._update_shape.n_profile)
        known = given.profiles if given.profiles.size else np.zeros((1, shape[1]))
        profiles = threads.frozen(np.broadcast_to(known, shape), np.float64)
        has_any = profiles.any(axis=1, keepdims=True)
        members = self._cohort.members
        return PassUsers(
            profiles=profiles,
            shown_profiles=threads.frozen(
                np.where(has_any, profiles, reading.profile_mean), np.float64
            ),
            lines=threads.frozen(given.lines, np.float64),
            p=self._p,
            is_member=threads.frozen(
                np.ones(len(self._p), bool) if members is None else members, bool
            ),
        )

    def state(self) -> dict[str, Array]:
        """Return the means, and the number of membership rounds of each user."""
        looks = np.full(len(self._p), self._n_membership_rounds)
        return {"value": self._p.copy(), "looks": looks}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the means and the number of membership rounds from a state."""
        self._p, self._n_membership_rounds = (
            state["value"].copy(),
            int(state["looks"].max(initial=0)),
        )


class _Sums:
    """Sums of each part's users, kept apart from those of the other parts."""

    def __init__(self, parts: list[tuple[int, int]], n_items: int, update_shape: VbShape) -> None:
        self.parts, self._blocks = parts, update_shape.blocks["totals"]
        self._places = {begin: place for place, (begin, _) in enumerate(parts)}
        self._tables = [np.zeros((n_items, update_shape.width)) for _ in parts]
        self.totals = np.zeros((len(parts), update_shape.n_totals))

    def of(self, begin: int) -> PassSums:
        """Return the sums of the part that begins there."""
        place, own = self._places[begin], np.zeros(self._blocks.size)
        parts = UserTotals(**self._blocks.split(own))
        return PassSums(self._tables[place], self.totals[place], own, parts)

    @property
    def rows(self) -> Array:
        """Add the rows of all parts, in their order. (n_items, width)."""
        total = self._tables[0]
        for other in self._tables[1:]:
            total += other
        return total


def _pass_public(reading: VbReading, design: Array) -> PassPublic:
    """Return the broadcast as a pass reads it; without unrated items, zeros for them."""
    k, m, unrated = reading.update_shape.n_own, reading.update_shape.n_design, reading.unrated
    narrow = {
        "table": np.hstack((reading.mean, reading.shrinkage)),
        "design": design[:, :m],
    }
    wide = {
        "basis": reading.spread.basis,
        "user_precision": reading.user_precision,
        "user_middle": reading.user_middle,
        "user_weights": reading.user_weights,
        "all_moment": np.zeros((k, k)) if unrated is None else unrated.moment,
        "all_line": np.zeros((k, m)) if unrated is None else unrated.line,
        "gram": np.zeros((m, m)) if unrated is None else unrated.gram,
        "cuts": reading.cuts,
    }
    return PassPublic(
        **{name: threads.frozen(array, np.float32) for name, array in narrow.items()},
        **{name: threads.frozen(array, np.float64) for name, array in wide.items()},
        tau=float(reading.tau),
        weight=0.0 if unrated is None else unrated.weight,
        value=0.0 if unrated is None else unrated.value,
    )


def _pass_sending(
    cohort: Cohort, n_items: int, reading: VbReading, *, with_rows: bool
) -> PassSending:
    """Return what is left out, and how numbers are bounded and rounded."""
    left_out = np.zeros(n_items, bool) if cohort.left_out is None else cohort.left_out
    limit = limit_in_float32(cohort.bound, cohort.scale) if cohort.is_fixed else np.float32(0)
    return PassSending(
        with_rows=with_rows,
        is_membership_round=reading.is_membership_round,
        left_out=threads.frozen(left_out, bool),
        row_limit=limit,
        row_scale=np.float32(cohort.scale),
        total_bound=cohort.total_bound,
        total_scale=cohort.total_scale,
    )
