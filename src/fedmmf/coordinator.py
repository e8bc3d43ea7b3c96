"""The server: item factors, rounds, early stopping. It never sees ratings, features or masks.

`Server` holds the state and moves it by one round's sums. Where the sums come from is a
`Participants`: `Remote` asks parties over a transport; the simulation computes the same sums in
kernels.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedmmf import rng, wire
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.errors import DivergenceError, WireError
from fedmmf.factorization import sgd
from fedmmf.factorization.stopping import EarlyStop


@dataclass(frozen=True, eq=False)
class ItemSums:
    """What a round's aggregation gives the server."""

    gradients: Array  # (n_items, k) sum of eta_ui over the raters
    n_raters: Array  # (n_items,)
    n_held_out: int
    squared_error: float


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


def make_plan(settings: Settings, span: float, ratings_per_user: float) -> sgd.Plan:
    """Fill in what the settings leave to `auto`."""
    rate, regularization = settings.learning_rate, settings.regularization
    if rate == "auto":
        rate = sgd.DEFAULT_RATES[settings.step]
    if regularization == "auto":
        regularization = sgd.auto_regularization(span, ratings_per_user)
    return sgd.Plan(settings.factors, settings.step, rate, regularization, settings.user_prior)


class Server:
    """Item factors and their progress through the rounds.

    Args:
        plan: what every party has to know.
        settings: rounds, patience and seed.
        n_items: size of the catalogue.
        level: the masked rating that an unknown user gives an unknown item.
    """

    def __init__(self, plan: sgd.Plan, settings: Settings, n_items: int, level: float) -> None:
        self.plan = plan
        self.round = 0
        self.rounds = settings.rounds
        self.level = level
        self.stop = EarlyStop(settings.patience)
        stream = rng.stream(settings.seed, "item factors")
        start = sgd.start_item_factors(stream, n_items, plan.factors, level)
        self.q = sgd.Factors.starting_at(start)
        self.best = start.copy()  # the factors of the best round

    def next_message(self, *, is_last: bool = False) -> wire.Round:
        """What the parties are sent for the coming round, or at the end."""
        factors = self.item_factors if is_last else self.q.value
        return wire.Round(self.round + 1, self.stop.best_round, is_last, self.plan, factors)

    def advance(self, sums: ItemSums) -> None:
        """Finish a round with its sums: q_i <- q_i - gamma sum_u eta_ui (Alg. 1)."""
        self.round += 1
        if self.stop.observe(sums.squared_error, sums.n_held_out):
            self.best = self.q.value.copy()
        raters = sums.n_raters[:, np.newaxis]  # (n_items, 1)
        sgd.descend(self.q, sums.gradients, raters, self.plan, self.round)
        if self.round == 1:
            self._settle_unrated(sums.n_raters)
        if not np.isfinite(self.q.value).all():
            raise DivergenceError(diverged(self.plan, self.round))

    def _settle_unrated(self, n_raters: Array) -> None:
        """Take the starting noise from items that nobody rated: the mask alone predicts them."""
        self.q.value[n_raters == 0] = 0.0
        self.q.value[n_raters == 0, 0] = self.level / sgd.START_LEVEL

    @property
    def is_finished(self) -> bool:
        """Whether all rounds are done or early stopping has called."""
        return self.round >= self.rounds or self.stop.is_over

    @property
    def item_factors(self) -> Array:
        """The factors to keep: of the best round, or the last where nothing was held out."""
        return self.best if self.stop.best_round else self.q.value

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round, for a checkpoint."""
        return {
            "server/value": self.q.value,
            "server/first": self.q.first,
            "server/second": self.q.second,
            "server/best": self.best,
            "server/history": np.array(self.stop.history),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        parts = ("value", "first", "second")
        self.q = sgd.Factors(*(state[f"server/{part}"].copy() for part in parts))
        self.best = state["server/best"].copy()
        self.stop = EarlyStop(self.stop.patience)
        for rmse in state["server/history"]:
            self.stop.observe(rmse**2, int(np.isfinite(rmse)))
        self.round = len(self.stop.history)


def run(
    server: Server,
    participants: Participants,
    after_round: Callable[[Server], None] = lambda server: None,
) -> None:
    """Train until the server is finished, then hand out the final factors."""
    while not server.is_finished:
        server.advance(participants.sums(server.next_message()))
        after_round(server)
    participants.finish(server.next_message(is_last=True))


def diverged(plan: sgd.Plan, round_: int) -> str:
    """Explain numbers that are not finite."""
    return (
        f"training diverged in round {round_}: factors are no longer finite with "
        f"--step {plan.step} --learning-rate {plan.learning_rate:g}. "
        "Lower the learning rate or use --step adam."
    )


class Remote:
    """Parties behind a transport, their plain updates summed here."""

    def __init__(self, transport: Transport, parties: list[str], *, timeout: float = 60.0) -> None:
        self._transport = transport
        self._timeout = timeout
        self.parties = parties

    def join(self) -> float:
        """Ask everybody to take part; return the mean number of ratings of those who do."""
        replies = self._ask("join", wire.Join().encode())
        self.parties = sorted(replies)
        joined = {
            party: self._read(party, wire.Joined.decode, data) for party, data in replies.items()
        }
        return float(np.mean([reply.n_ratings for reply in joined.values()])) if joined else 0.0

    def sums(self, message: wire.Round) -> ItemSums:
        """Collect one round's updates and sum them; a party that does not answer is left out."""
        n_items, factors = message.item_factors.shape
        gradients = np.zeros((n_items, factors), np.float32)
        n_raters = np.zeros(n_items, np.int64)
        n_held_out, squared_error = 0, 0.0
        for party, data in self._ask("round", message.encode()).items():
            update = self._read(party, wire.Update.decode, data, n_items=n_items, factors=factors)
            if update.round != message.round:
                text = f"sent an update of round {update.round} in round {message.round}"
                raise WireError(f"party {party!r} {text}")
            gradients[update.items] += update.gradients
            n_raters[update.items] += 1
            n_held_out += update.n_held_out
            squared_error += update.squared_error
        return ItemSums(gradients, n_raters, n_held_out, squared_error)

    def finish(self, message: wire.Round) -> None:
        """Send the final factors to everybody."""
        self._ask("finish", message.encode())

    def _ask(self, stage: str, message: bytes) -> dict[str, bytes]:
        return self._transport.exchange(stage, dict.fromkeys(self.parties, message), self._timeout)

    def _read(self, party: str, decode: Callable[..., Any], data: bytes, **known: int) -> Any:
        try:
            return decode(data, **known)
        except WireError as error:
            raise WireError(f"party {party!r} sent a {error}") from None
