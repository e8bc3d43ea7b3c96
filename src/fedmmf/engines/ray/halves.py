"""A user group in blocks, one on each worker; the blocks' sums are added up here."""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput
from fedmmf.engines.kernels import threads
from fedmmf.engines.ray.cluster import Cluster, lost
from fedmmf.solvers.contract import Broadcast

_NUMBERS = count()  # of the user groups of this process


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive users who live on one worker."""

    worker: Any
    begin: int
    end: int

    def codes(self, users: Array) -> Array:
        """Codes, within this block, of those of the given users who live here."""
        return users[(users >= self.begin) & (users < self.end)] - self.begin

    def given(self, whole: TrainingInput) -> TrainingInput:
        """The block's part of the training data."""
        indptr = whole.lists.indptr[self.begin : self.end + 1]
        mine = slice(int(indptr[0]), int(indptr[-1]))
        return replace(
            whole,
            lists=RatedItems(indptr - indptr[0], whole.lists.items[mine]),
            masked_ratings=whole.masked_ratings[mine],
            profiles=whole.profiles[self.begin : self.end],
            lines=whole.lines[self.begin : self.end],
            levels=whole.levels[mine] if whole.update_shape.n_levels else whole.levels,
            mask=whole.mask[mine] if whole.update_shape.n_levels else whole.mask,
            cohorts=[self._cohort(cohort) for cohort in whole.cohorts],
        )

    def _cohort(self, cohort: Cohort) -> Cohort:
        if cohort.members is None:
            return cohort
        return replace(cohort, members=cohort.members[self.begin : self.end])

    def state(self, whole: Mapping[str, Array]) -> dict[str, Array]:
        """The block's part of a state."""
        found = {}
        for name, value in whole.items():
            user, rest = _of_one_user(name)
            if user is None:
                found[name] = value[self.begin : self.end]
            elif self.begin <= user < self.end:
                found[f"{user - self.begin}/{rest}"] = value
        return found


def _of_one_user(name: str) -> tuple[int | None, str]:
    """User and name of an entry, where each user has a state of its own (`reference.py`)."""
    user, slash, rest = name.partition("/")
    return (int(user), rest) if slash and user.isdecimal() else (None, name)


def joined(blocks: Sequence[Block], states: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Join the blocks' states into one that does not depend on the number of blocks."""
    found: dict[str, Array] = {}
    parts: dict[str, list[Array]] = {}
    for block, state in zip(blocks, states, strict=True):
        for name, value in state.items():
            user, rest = _of_one_user(name)
            if user is None:
                parts.setdefault(name, []).append(value)
            else:
                found[f"{block.begin + user}/{rest}"] = value.copy()
    return found | {name: np.concatenate(values) for name, values in parts.items()}


class RayHalves:
    """The party's half of every user; each worker holds a block of users."""

    def __init__(self, cluster: Cluster, given: TrainingInput) -> None:
        self._cluster, self._number = cluster, next(_NUMBERS)
        workers, n_users = cluster.workers(), given.lists.n_users
        cuts = threads.ranges(given.lists.indptr, len(workers)) or [(0, n_users)]
        self.blocks = [
            Block(worker, *cut) for worker, cut in zip(workers, cuts, strict=False)
        ]  # fewer than workers, where there are few users
        self._factors: Array | None = None  # copy of the workers' factors, until they change
        self._holders = [block.worker for block in self.blocks]
        weakref.finalize(self, cluster.forget, self._number, self._holders).atexit = False
        self._ask(lambda block: block.worker.make.remote(self._number, block.given(given)))

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users. (n_users, k)."""
        if self._factors is None:
            parts = self._ask(lambda block: block.worker.factors.remote(self._number))
            self._factors = np.concatenate(parts)
        return self._factors

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._factors = None
        self._ask(
            lambda block: block.worker.set_factors.remote(
                self._number, value[block.begin : block.end]
            )
        )

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Run a round on every block; add the updates up in the order of the blocks."""
        self._factors, shared = None, self._cluster.put(broadcast)
        found = self._ask(lambda block: self._call(block, "update", shared, t))
        rows = [reduce(np.add, parts) for parts in zip(*(part.rows for part in found), strict=True)]
        totals = [sum(parts) for parts in zip(*(part.totals for part in found), strict=True)]
        return CohortSums(rows, totals, sum(part.n_overflowed for part in found))

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users for fixed item factors."""
        self._factors, shared = None, self._cluster.put(broadcast)
        self._ask(lambda block: self._call(block, "solve_users", shared, block.codes(users)))

    def state(self) -> dict[str, Array]:
        """Return the states of all blocks as one."""
        return joined(self.blocks, self._ask(lambda block: self._call(block, "state")))

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state, whatever number of workers it comes from."""
        self._factors = None
        self._ask(lambda block: self._call(block, "restore", block.state(state)))

    def _call(self, block: Block, method: str, *arguments: Any) -> Any:
        return block.worker.call.remote(self._number, method, *arguments)

    def _ask(self, call: Callable[[Block], Any]) -> list[Any]:
        if not self._cluster.has(self._holders):
            raise lost("Ray was shut down, or another worker was lost before")
        return self._cluster.answers([call(block) for block in self.blocks])
