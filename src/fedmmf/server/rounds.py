"""Item factors through the rounds of training. The server never sees ratings or masks.

`Coordinator` holds the state and moves it by one round's sums. Where the sums come from is a
`Participants`: an aggregation scheme asks parties over a transport, a simulation computes the same
sums.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS, last_number
from fedmmf.arrays import Array
from fedmmf.errors import BroadcastError, DataError, DivergenceError, ExcludedError, WireError
from fedmmf.server.stopping import EarlyStop
from fedmmf.solvers.contract import Broadcast, ItemSums, ServerHalf, part_of
from fedmmf.wire import Round

MAX_LOST = 3  # rounds in a row that may fail before training is given up


class Participants(Protocol):
    """The holders of ratings, as a source of each round's sums."""

    def sums(self, round_: Round) -> ItemSums:
        """Compute the statistics of a round, summed over users."""

    def finish(self, round_: Round) -> None:
        """Receive the final item factors."""


@dataclass(frozen=True, eq=False)
class Everything:
    """The whole catalogue, of which some items are summed."""

    items: Array  # that are summed (n,)
    regressors: Array  # of all (n_catalogue, d)

    def filled(self, public: Broadcast, half: ServerHalf) -> Broadcast:
        """Compute the broadcast for all items from that for the summed ones."""
        is_other = np.ones(len(self.regressors), bool)
        is_other[self.items] = False
        if not is_other.any():
            return public
        rows = np.empty((len(is_other), public.item_rows.shape[1]), np.float32)
        rows[self.items] = public.item_rows
        rows[is_other] = half.unknown(self.regressors[is_other])
        return Broadcast(public.rank, public.parameters, rows)


