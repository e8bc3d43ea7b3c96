"""The plain numpy engine: one user after the other, as the solvers' files have the equations.

Slow and obvious: the oracle of the other engines, and what a device runs for its one user.
"""

from collections.abc import Callable, Mapping

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CrowdInput, CrowdUpdate
from fedmmf.masks.fitting import OneByOne
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Public, Solve, part_of


class ReferenceCrowd:
    """The party's half of every user, each an object of its own."""

    def __init__(self, given: CrowdInput) -> None:
        self._solver = SOLVERS[given.solver]
        self._rank, self._lists = given.rank, given.lists
        self._masked, self._cohorts = given.masked_ratings, given.cohorts
        self._halves = [self._solver.party(given.rank) for _ in range(given.lists.n_users)]

    @property
    def user_factors(self) -> Array:
        """p_u of everybody. (n_users, k)."""
        return np.stack([half.user_factors for half in self._halves])

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        for half, row in zip(self._halves, value, strict=True):
            half.user_factors = row

    def update(self, public: Public, t: int) -> CrowdUpdate:
        """Every user's own update, added up."""
        sums = [_empty(cohort, public.item_rows.shape) for cohort in self._cohorts]
        totals = np.zeros((len(self._halves), self._solver.n_totals(self._rank)))
        for user, half in enumerate(self._halves):
            mine = self._lists.of(user)
            items = self._lists.items[mine]
            rows, totals[user] = half.update(self._masked[mine], public.take(items), t)
            for cohort, total in zip(self._cohorts, sums, strict=True):
                if cohort.members is None or cohort.members[user]:
                    _add(total, cohort, items, rows)
        return CrowdUpdate(sums, totals)

    def settle(self, public: Public, users: Array) -> None:
        """Let some users find p_u for finished item factors."""
        for user in users:
            mine = self._lists.of(user)
            own = public.take(self._lists.items[mine])
            self._halves[user].settle(self._masked[mine], own)

    def state(self) -> dict[str, Array]:
        """Each user's state under its number."""
        return {
            f"{user}/{name}": value
            for user, half in enumerate(self._halves)
            for name, value in half.state().items()
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""
        for user, half in enumerate(self._halves):
            half.restore(part_of(state, f"{user}/"))


def _empty(cohort: Cohort, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape, np.int64 if cohort.is_fixed else np.float32)


def _add(total: Array, cohort: Cohort, items: Array, rows: Array) -> None:
    """Add one user's rows, as it would send them."""
    rows = cohort.clipped(rows)
    if cohort.left_out is not None:
        is_kept = ~cohort.left_out[items]
        items, rows = items[is_kept], rows[is_kept]
    total[items] += cohort.in_steps(rows) if cohort.is_fixed else rows


class ReferenceEngine:
    """Users in turn."""

    name = "numpy"
    solve: Solve | None = None

    def crowd(self, given: CrowdInput) -> ReferenceCrowd:
        """All users before their first round."""
        return ReferenceCrowd(given)

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> OneByOne:
        """Masks in numpy; there is no progress to tell."""
        return OneByOne()

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """q_i . p_u for pairs of codes. (n,)."""
        return np.asarray(np.einsum("nk,nk->n", q[items], p[users]), np.float32)


NUMPY = ReferenceEngine()
