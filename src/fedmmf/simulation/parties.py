"""All parties of a simulation at once: a user group of everybody, and simulated aggregation."""

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.engines.contract import DeviceEngine, Rounds
from fedmmf.errors import WireError
from fedmmf.server.rounds import divergence
from fedmmf.solvers.contract import ItemSums, ServerHalf, added, part_of
from fedmmf.wire import Round

if TYPE_CHECKING:
    from fedmmf.simulation.prepared import Prepared


class SimulatedParties:
    """All parties of a simulation: everybody's user group, summed as a scheme would sum it.

    Args:
        run: what they train on.
        member: number of the run in an ensemble; each has simulated noise of its own.
    """

    def __init__(self, run: "Prepared", member: int = 0) -> None:
        self._run, self._groups = run, run.groups
        self._users = copy(run.users)
        self._users.begin_with(run.training_input, run.layout)
        self._cohorts = run.training_input.cohorts
        self._noise = (run.settings.seed, "noise", member)
        self._best = self.user_factors.copy()

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users. (n_users, n_own)."""
        return self._users.user_factors

    def sums(self, round_: Round) -> ItemSums:
        """Compute the sums of a round over users, as the server would get them."""
        self._remember_best(round_)
        try:
            with np.errstate(all="ignore"):  # what comes of it is checked
                found = self._users.update(round_.broadcast, round_.round, self._cohorts)
        except (WireError, np.linalg.LinAlgError) as error:
            # A real party would add zeros instead; so would one whose user overflows, below.
            raise divergence(self._run.settings, round_.round, error) from error
        if found.n_overflowed:
            raise divergence(self._run.settings, round_.round)
        held_out = self._users.held_out_totals(round_.broadcast)
        noise = rng.stream(*self._noise, round_.round)
        groups = zip(self._groups, found.rows, found.totals, strict=True)
        parts = [group.sums(rows, totals, held_out, noise) for group, rows, totals in groups]
        return added(parts)

    def rounds(self, half: ServerHalf) -> Rounds | None:
        """Rounds of both halves on the engine's device; None: `sums` computes them one by one."""
        (group, *others), engine = self._groups, self._run.engine
        is_special = group.noise_std or group.is_collected or group.is_clear
        if others or is_special or self._users.held_out or not isinstance(engine, DeviceEngine):
            return None
        given = self._run.training_input
        return engine.rounds(given, half, group.counts, self._users.state())

    def take(self, rounds: Rounds) -> None:
        """Take over the state after these rounds."""
        self._users.restore(rounds.parties())

    @property
    def n_newcomer(self) -> int:
        """Totals that the prior of newcomers is made from; 0: nobody's are summed."""
        is_summed = any(group.has_totals for group in self._groups)
        return self._run.plan.update_shape.n_newcomer if is_summed else 0

    def newcomers(self, round_: Round) -> Array | None:
        """Sum what the prior of newcomers is made from, over the users whose totals are summed."""
        if not self.n_newcomer:
            return None
        broadcast, total = round_.broadcast.take(self._run.layout.items), np.zeros(self.n_newcomer)
        for group in self._groups:
            if group.has_totals:
                found = self._users.newcomer_totals(broadcast, group.cohort)
                total += found / (group.cohort.total_scale or 1.0)
        return total

    def finish(self, round_: Round) -> None:
        """Go back to p_u of the best round, if any; solve p_u of users without a part in rounds."""
        self._remember_best(round_)
        if round_.best_round:
            self._users.user_factors = self._best
        had_no_part = self._run.training_input.lists.lengths == 0
        had_no_part |= self._run.plan.update_shape.solves_last
        for group in self._groups:
            if group.is_collected:
                had_no_part |= group.members
        if had_no_part.any():
            broadcast = round_.broadcast.take(self._run.layout.items)
            self._users.solve_users(broadcast, np.flatnonzero(had_no_part))

    def _remember_best(self, round_: Round) -> None:
        if round_.best_round and round_.best_round == round_.round - 1:
            self._best = self.user_factors.copy()

    def state(self) -> dict[str, Array]:
        """Return all that changes from round to round, for a checkpoint."""
        users = {f"parties/{name}": value for name, value in self._users.state().items()}
        return {"parties-best": self._best, **users}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._users.restore(part_of(state, "parties/"))
        self._best = state["parties-best"].copy()
