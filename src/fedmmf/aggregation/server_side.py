"""The server's side of an aggregation scheme, and the context that the server lends to it."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from fedmmf.aggregation.contract import Census, Shapes, Work, asked_by
from fedmmf.arrays import Array
from fedmmf.errors import DataError, WireError
from fedmmf.masks.feature_maps import FeatureViews
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
log = logging.getLogger("fedmmf.server")


class Asking(Protocol):
    """The parties by name, as the server knows them; `server.roster.Roster`."""

    @property
    def names(self) -> Sequence[str]:
        """Names of all who may take part, in order."""

    @property
    def joined(self) -> Mapping[str, Joined]:
        """Join messages of those who take part, by name, in order."""

    def ask(
        self,
        stage: str,
        questions: Mapping[str, Message],
        expected: type[Reply],
        known: Any = None,
        broadcast: bytes = b"",
    ) -> dict[str, Reply]:
        """Ask parties; return the answers that came in time."""

    @property
    def refused(self) -> Mapping[str, str]:
        """Reasons why parties' latest answers were refused, by name of the party."""

    @property
    def accused(self) -> Mapping[str, int]:
        """Number of the party that a party's latest refusal blames, by name of the latter."""

    def refuse(self, name: str, reason: str) -> None:
        """Note why a party's answer is refused."""


def its_own_site(party: str) -> str:
    """Return the site of a party where every party is a site of its own."""
    return party


@dataclass(frozen=True, eq=False)
class ServerContext:
    """Everything that the server lends to its side of an aggregation scheme."""

    roster: Asking
    catalogue: Catalogue
    invitation: Invitation
    settings: Any
    features: FeatureViews
    site_of: Callable[[str], str] = its_own_site  # who answers for a party: one owner, one voice
    corrupt: int = 0  # parties of corrupt sites, where sites bring many

    @property
    def solver(self) -> Solver:
        """Solver that the invitation of the run names."""
        return SOLVERS[self.invitation.solver]

    @property
    def update_shape(self) -> UpdateShape:
        """Shape of the solver's updates."""
        return self.solver.update_shape(self.invitation.rank, self.invitation.variant)

    @property
    def n_users(self) -> int:
        """Number of users behind all parties that joined."""
        return sum(joined.n_users for joined in self.roster.joined.values())

    @property
    def shapes(self) -> Shapes:
        """Sizes of the broadcasts and updates of the run."""
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
        """Number of ratings of all users, where a survey has counted them."""
        counted = 0 if self.n_raters is None else int(self.n_raters.sum())
        return counted or None

    def state(self) -> dict[str, Array]:
        """Return what a restarted server needs, since parties answer no second survey."""
        if self.layout is None or self.n_raters is None:
            return {}
        frame = np.frombuffer(self.layout.encode(), np.uint8)
        return {"layout": frame, "n_raters": self.n_raters}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the layout and the rater counts of `state`."""
        if state:
            self.layout = Layout.decode(state["layout"].tobytes())
            self.n_raters = state["n_raters"]

    def prepare(self) -> None:
        """Prepare round 1: run the surveys, and adopt the layout that follows from them."""
        census = self.census()
        items = self.summed_items(census.n_raters)
        if len(items) == 0:
            raise DataError(
                "no item has enough raters to be summed: more people have to take part, or to have "
                "rated the same items"
            )
        line, shrinkage = census.population.line, census.population.shrinkage
        self.n_raters, self.layout = census.n_raters, Layout(items, line, shrinkage)
        self.adopt()

    def census(self) -> Census:
        """Count raters; then sum what users have in common, over the items of the layout alone."""
        n_raters = self.survey(Survey(with_ratings=False)).n_raters
        self.counted = self.survivors
        items = self.summed_items(n_raters)
        if len(items) == 0:
            return Census(n_raters, Population.unknown(self.context.catalogue.scale))
        totals = self.survey(Survey(with_ratings=False, items=items)).totals
        features = self.context.features.expanded[:, : self.context.invitation.columns - 1]
        common = CommonItems.of(items, features, self.context.settings.min_raters)
        about = (n_raters[common.items], common.features, self.context.catalogue.scale)
        return Census(n_raters, Population.of_totals(totals, *about))

    def survey(self, work: Survey) -> ItemSums:
        """Sum all parties' answers to a survey."""
        return self.sum("survey", work)

    def summed_items(self, n_raters: Array) -> Array:
        """Codes of the items to sum from now on; all, where sums are in the clear. (n,) int32."""
        return np.arange(len(n_raters), dtype=np.int32)

    def adopt(self) -> dict[str, Adopted]:
        """Send the layout to all parties; a party that joins later gets it then."""
        frame = self.broadcast(self.require_layout())
        questions = dict.fromkeys(self.context.roster.joined, Adopt(name_of(frame)))
        return self.context.roster.ask("layout", questions, Adopted, broadcast=frame)

    def broadcast(self, work: Work | Layout) -> bytes:
        """Encode a broadcast in the form in which this scheme sends it."""
        return work.encode()

    def require_layout(self) -> Layout:
        """Return the layout; raise `WireError` before the survey has fixed it."""
        if self.layout is None:
            raise WireError("no round can begin before the survey")
        return self.layout

    def expected(self, work: Work) -> Expected:
        """Sizes of the answers to a broadcast."""
        return self.context.shapes.of(asked_by(work), self.layout)

    def known_raters(self) -> Array:
        """Known numbers of raters of the summed items. (n_items,)."""
        items = self.require_layout().items
        return np.zeros(len(items), np.int64) if self.n_raters is None else self.n_raters[items]

    def survey_ratings(self) -> ItemSums:
        """Sums of ratings, mapped to [0, 1] and centred at the middle of the scale, and counts.

        Of the whole catalogue: zeros where nothing is summed.
        """
        items, n_items = self.require_layout().items, self.context.catalogue.n_items
        found = self.sum("survey", Survey(with_ratings=True))
        rows, counts = np.zeros((n_items, 1), np.float32), np.zeros(n_items, np.int64)
        rows[items], counts[items] = found.rows, self.known_raters()
        return ItemSums(rows, counts, found.totals)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round; return its sums over the surviving parties."""
        return self.sum("round", round_)

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Sum the parties' answers to a broadcast."""
        raise WireError(f"nothing sums a {type(work).__name__}")

    def newcomers(self, round_: Round) -> Array | None:
        """Sum what the prior of newcomers is made from, given the final factors. (n_newcomer,).

        It is tried once. None where the solver has no use for it, where every sum costs privacy,
        or where the sum failed: newcomers then get the prior of rounds.
        """
        if not self.context.update_shape.n_newcomer or self.context.settings.scheme.has_budget:
            return None
        try:
            return self.sum("newcomers", round_).totals
        except (WireError, DataError) as error:
            log.warning("no sum for the prior of newcomers: %s", error)
            return None

    def finish(self, round_: Round) -> None:
        """Send the final factors to all parties."""
        self.hand_out(round_, self.context.roster.joined)

    def hand_out(self, round_: Round, names: Iterable[str]) -> None:
        """Send the last broadcast of the run."""
        frame = self.broadcast(round_)
        questions = dict.fromkeys(names, Finish(name_of(frame)))
        self.context.roster.ask("finish", questions, Finished, broadcast=frame)

    def handout(self) -> bytes:
        """Bytes to give every party over a channel without the server; empty: nothing."""
        return b""