class Coordinator:
    """The server's state through the rounds: item factors and early stopping.

    Attributes:
        round: number of the last round that was begun.
        n_done: rounds that gave a sum.

    Args:
        settings: of the run.
        half: the server's half of the solver.
        everything: the catalogue, of which the half knows what is summed.
        most_lost: rounds in a row that may fail before training is given up.
    """

    def __init__(
        self,
        settings: Any,
        half: ServerHalf,
        everything: Everything,
        most_lost: int = MAX_LOST,
    ) -> None:
        self._settings, self._half, self._most_lost = settings, half, most_lost
        self._everything = everything
        self._public = half.public()
        self._stop = EarlyStop(settings.patience)
        self._best: Broadcast | None = None  # what was known of all items in the best round
        self._n_lost = 0  # in a row
        self.round = self.n_done = 0
        self.rounds = settings.max_rounds

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
        """Whether all rounds are done, early stopping has called, or a privacy budget is spent."""
        has_budget = self._settings.aggregation == "dp" and self.n_done > 0
        return self.n_done >= self.rounds or self._stop.is_over or (has_budget and self._is_spent)

    @property
    def _is_spent(self) -> bool:
        """Whether no number is left for another round."""
        return self.round >= last_number(self._settings)

    @property
    def result(self) -> Broadcast:
        """Final broadcast for all items: of the best round, else of the last."""
        if self._best is not None:
            return self._best
        return self._everything.filled(self._public, self._half)

    def next_round(self, *, is_last: bool = False) -> Round:
        """Return the broadcast of the coming round, or the final one."""
        if self._is_spent and not is_last:
            raise WireError(
                f"training needs {self.rounds} rounds and has {self.n_done} after {self.round} "
                "attempts, and parties agreed to no more. Find out why so many fail, and train anew"
            )
        public = self.result if is_last else self._public
        return Round.of(public, self.round + 1, self.best_round, is_last)

    def advance(self, round_: Round, sums: ItemSums) -> None:
        """Finish the round of the broadcast `round_`; a failure leaves the state as before.

        The sums are anybody's numbers: one party can make them what it likes within its bounds.
        """
        before, known = self._half.state(), self._everything.filled(round_.public, self._half)
        solver_sums = ItemSums(sums.rows, sums.n_raters, sums.totals[HELD_OUT_TOTALS:])
        try:
            with np.errstate(all="ignore"):
                self._half.advance(solver_sums, round_.round)
                public = self._half.public()
            self._require_sound(public)
        except (ArithmeticError, np.linalg.LinAlgError, WireError) as error:
            self._half.restore(before)
            raise divergence(self._settings, round_.round, error) from None
        n_held_out, squared_error = sums.totals[:HELD_OUT_TOTALS]
        if self._stop.observe(float(squared_error), float(n_held_out)):
            self._best = known
        self.round, self._public, self._n_lost = round_.round, public, 0
        self.n_done += 1

    def _require_sound(self, public: Broadcast) -> None:
        """Require a broadcast that parties can compute with."""
        if not all(np.isfinite(part).all() for part in (public.item_rows, public.parameters)):
            raise WireError("the factors are no longer finite")
        self._half.check(public)

    def lose(self, round_: Round, error: Exception) -> None:
        """Count a round without a sum; the factors stay. Raises `error` after too many."""
        self._n_lost += not isinstance(error, ExcludedError)  # those end: parties run out
        if self._n_lost >= self._most_lost:
            raise error
        self.skip_to(round_.round)

    def skip_to(self, number: int) -> None:
        """Never use round numbers up to this one again, since parties know them already."""
        while self.round < number:
            self._stop.observe(0.0, 0)
            self.round += 1

    def skip_ahead(self, n_rounds: int, half: Mapping[str, Array]) -> None:
        """Take over what so many rounds have made of the half elsewhere; nothing was held out."""
        before = self._half.state()
        try:
            self._half.restore(half)
            public = self._half.public()
            self._require_sound(public)
        except (ArithmeticError, np.linalg.LinAlgError, WireError) as error:
            self._half.restore(before)
            raise divergence(self._settings, self.round + n_rounds, error) from None
        self._public = public
        self.skip_to(self.round + n_rounds)
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
        self._public = self._half.public()
        self._stop = EarlyStop(self._settings.patience)
        for rmse in state["history"]:
            self._stop.observe(rmse**2, int(np.isfinite(rmse)))
        if "best/rows" in state:
            rows, parameters = state["best/rows"], state["best/parameters"]
            self._best = Broadcast(self._public.rank, parameters, rows)
        self.round, self.n_done = len(self.history), int(state["n_done"])


def divergence(settings: Any, round_: int, error: Exception | None = None) -> DivergenceError:
    """Return the error that says why training cannot go on, and what to change.

    Args:
        settings: of the run.
        round_: that failed.
        error: what failed in it; a factorization has its own reason and remedy.
    """
    if isinstance(error, np.linalg.LinAlgError):
        return DivergenceError(
            f"training stopped in round {round_}: solver {settings.solver!r} needs positive "
            f"definite matrices, and the sums of this round gave another one ({error}). Train "
            "with fewer factors or more users; if that does not help, some party's numbers are "
            "wrong."
        )
    if isinstance(error, BroadcastError) and settings.solver != "sgd":
        rule = str(error).rpartition(": ")[2]
        return DivergenceError(
            f"training stopped in round {round_}: solver {settings.solver!r} needs numbers for "
            f"which {rule}, and the sums of this round gave others. Leave out users with many "
            "thousand ratings, or train with fewer factors."
        )
    said = f"training diverged in round {round_}: numbers are no longer finite with solver "
    if settings.solver != "sgd":
        hint = "Are the ratings what they should be? `fedmmf data info` shows their scale."
        return DivergenceError(f"{said}{settings.solver!r}. {hint}")
    said += f"'sgd', step {settings.step!r} and learning_rate {settings.learning_rate}. "
    better = "Lower the learning rate" + ", use step 'adam'" * (settings.step != "adam")
    return DivergenceError(f"{said}{better}, or divide the ratings if they are large.")


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
    participants.finish(coordinator.next_round(is_last=True))
