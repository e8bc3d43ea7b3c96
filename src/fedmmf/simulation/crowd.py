"""All parties of a simulation at once: an engine computes the sums that the server would get."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedmmf import rng
from fedmmf.aggregation.contract import HELD_OUT_TOTALS
from fedmmf.arrays import Array
from fedmmf.engines.contract import DeviceEngine, Rounds
from fedmmf.errors import WireError
from fedmmf.server.rounds import divergence
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums, ServerHalf, added, part_of, whole_factors
from fedmmf.wire import Round

if TYPE_CHECKING:
    from fedmmf.simulation.prepared import Prepared


class SimulatedCrowd:
    """All parties of a simulation.

    Args:
        run: what they train on.
        member: number of the run in an ensemble; each has simulated noise of its own.
    """

    def __init__(self, run: "Prepared", member: int = 0) -> None:
        self._run, self._groups = run, run.groups
        self._users = run.engine.crowd(run.crowd_input)
        self._noise = (run.settings.seed, "noise", member)
        self._best = self.user_factors.copy()

    @property
    def user_factors(self) -> Array:
        """Factors p_u of all users. (n_users, n_own)."""
        return self._users.user_factors

    def sums(self, round_: Round) -> ItemSums:
        """Compute the statistics of a round, summed over users."""
        self._remember_best(round_)
        try:
            with np.errstate(all="ignore"):  # what comes of it is checked
                found = self._users.update(round_.public, round_.round)
        except (WireError, np.linalg.LinAlgError) as error:
            # Real parties would add zeros instead, and so would users who overflow.
            raise divergence(self._run.settings, round_.round, error) from error
        if found.n_overflowed:
            raise divergence(self._run.settings, round_.round)
        held_out = self._held_out_totals(round_.public)
        noise = rng.stream(*self._noise, round_.round)
        cohorts = zip(self._groups, found.rows, found.totals, strict=True)
        parts = [group.sums(rows, totals, held_out, noise) for group, rows, totals in cohorts]
        return added(parts)

    def rounds(self, half: ServerHalf) -> Rounds | None:
        """Rounds with the server's half on the engine's device; None: one by one, as they come."""
        (group, *others), engine = self._groups, self._run.engine
        is_seen = group.noise_std or group.is_collected or group.is_clear
        if others or is_seen or self._run.tested or not isinstance(engine, DeviceEngine):
            return None
        given = self._run.crowd_input
        return engine.rounds(given, half, group.counts, self._users.state())

    def take(self, rounds: Rounds) -> None:
        """Take over the state after these rounds."""
        self._users.restore(rounds.parties())

    def finish(self, round_: Round) -> None:
        """Go back to the p_u of the best round, where there is one."""
        self._remember_best(round_)
        if round_.best_round:
            self._users.user_factors = self._best
        absent = self._run.crowd_input.lists.lengths == 0
        for group in self._groups:
            if group.is_collected:
                absent |= group.members
        if absent.any():  # these had no part in the rounds
            public = round_.public.take(self._run.layout.items)
            self._users.settle(public, np.flatnonzero(absent))

    def _remember_best(self, round_: Round) -> None:
        if round_.best_round and round_.best_round == round_.round - 1:
            self._best = self.user_factors.copy()

    def _held_out_totals(self, public: Broadcast) -> Array:
        """Number of held-out ratings and their squared error, of every user. (n_users, 2)."""
        tested, n_users = self._run.tested, self._run.lists.n_users
        if tested is None:
            return np.zeros((n_users, HELD_OUT_TOTALS))
        codes = (tested.lists.users, tested.lists.items)
        given, scale = self._run.crowd_input, self._run.ratings.scale
        factors = whole_factors(given.update_shape, public, given.design)
        scores = self._run.engine.pair_scores(*codes, self.user_factors, factors)
        predicted = SOLVERS[given.solver].ratings_of(
            given.update_shape, public, scores + tested.mask, scale
        )
        squares = np.square(tested.values - predicted, dtype=np.float64)
        errors = np.bincount(codes[0], squares, n_users)
        return np.column_stack((tested.lists.lengths, errors))

    def state(self) -> dict[str, Array]:
        """Return all that changes from round to round, for a checkpoint."""
        users = {f"parties/{name}": value for name, value in self._users.state().items()}
        return {"parties-best": self._best, **users}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._users.restore(part_of(state, "parties/"))
        self._best = state["parties-best"].copy()
