"""The server: item factors, rounds, early stopping. It never sees ratings or masks.

`Server` holds the state and moves it by one round's sums. Where the sums come from is a
`Participants`: those of `aggregation` ask parties over a transport; the simulation computes the
same sums in kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedmmf import rng, wire
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.errors import DivergenceError
from fedmmf.factorization import sgd, vb
from fedmmf.factorization.contract import ItemSolver, ItemSums, Public
from fedmmf.factorization.stopping import EarlyStop

HELD_OUT_TOTALS = 2  # each update's totals begin with the held-out count and squared error


class Participants(Protocol):
    """Whoever holds the ratings."""

    def sums(self, message: wire.Round) -> ItemSums:
        """Take part in a round."""

    def finish(self, message: wire.Round) -> None:
        """Receive the final item factors."""


class Transport(Protocol):
    """Carries bytes to parties and back; a missing reply is a drop-out."""

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Send each party its message; return the replies that came in time."""


@dataclass(frozen=True)
class Catalogue:
    """What is public about items and ratings before training."""

    n_items: int
    span: float  # of the rating scale
    level: float  # the masked rating that an unknown user gives an unknown item
    ratings_per_user: float
    features: Array  # (n_items, d) regressors of the variational prior; d may be 0


def make_solver(
    settings: Settings,
    catalogue: Catalogue,
    member: int = 0,
    solve: Callable[[Array, Array, Array, float], Array] = vb.posterior_rows,
) -> ItemSolver:
    """The server's half of the solver; `member` tells the runs of an ensemble apart."""
    stream = rng.stream(settings.seed, "item factors", member)
    n_items, factors, level = catalogue.n_items, settings.factors, catalogue.level
    if settings.solver == "vb":
        features = catalogue.features if settings.item_prior else catalogue.features[:, :0]
        return vb.Server(stream, n_items, factors, level, catalogue.span / 4, features, solve)
    plan = make_plan(settings, catalogue)
    return sgd.Server(plan, stream, n_items, factors + 2 * settings.biases, level)


def make_plan(settings: Settings, catalogue: Catalogue) -> sgd.Plan:
    """Fill in what the settings leave to `auto`."""
    rate, regularization = settings.learning_rate, settings.regularization
    if rate == "auto":
        rate = sgd.DEFAULT_RATES[settings.step]
    if regularization == "auto":
        regularization = sgd.auto_regularization(catalogue.span, catalogue.ratings_per_user)
    step = sgd.STEPS.index(settings.step)
    return sgd.Plan(step, rate, regularization, settings.user_prior, float(settings.biases))


class Server:
    """Item factors and their progress through the rounds."""

    def __init__(self, settings: Settings, solver: ItemSolver) -> None:
        self._settings = settings
        self._solver = solver
        self._public = solver.public()
        self._stop = EarlyStop(settings.patience)
        self._best: Public | None = None  # what was published in the best round
        self.round = 0
        self.rounds = settings.max_rounds

    @property
    def history(self) -> list[float]:
        """Held-out RMSE of each round."""
        return self._stop.history

    @property
    def best_round(self) -> int:
        """The round with the lowest held-out error; 0 where nothing was held out."""
        return self._stop.best_round

    @property
    def is_finished(self) -> bool:
        """Whether all rounds are done or early stopping has called."""
        return self.round >= self.rounds or self._stop.is_over

    @property
    def result(self) -> Public:
        """What to keep: of the best round, or the last where nothing was held out."""
        return self._public if self._best is None else self._best

    def next_message(self, *, is_last: bool = False) -> wire.Round:
        """What the parties are sent for the coming round, or at the end."""
        public = self.result if is_last else self._public
        return wire.Round(self.round + 1, self.best_round, is_last, self._settings.solver, public)

    def advance(self, message: wire.Round, sums: ItemSums) -> None:
        """Finish the round that `message` began."""
        n_held_out, squared_error = sums.totals[:HELD_OUT_TOTALS]
        is_best = self._stop.observe(float(squared_error), int(n_held_out))
        if is_best:
            rows = message.public.item_rows.copy()
            self._best = Public(message.public.factors, message.public.parameters, rows)
        solver_sums = ItemSums(sums.rows, sums.n_raters, sums.totals[HELD_OUT_TOTALS:])
        self._solver.advance(solver_sums, message.round)
        self.round, self._public = message.round, self._solver.public()
        if not np.isfinite(self._public.item_factors).all():
            raise DivergenceError(self._explain_divergence())

    def _explain_divergence(self) -> str:
        settings = self._settings
        return (
            f"training diverged in round {self.round}: factors are no longer finite with "
            f"--solver {settings.solver} --step {settings.step} "
            f"--learning-rate {settings.learning_rate}. "
            "Lower the learning rate or use --step adam."
        )

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round, for a checkpoint."""
        state = {f"solver/{name}": value for name, value in self._solver.state().items()}
        state["history"] = np.array(self.history)
        if self._best is not None:
            state["best/rows"] = self._best.item_rows
            state["best/parameters"] = self._best.parameters
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._solver.restore(part_of(state, "solver/"))
        self._public = self._solver.public()
        self._stop = EarlyStop(self._settings.patience)
        for rmse in state["history"]:
            self._stop.observe(rmse**2, int(np.isfinite(rmse)))
        if "best/rows" in state:
            rows, parameters = state["best/rows"], state["best/parameters"]
            self._best = Public(self._public.factors, parameters, rows)
        self.round = len(self.history)


def n_totals(solver: str, public: Public) -> int:
    """How many totals a solver's updates carry, after those of the held-out ratings."""
    if solver == "context":
        return len(public.parameters) - 1  # a gradient in the parameters, less the family's number
    return vb.n_totals(public.factors) if solver == "vb" else 0


def n_update_totals(solver: str, public: Public) -> int:
    """How many totals an update carries in all."""
    return HELD_OUT_TOTALS + n_totals(solver, public)


def part_of(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The entries under a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


def run(
    server: Server,
    participants: Participants,
    after_round: Callable[[Server], None] = lambda server: None,
) -> None:
    """Train until the server is finished, then hand out the final factors."""
    while not server.is_finished:
        message = server.next_message()
        server.advance(message, participants.sums(message))
        after_round(server)
    participants.finish(server.next_message(is_last=True))
