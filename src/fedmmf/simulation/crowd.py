"""Every party at once: what the server would be told, computed by an engine."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.engines.contract import CrowdInput
from fedmmf.errors import WireError
from fedmmf.server.rounds import divergence
from fedmmf.solvers.contract import ItemSums, added, part_of
from fedmmf.sums.contract import HELD_OUT_TOTALS
from fedmmf.wire import Round

if TYPE_CHECKING:
    from fedmmf.simulation.prepared import Prepared


class SimulatedCrowd:
    """All parties of a simulation.

    Args:
        run: what they train on.
        rank: length of p_u, as the server has it.
        member: number of the run in an ensemble; each has simulated noise of its own.
    """

    def __init__(self, run: "Prepared", rank: int, member: int = 0) -> None:
        self._run, settings = run, run.settings
        self._groups = run.groups
        cohorts = [group.cohort for group in self._groups]
        masked, n_items = run.masks.masked_ratings, run.training.n_items
        given = CrowdInput(settings.solver, rank, n_items, run.lists, masked, cohorts)
        self._users = run.engine.crowd(given)
        self._noise = (settings.seed, "noise", member)
        self._best = self.user_factors.copy()

    @property
    def user_factors(self) -> Array:
        """p_u of everybody. (n_users, k)."""
        return self._users.user_factors

    def sums(self, round_: Round) -> ItemSums:
        """Take part in a round."""
        self._remember_best(round_)
        try:
            with np.errstate(all="ignore"):  # what comes of it is checked
                found = self._users.update(round_.public, round_.round)
        except (WireError, np.linalg.LinAlgError) as error:
            # Real parties would refuse to send such an update.
            raise divergence(self._run.settings, round_.round) from error
        held_out = self._held_out_totals(round_.item_rows[:, : round_.rank])
        totals = np.hstack((held_out, found.totals))
        noise = rng.stream(*self._noise, round_.round)
        parts = [
            group.sums(rows, totals, noise)
            for group, rows in zip(self._groups, found.rows, strict=True)
        ]
        return added(parts)

    def finish(self, round_: Round) -> None:
        """Go back to the p_u of the best round, where there is one."""
        self._remember_best(round_)
        if round_.best_round:
            self._users.user_factors = self._best
        for group in self._groups:
            if group.is_collected:  # these had no part in the rounds
                self._users.settle(round_.public, np.flatnonzero(group.members))

    def _remember_best(self, round_: Round) -> None:
        if round_.best_round and round_.best_round == round_.round - 1:
            self._best = self.user_factors.copy()

    def _held_out_totals(self, q: Array) -> Array:
        """Number of held-out ratings and their squared error, of every user. (n_users, 2)."""
        held_out, n_users = self._run.held_out, self._run.lists.n_users
        if held_out is None:
            return np.zeros((n_users, HELD_OUT_TOTALS))
        codes = (held_out.user_codes, held_out.item_codes)
        scores = self._run.engine.pair_scores(*codes, self.user_factors, q)
        predicted = held_out.scale.clip(scores + self._run.held_out_mask)
        squares = np.square(held_out.values - predicted, dtype=np.float64)
        errors = np.bincount(held_out.user_codes, squares, n_users)
        return np.column_stack((np.diff(held_out.by_user), errors))

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round, for a checkpoint."""
        users = {f"parties/{name}": value for name, value in self._users.state().items()}
        return {"parties-best": self._best, **users}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._users.restore(part_of(state, "parties/"))
        self._best = state["parties-best"].copy()
