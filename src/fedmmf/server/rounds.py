"""Item factors through the rounds of training. The server never sees ratings or masks.

`Coordinator` holds the state and steps it by one round's sums. The sums come from `Participants`:
an aggregation scheme asks parties over a transport, and a simulation computes the same sums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS, last_number
from fedmmf.arrays import Array
from fedmmf.errors import BroadcastError, DataError, DivergenceError, ExcludedError, WireError
from fedmmf.server.stopping import EarlyStop
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums, ServerHalf, part_of
from fedmmf.wire import Round

MAX_LOST = 3  # rounds in a row that may fail before training is given up


class Participants(Protocol):
    """The holders of ratings, as a source of each round's sums."""

    def sums(self, round_: Round) -> ItemSums:
        """Return the sums of a round over users."""

    def newcomers(self, round_: Round) -> Array | None:
        """Return what the prior of newcomers is made from, summed over users; None: nothing."""

    def finish(self, round_: Round) -> None:
        """Receive the final item factors."""


@dataclass(frozen=True, eq=False)
class WholeCatalogue:
    """The whole catalogue, and which of its items are summed."""

    items: Array  # codes of those that are summed (n,)
    regressors: Array  # content features of all items (n_catalogue, d)

    def filled(self, broadcast: Broadcast, half: ServerHalf) -> Broadcast:
        """Compute the broadcast for all items from that for the summed ones."""
        is_other = np.ones(len(self.regressors), bool)
        is_other[self.items] = False
        if not is_other.any():
            return broadcast
        rows = np.empty((len(is_other), broadcast.item_rows.shape[1]), np.float32)
        rows[self.items] = broadcast.item_rows
        rows[is_other] = half.unknown(self.regressors[is_other])
        return Broadcast(broadcast.rank, broadcast.parameters, rows)


class Coordinator:
    """The server's state through the rounds: item factors and early stopping.

    Attributes:
        round: number of the last round that has ended; one that was lost uses up its number.
        n_done: rounds that gave a sum.
        rounds: how many have to give one, unless training stops early.
        newcomers: what the prior of newcomers is made from, after the last round; None: nothing.

    Args:
        settings: of the run.
        half: the server's half of the solver.
        catalogue: the whole catalogue; `half` knows the summed items alone.
        most_lost: rounds in a row that may fail before training is given up.
    """

    def __init__(
        self,
        settings: Any,
        half: ServerHalf,
        catalogue: WholeCatalogue,
        most_lost: int = MAX_LOST,
    ) -> None:
        self._settings, self._half, self._most_lost = settings, half, most_lost
        self._catalogue = catalogue
        self._broadcast = half.broadcast()
        self._stop = EarlyStop(settings.patience)
        self._best: Broadcast | None = None  # the best round's, for all items
        self._n_lost = 0  # in a row
        self.round = self.n_done = 0
        self.rounds = settings.max_rounds
        self.newcomers: Array | None = None

    @property
    def half(self) -> ServerHalf:
        """The server's half of the solver, in its current state."""
        return self._half

    @property
    def history(self) -> list[float]:
        """Held-out RMSE of each round; NaN for one that was lost."""
        return self._stop.history

    @property
    def best_round(self) -> int:
        """The round with the lowest held-out error; 0 where nothing was held out."""
        return self._stop.best_round

    @property
    def is_finished(self) -> bool:
        """Whether all rounds are done, early stopping ends them, or a privacy budget is spent."""
        may_be_spent = self._settings.scheme.has_budget and self.n_done > 0
        return self.n_done >= self.rounds or self._stop.is_over or (may_be_spent and self._is_spent)

    @property
    def _is_spent(self) -> bool:
        """Whether all round numbers that parties agreed to are used up."""
        return self.round >= last_number(self._settings)

    @property
    def result(self) -> Broadcast:
        """Final broadcast for all items: of the best round, else of the last."""
        found = self._best
        if found is None:
            found = self._catalogue.filled(self._broadcast, self._half)
        return replace(found, newcomers=self.newcomers)

    def next_round(self, *, is_last: bool = False) -> Round:
        """Return the message that begins the coming round, or that ends training."""
        if self._is_spent and not is_last:
            raise WireError(
                f"training needs {self.rounds} rounds and has {self.n_done} after {self.round} "
                "attempts, and parties agreed to no more. Find out why so many fail, and train anew"
            )
        broadcast = self.result if is_last else self._broadcast
        return Round.of(broadcast, self.round + 1, self.best_round, is_last)

    def advance(self, round_: Round, sums: ItemSums) -> None:
        """Step the factors by the sums of `round_`; a failure leaves the state as before.

        The sums are not trusted: any party can move them by as much as its bounds allow.
        """
        whole = self._catalogue.filled(round_.broadcast, self._half)
        solver_sums = replace(sums, totals=sums.totals[HELD_OUT_TOTALS:])
        self._step(partial(self._half.advance, solver_sums, round_.round), round_.round)
        n_held_out, squared_error = sums.totals[:HELD_OUT_TOTALS]
        if self._stop.observe(float(squared_error), float(n_held_out)):
            self._best = whole
        self.round, self._n_lost = round_.round, 0
        self.n_done += 1

    def _step(self, step: Callable[[], None], number: int) -> None:
        """Let the half take a step, and keep its next broadcast; a failure leaves both as before.

        Args:
            step: changes the half.
            number: of the round, for the error.

        Raises:
            DivergenceError: parties could not compute with the next broadcast.
        """
        before = self._half.state()
        try:
            with np.errstate(all="ignore"):
                step()
                broadcast = self._half.broadcast()
            self._require_sound(broadcast)
        except (ArithmeticError, np.linalg.LinAlgError, WireError) as error:
            self._half.restore(before)
            raise divergence(self._settings, number, error) from None
        self._broadcast = broadcast

    def _require_sound(self, broadcast: Broadcast) -> None:
        """Require a broadcast that parties can compute with."""
        if not all(np.isfinite(part).all() for part in (broadcast.item_rows, broadcast.parameters)):
            raise WireError("the factors are no longer finite")
        self._half.check(broadcast)

    def lose(self, round_: Round, error: Exception) -> None:
        """Count a round without a sum; the factors stay. Raise `error` after too many in a row."""
        # Exclusions are not counted: they end by themselves, when nobody is left to exclude.
        self._n_lost += not isinstance(error, ExcludedError)
        if self._n_lost >= self._most_lost:
            raise error
        self.skip_to(round_.round)

    def skip_to(self, number: int) -> None:
        """Never use round numbers up to this one again, since parties know them already.

        Under a privacy budget each stands for one release, which a half that names its releases
        then does without.
        """
        lose = getattr(self._half, "lose", None)
        for lost in range(self.round + 1, number + 1):
            if lose is not None:
                self._step(lose, lost)
        self._count_to(number)

    def _count_to(self, number: int) -> None:
        while self.round < number:
            self._stop.observe(0.0, 0)
            self.round += 1

    def skip_ahead(self, n_rounds: int, half: Mapping[str, Array]) -> None:
        """Take over the half's state after rounds on a device; nothing was held out in them."""
        self._step(partial(self._half.restore, half), self.round + n_rounds)
        self._count_to(self.round + n_rounds)
        self.n_done += n_rounds

    def state(self) -> dict[str, Array]:
        """Return all that changes from round to round, for a checkpoint."""
        state = {f"solver/{name}": value for name, value in self._half.state().items()}
        state["history"], state["n_done"] = np.array(self.history), np.array(self.n_done)
        if self._best is not None:
            state["best/rows"] = self._best.item_rows
            state["best/parameters"] = self._best.parameters
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._half.restore(part_of(state, "solver/"))
        self._broadcast = self._half.broadcast()
        self._stop = EarlyStop(self._settings.patience)
        for rmse in state["history"]:
            self._stop.observe(rmse**2, int(np.isfinite(rmse)))
        if "best/rows" in state:
            rows, parameters = state["best/rows"], state["best/parameters"]
            self._best = Broadcast(self._broadcast.rank, parameters, rows)
        self.round, self.n_done = len(self.history), int(state["n_done"])


