"""The plain numpy engine: one user after the other, by the equations in the solvers' files.

Slow and obvious: the oracle of the other engines, and what a device runs for its one user.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput
from fedmmf.masks.fitting import OneByOne
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, UserData, part_of


class ReferenceHalves:
    """The user group with one object per user."""

    def __init__(self, given: TrainingInput) -> None:
        self._solver, self._given = SOLVERS[given.solver], given
        self._halves = [self._solver.party(given.update_shape) for _ in range(given.lists.n_users)]
        self._own = [_own(given, user) for user in range(given.lists.n_users)]

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users. (n_users, k)."""
        return np.stack([half.user_factors for half in self._halves])

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        for half, row in zip(self._halves, value, strict=True):
            half.user_factors = row

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Add up every user's own update; users who overflow add nothing."""
        with np.errstate(all="ignore"):  # hostile factors overflow; each user's numbers are checked
            return self._updated(broadcast, t)

    def _updated(self, broadcast: Broadcast, t: int) -> CohortSums:
        given, reading, n_overflowed = self._given, self._reading(broadcast), 0
        shape = (given.n_items, given.update_shape.width)
        sums = [_empty(cohort, shape) for cohort in given.cohorts]
        totals = [np.zeros(given.update_shape.n_totals) for _ in given.cohorts]
        for user, (half, own) in enumerate(zip(self._halves, self._own, strict=True)):
            try:
                rows, mine = half.update(own, reading, t)
            except OverflowError:
                n_overflowed += 1
                continue
            for cohort, total, all_totals in zip(given.cohorts, sums, totals, strict=True):
                if cohort.members is None or cohort.members[user]:
                    sent, told = cohort.both_clipped(rows, mine.copy())
                    _add(total, cohort, own.items, sent)
                    all_totals += cohort.totals_in_steps(told, given.update_shape.matrices)
        return CohortSums(sums, totals, n_overflowed)

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users for fixed item factors; users who overflow keep theirs."""
        with np.errstate(all="ignore"):
            reading = self._reading(broadcast)
            for user in users:
                with suppress(OverflowError):
                    self._halves[user].solve_user(self._own[user], reading)

    def effects_of_rating(self, broadcast: Broadcast, lists: RatedItems) -> Array:
        """Changes of newcomers' scores, each given that the user rates that item. (n,).

        Args:
            broadcast: the final one.
            lists: items of each user; users who overflow have no changes.
        """
        effects = np.zeros(len(lists.items))
        with np.errstate(all="ignore"):
            reading = self._reading(broadcast)
            for user in np.flatnonzero(lists.lengths).tolist():
                mine = lists.of(user)
                with suppress(OverflowError):
                    about = (self._own[user], reading, lists.items[mine])
                    effects[mine] = self._halves[user].effects_of_rating(*about)
        return effects

    def newcomer_totals(self, broadcast: Broadcast, cohort: Cohort) -> Array:
        """Sum what the prior of newcomers is made from; users who overflow add nothing.

        Args:
            broadcast: the final one.
            cohort: who is summed, and how each user's totals are bounded and rounded.

        Returns:
            (n_newcomer,), in steps of fixed point if the cohort's totals are.
        """
        sums = np.zeros(self._given.update_shape.n_newcomer)
        with np.errstate(all="ignore"):
            reading = self._reading(broadcast)
            for user, (half, own) in enumerate(zip(self._halves, self._own, strict=True)):
                if cohort.members is None or cohort.members[user]:
                    with suppress(OverflowError):
                        totals = half.newcomer_totals(own, reading)
                        # Shrunk together, so that second moments fit the first ones.
                        sums += cohort.totals_in_steps(totals, (slice(None),))
        return sums

    def _reading(self, broadcast: Broadcast) -> Any:
        return self._solver.reading(self._given.update_shape, broadcast, self._given.design)

    def state(self) -> dict[str, Array]:
        """Return each user's state under its number."""
        return {
            f"{user}/{name}": value
            for user, half in enumerate(self._halves)
            for name, value in half.state().items()
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore each user's part of a state."""
        for user, half in enumerate(self._halves):
            half.restore(part_of(state, f"{user}/"))


def _own(given: TrainingInput, user: int) -> UserData:
    """Return one user's data as its half takes them."""
    mine = given.lists.of(user)
    items, masked = given.lists.items[mine], given.masked_ratings[mine]
    own = slice(0, 0) if not given.update_shape.n_levels else mine
    ordered = (given.levels[own], given.mask[own])
    return UserData(items, masked, given.profiles[user], given.lines[user], *ordered)


def _empty(cohort: Cohort, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.int64 if cohort.is_fixed else np.float32)


def _add(total: Array, cohort: Cohort, items: Array, rows: Array) -> None:
    """Add one user's rows, clipped already, as the user would send them."""
    if cohort.left_out is not None:
        is_kept = ~cohort.left_out[items]
        items, rows = items[is_kept], rows[is_kept]
    total[items] += cohort.in_steps(rows) if cohort.is_fixed else rows


class ReferenceEngine:
    """Engine that computes one user after the other in numpy."""

    name = "numpy"

    def halves(self, given: TrainingInput) -> ReferenceHalves:
        """Make the user group before its first round."""
        return ReferenceHalves(given)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> OneByOne:
        """Return a runner in numpy, which reports no progress."""
        return OneByOne()

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """Scores q_i . p_u for pairs of codes. (n,)."""
        return np.asarray(np.einsum("nk,nk->n", q[items], p[users]), np.float32)


NUMPY = ReferenceEngine()
