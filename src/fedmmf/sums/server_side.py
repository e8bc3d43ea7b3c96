"""The server's side of a way to sum, and what the server lends to it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import ItemSums, Solver
from fedmmf.sums.contract import Work, sizes_of
from fedmmf.wire import (
    Catalogue,
    Finish,
    Finished,
    Invitation,
    Joined,
    Message,
    Round,
    Survey,
    name_of,
)
from fedmmf.wire.messages import Expected

Reply = TypeVar("Reply", bound=Message)


class Asking(Protocol):
    """The parties as the server knows them: by name; `server.roster.Roster`."""

    @property
    def names(self) -> Sequence[str]:
        """Everybody who may take part, in order."""

    @property
    def joined(self) -> Mapping[str, Joined]:
        """What those who take part said of themselves, by name, in order."""

    def ask(
        self,
        stage: str,
        questions: Mapping[str, Message],
        expected: type[Reply],
        known: Any = None,
        publication: bytes = b"",
    ) -> dict[str, Reply]:
        """Ask parties; return what the willing ones answered in time."""

    @property
    def refused(self) -> Mapping[str, str]:
        """Why the latest answer of a party was of no use, where one was not."""

    def refuse(self, name: str, reason: str) -> None:
        """Note why a party's answer is of no use."""


@dataclass(frozen=True, eq=False)
class ServerDesk:
    """What the server lends to its side of a way to sum."""

    roster: Asking
    catalogue: Catalogue
    invitation: Invitation
    settings: Any

    @property
    def solver(self) -> Solver:
        """Of the run."""
        return SOLVERS[self.invitation.solver]

    @property
    def rank(self) -> int:
        """Length of a vector of factors, biases counted."""
        return self.invitation.rank

    def expected(self, work: Work) -> Expected:
        """Sizes of the answers to a publication."""
        return sizes_of(self.catalogue, self.solver, self.rank, isinstance(work, Survey))

    @property
    def n_users(self) -> int:
        """How many users are behind those who joined."""
        return sum(joined.n_users for joined in self.roster.joined.values())


class ServerSide:
    """The server's side of a way to sum, for one run."""

    def __init__(self, desk: ServerDesk) -> None:
        self.desk = desk
        self.survivors: Sequence[str] = ()  # whose updates are in the last sum
        self.n_ratings: int | None = None  # of everybody, where a survey has counted them
        self.summed_with: Sequence[str] = ()  # whom its fixed point had room for, theirs among them

    @property
    def left_out(self) -> Array:
        """Items that are not summed, once that is known. (n,) int32."""
        return np.zeros(0, np.int32)

    def state(self) -> dict[str, Array]:
        """What a server that is started again has to know, for a checkpoint."""
        return {}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from there."""

    def prepare(self) -> None:
        """Whatever comes before round 1, such as the survey that finds rare items."""

    def survey(self, *, with_ratings: bool) -> ItemSums:
        """Users per item and, if asked for, the sums of their ratings."""
        return self.sum("survey", Survey(with_ratings))

    def sums(self, round_: Round) -> ItemSums:
        """Run one round."""
        return self.sum("round", round_)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Add up what the parties say to a publication."""
        raise WireError(f"nothing sums a {type(work).__name__}")

    def finish(self, round_: Round) -> None:
        """Hand out the final factors to everybody."""
        self.hand_out(round_.encode(), self.desk.roster.joined)

    def hand_out(self, frame: bytes, names: Iterable[str]) -> None:
        """Send what is published last."""
        questions = dict.fromkeys(names, Finish(name_of(frame)))
        self.desk.roster.ask("finish", questions, Finished, publication=frame)

    def handout(self) -> bytes:
        """What every party has to be given over a channel without the server; empty: nothing."""
        return b""