def divergence(settings: Any, round_: int, error: Exception | None = None) -> DivergenceError:
    """Return the error that says why training cannot go on, and what to change.

    Args:
        settings: of the run.
        round_: that failed.
        error: what failed in it; None: numbers are no longer finite.
    """
    if isinstance(error, np.linalg.LinAlgError):
        return DivergenceError(
            f"training stopped in round {round_}: solver {settings.solver!r} needs positive "
            f"definite matrices, and the sums of this round gave another one ({error}). Train "
            "with fewer factors or more users; if that does not help, some party's numbers are "
            "wrong."
        )
    solver = SOLVERS[settings.solver]
    if isinstance(error, BroadcastError) and solver.divergence_hint(settings) is None:
        rule = str(error).rpartition(": ")[2]
        return DivergenceError(
            f"training stopped in round {round_}: solver {settings.solver!r} needs numbers for "
            f"which {rule}, and the sums of this round gave others. Leave out users with many "
            "thousand ratings, or train with fewer factors."
        )
    hint = solver.divergence_hint(settings)
    usual = ". Are the ratings what they should be? `fedmmf data info` shows their scale."
    return DivergenceError(
        f"training diverged in round {round_}: numbers are no longer finite with solver "
        f"{settings.solver!r}{usual if hint is None else hint}"
    )


def one_round(coordinator: Coordinator, participants: Participants) -> None:
    """Run one round: broadcast, sum, step; a round without a sum is lost."""
    round_ = coordinator.next_round()
    try:
        sums = participants.sums(round_)
        coordinator.advance(round_, sums)
    except (WireError, DataError, DivergenceError) as error:
        coordinator.lose(round_, error)


def train(
    coordinator: Coordinator,
    participants: Participants,
    after_round: Callable[[Coordinator], None] = lambda coordinator: None,
) -> None:
    """Train until the coordinator is finished, then hand out the final factors."""
    while not coordinator.is_finished:
        one_round(coordinator, participants)
        after_round(coordinator)
    last = coordinator.next_round(is_last=True)
    coordinator.newcomers = participants.newcomers(last)
    participants.finish(last)
