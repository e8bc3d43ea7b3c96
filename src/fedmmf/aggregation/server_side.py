"""The server's side of an aggregation scheme, and what the server lends to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedmmf.aggregation.contract import Census, Shapes, Work, asked_by
from fedmmf.arrays import Array
from fedmmf.errors import DataError, WireError
from fedmmf.masks.population import CommonItems, Population
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import ItemSums, Solver, UpdateShape
from fedmmf.wire import (
    Adopt,
    Adopted,
    Catalogue,
    Finish,
    Finished,
    Invitation,
    Joined,
    Layout,
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
        broadcast: bytes = b"",
    ) -> dict[str, Reply]:
        """Ask parties; return what the willing ones answered in time."""

    @property
    def refused(self) -> Mapping[str, str]:
        """Why the latest answer of a party was of no use, where one was not."""

    @property
    def accused(self) -> Mapping[str, int]:
        """Whom a party's latest answer blames, by number, where it was a refusal that blames."""

    def refuse(self, name: str, reason: str) -> None:
        """Note why a party's answer is of no use."""


def its_own_site(party: str) -> str:
    """Return the site of a party where every party is a site of its own."""
    return party


@dataclass(frozen=True, eq=False)
class ServerContext:
    """What the server lends to its side of an aggregation scheme."""

    roster: Asking
    catalogue: Catalogue
    invitation: Invitation
    settings: Any
    seen: Array  # what masks see of the items; public (n_items, d)
    site_of: Callable[[str], str] = its_own_site  # who answers for a party: one owner, one voice
    corrupt: int = 0  # parties of corrupt sites, where sites bring many

    @property
    def solver(self) -> Solver:
        """Of the run."""
        return SOLVERS[self.invitation.solver]

    @property
    def update_shape(self) -> UpdateShape:
        """Sizes of what the solver sends."""
        return self.solver.update_shape(self.invitation.rank, self.invitation.variant)

    @property
    def n_users(self) -> int:
        """How many users are behind those who joined."""
        return sum(joined.n_users for joined in self.roster.joined.values())

    @property
    def shapes(self) -> Shapes:
        """Sizes of what is summed."""
        return Shapes(self.catalogue.n_items, self.invitation.columns, self.update_shape)


class ServerSide:
    """The server's side of an aggregation scheme, for one run."""

    def __init__(self, context: ServerContext) -> None:
        self.context = context
        self.survivors: Sequence[str] = ()  # whose updates are in the last sum
        self.counted: Sequence[str] = ()  # whose raters the survey has counted
        self.layout: Layout | None = None  # what is summed, once that is known
        self.n_raters: Array | None = None  # (n_catalogue,) of the survey
        self.summed_with: Sequence[str] = ()  # whom its fixed point had room for, theirs among them

    @property
    def n_ratings(self) -> int | None:
        """Of everybody, where a survey has counted them."""
        counted = 0 if self.n_raters is None else int(self.n_raters.sum())
        return counted or None

    def state(self) -> dict[str, Array]:
        """What a server that is started again has to know: parties answer no second survey."""
        if self.layout is None or self.n_raters is None:
            return {}
        frame = np.frombuffer(self.layout.encode(), np.uint8)
        return {"layout": frame, "n_raters": self.n_raters}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from there."""
        if state:
            self.layout = Layout.decode(state["layout"].tobytes())
            self.n_raters = state["n_raters"]

    def prepare(self) -> None:
        """Whatever comes before round 1: surveys, and what follows from them."""
        census = self.census()
        items = self.summed_items(census.n_raters)
        if len(items) == 0:
            raise DataError(
                "no item has enough raters to be summed: more people have to take part, or to have "
                "rated the same items"
            )
        line, pull = census.population.line, census.population.pull
        self.n_raters, self.layout = census.n_raters, Layout(items, line, pull)
        self.adopt()

    def census(self) -> Census:
        """Count raters; then sum what users have in common, over the items of the layout alone."""
        n_raters = self.survey(Survey(with_ratings=False)).n_raters
        self.counted = self.survivors
        items = self.summed_items(n_raters)
        if len(items) == 0:
            return Census(n_raters, Population.unknown(self.context.catalogue.scale))
        totals = self.survey(Survey(with_ratings=False, items=items)).totals
        features = self.context.seen[:, : self.context.invitation.columns - 1]
        common = CommonItems.of(items, features, self.context.settings.min_raters)
        about = (n_raters[common.items], common.features, self.context.catalogue.scale)
        return Census(n_raters, Population.of_totals(totals, *about))

    def survey(self, work: Survey) -> ItemSums:
        """Add up what everybody says to a survey."""
        return self.sum("survey", work)

    def summed_items(self, n_raters: Array) -> Array:
        """Which items are summed from now on; all, where sums are in the clear. (n,) int32."""
        return np.arange(len(n_raters), dtype=np.int32)

    def adopt(self) -> dict[str, Adopted]:
        """Tell everybody what is summed; a party that comes later is told when it comes."""
        frame = self.broadcast(self.require_layout())
        questions = dict.fromkeys(self.context.roster.joined, Adopt(name_of(frame)))
        return self.context.roster.ask("layout", questions, Adopted, broadcast=frame)

    def broadcast(self, work: Work | Layout) -> bytes:
        """How this way publishes."""
        return work.encode()

    def require_layout(self) -> Layout:
        """What is summed."""
        if self.layout is None:
            raise WireError("no round can begin before the survey")
        return self.layout

    def expected(self, work: Work) -> Expected:
        """Sizes of the answers to a broadcast."""
        return self.context.shapes.of(asked_by(work), self.layout)

    def known_raters(self) -> Array:
        """Of the items that are summed. (n_items,)."""
        items = self.require_layout().items
        return np.zeros(len(items), np.int64) if self.n_raters is None else self.n_raters[items]

    def survey_ratings(self) -> ItemSums:
        """Sums of ratings, around the middle of the scale mapped to [0, 1], and counts.

        Of the whole catalogue: zeros where nothing is summed.
        """
        items, n_items = self.require_layout().items, self.context.catalogue.n_items
        found = self.sum("survey", Survey(with_ratings=True))
        rows, counts = np.zeros((n_items, 1), np.float32), np.zeros(n_items, np.int64)
        rows[items], counts[items] = found.rows, self.known_raters()
        return ItemSums(rows, counts, found.totals)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round."""
        return self.sum("round", round_)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Add up what the parties say to a broadcast."""
        raise WireError(f"nothing sums a {type(work).__name__}")

    def finish(self, round_: Round) -> None:
        """Hand out the final factors to everybody."""
        self.hand_out(round_, self.context.roster.joined)

    def hand_out(self, round_: Round, names: Iterable[str]) -> None:
        """Send what is published last."""
        frame = self.broadcast(round_)
        questions = dict.fromkeys(names, Finish(name_of(frame)))
        self.context.roster.ask("finish", questions, Finished, broadcast=frame)

    def handout(self) -> bytes:
        """What every party has to be given over a channel without the server; empty: nothing."""
        return b""
