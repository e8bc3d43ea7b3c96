"""Training across machines: rounds among the connected sites, until training is done.

A stretch ends when a site arrives, or when a round gives no sum; the next begins with an invitation
to the same run and, for secure sums, with fresh keys. What was learned is kept on disk after every
round.
"""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import numpy as np

from fedmmf.aggregation import AGGREGATIONS
from fedmmf.aggregation.contract import last_number
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.arrays import Array
from fedmmf.errors import DataError, DivergenceError, FedMMFError, WireError
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import shown
from fedmmf.federation.sites import Sites, site_of
from fedmmf.federation.status import Board, IncidentLine, now
from fedmmf.federation.store import RunStore
from fedmmf.server.federation import ServerPlan
from fedmmf.server.roster import Roster
from fedmmf.server.rounds import Coordinator
from fedmmf.solvers.contract import part_of
from fedmmf.wire import Invitation, Layout, Newcomers

_POLL = 0.1  # seconds between checks of which sites are here
BREATH = 1.0  # seconds between an attempt without a sum and the next
_MIN_TO_AGREE = 2  # sites, on a round that the server does not know of
_RECENT = 20  # rounds that the remaining time is estimated from
log = logging.getLogger("fedmmf.server")


class StoppedError(FedMMFError):
    """The server was asked to stop."""


@dataclass(eq=False)
class _Stretch:
    """A sequence of rounds among the same parties."""

    roster: Roster
    side: ServerSide
    changes: int  # of the sites, when it began
    ahead: dict[str, int] = field(default_factory=dict)  # last round of each site that waits
    n_told: int = 0  # incidents that were passed on


class Training:
    """One run, from the state on disk to the final factors.

    Args:
        plan: what is trained; its number of ratings per user is found by the survey.
        charter: of the federation.
        sites: those who may take part.
        store: where training is kept.
        board: where it is shown.
    """

    def __init__(
        self,
        plan: ServerPlan,
        charter: Charter,
        sites: Sites,
        store: RunStore,
        board: Board,
    ) -> None:
        self._plan, self._charter = plan, charter
        self._sites, self._store, self._board = sites, store, board
        self._stop = Event()
        self._invitation: Invitation | None = None
        self._coordinator: Coordinator | None = None
        self._side_state: dict[str, Array] = {}
        self._seconds: list[float] = []
        self._n_lost = 0  # invitations and surveys in a row
        self._is_fresh = True  # until the sites have had time to come
        self._told_ahead: dict[str, int] = {}  # last round of each site that was reported ahead

    def stop(self) -> None:
        """Stop between two rounds; the state is on disk."""
        self._stop.set()

    def run(self) -> bytes:
        """Train to the end; return the finished model in the encoding that sites read."""
        self._restore()
        while self._coordinator is None or not self._coordinator.is_finished:
            stretch = self._gather()
            if stretch is not None:
                self._go_on(stretch)
        return self._finish(self._coordinator)

    def _restore(self) -> None:
        found = self._store.load()
        if found is None:
            return
        state, meta = found
        self._invitation = Invitation.decode(state["invitation"].tobytes())
        self._side_state = part_of(state, "side/")
        layout = Layout.decode(self._side_state["layout"].tobytes())
        self._begin_rounds(layout, meta["ratings_per_user"])
        coordinator = self._rounds()
        coordinator.restore(part_of(state, "server/"))
        coordinator.skip_to(self._store.attempt)
        log.info("training goes on after round %d", coordinator.n_done)
        self._show_rounds()

    def _rounds(self) -> Coordinator:
        if self._coordinator is None:
            raise WireError("no round can begin before the survey")
        return self._coordinator

    def _begin_rounds(self, layout: Layout, ratings_per_user: float | None) -> None:
        self._plan = replace(self._plan, ratings_per_user=ratings_per_user)
        most_lost = self._charter.deadlines.retries
        self._coordinator = self._plan.coordinator(layout, most_lost=most_lost)

    # Who is here

    def _gather(self) -> _Stretch | None:
        """Wait for enough sites, invite them, and run the survey if there was none."""
        self._wait_for_sites()
        changes, here, ahead = self._sites.changes, *self._in_step()
        self._catch_up()
        self._tell_of_ahead(ahead)
        roster = Roster(
            self._sites,
            self._sites.parties(here),
            self._charter.deadlines.answer,
            self._sites.knows,
        )
        self._invitation = self._invitation or self._plan.invitation()
        try:
            roster.invite(self._invitation)
        except WireError as error:
            self._tell_of(_Stretch(roster, ServerSide(self._context(roster)), changes))
            self._lose(error)
            return None
        side = AGGREGATIONS[self._plan.settings.scheme_name].server(self._context(roster))
        stretch = _Stretch(roster, side, changes, ahead)
        side.restore(self._side_state)
        return stretch if self._is_surveyed(stretch) else None

    def _context(self, roster: Roster) -> ServerContext:
        invitation = self._invitation or self._plan.invitation()
        plan = self._plan
        about = (plan.catalogue, invitation, plan.settings, plan.features)
        corrupt = self._charter.corrupt_parties
        return ServerContext(roster, *about, site_of=site_of, corrupt=corrupt)

    def _wait_for_sites(self) -> None:
        """Wait until enough parties are connected, and give the others some time to come."""
        deadlines = self._charter.deadlines
        began, fewest = time.monotonic(), self._plan.settings.smallest_cohort
        while True:
            here, ahead = self._in_step()
            n_parties, waited = len(self._sites.parties(here)), time.monotonic() - began
            is_late = waited >= deadlines.gathering or len(here) == len(self._charter.sites)
            if n_parties >= fewest and (is_late or not self._is_fresh):
                self._is_fresh = False
                return
            if is_late:  # by then sites have said which round most of them know
                self._tell_of_ahead(ahead)
            if waited >= deadlines.patience:
                waits = (f"{site} waits: it {self._place_of(ahead[site])}. " for site in ahead)
                raise WireError(
                    f"training needs {fewest} parties at once; after {waited:.0f} s there are "
                    f"{n_parties}, of {', '.join(here) or 'no site'}. {''.join(waits)}Start the "
                    "other sites, then run again: nothing is lost"
                )
            words = f"{n_parties} of at least {fewest} parties are here; waiting for more"
            self._board.show(state="waiting", detail=words, sites=self._sites.pictures)
            self._pause(_POLL)

    def _in_step(self) -> tuple[list[str], dict[str, int]]:
        """Return the connected sites that can join the next round, and the last round of others.

        A server that was restored from an older copy is behind its sites: they refuse rounds whose
        numbers they have answered before.
        """
        here = self._sites.here()
        if self._coordinator is None or self._invitation is None:
            return here, {}
        named = self._sites.named_rounds(self._invitation.run.hex())
        next_after = max(self._coordinator.round, self._agreed_round(named))
        ahead = {site: named[site] for site in here if named.get(site, 0) > next_after}
        return [site for site in here if site not in ahead], ahead

    def _agreed_round(self, named: Mapping[str, int]) -> int:
        """The highest round within the plan that sites with most of the users say is over.

        How many users it has is a site's own word: at least two sites have to agree.
        """
        users = {picture.name: picture.users for picture in self._sites.pictures}
        within = {s: number for s, number in named.items() if number <= self._last_number}
        for number in sorted(set(within.values()), reverse=True):
            who = [site for site, its in within.items() if its >= number]
            n_users = sum(users[site] for site in who)
            if len(who) >= _MIN_TO_AGREE and 2 * n_users > sum(users.values()):
                return number
        return 0

    @property
    def _last_number(self) -> int:
        return last_number(self._plan.settings)

    def _catch_up(self) -> None:
        """Continue after the round that most sites say is over."""
        if self._coordinator is None or self._invitation is None:
            return
        own = self._coordinator.round
        agreed = self._agreed_round(self._sites.named_rounds(self._invitation.run.hex()))
        if agreed > own:
            self._store.begin_attempt(agreed)
            self._coordinator.skip_to(agreed)
            words = (
                f"this server knew of {own} attempts, sites with most of the users of {agreed}: it "
                "was restored from an older copy, and goes on after the higher number"
            )
            log.warning("%s", words)
            self._board.tell("server", "rounds", words)

    def _tell_of_ahead(self, ahead: Mapping[str, int]) -> None:
        """Report sites that have to wait, each once per round that it names."""
        for site, number in ahead.items():
            if self._told_ahead.get(site) != number:
                words = f"{self._place_of(number)}. It waits until they are past its number"
                log.warning("%s %s", site, words)
                self._board.tell(site, "rounds", words)
        self._told_ahead = dict(ahead)

    def _place_of(self, number: int) -> str:
        """Say where a site that is ahead is, and where the others are."""
        return (
            f"says that round {number} is over; the server and most others are at "
            f"{self._rounds().round}"
        )

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise StoppedError("the server was asked to stop; training goes on when it is started")

    def _is_surveyed(self, stretch: _Stretch) -> bool:
        is_new = self._coordinator is None
        if is_new:
            self._board.show(state="surveying", detail="counting who rated what, in a secure sum")
        try:
            if is_new:
                stretch.side.prepare()
            else:
                stretch.side.adopt()
        except (WireError, DataError) as error:
            self._lose(error)
            return False
        finally:
            self._tell_of(stretch)
        self._n_lost = 0
        if is_new:
            self._side_state = stretch.side.state()
            layout = stretch.side.require_layout()
            self._begin_rounds(layout, self._ratings_per_user(stretch))
            self._keep()
        return True

    def _ratings_per_user(self, stretch: _Stretch) -> float | None:
        n_users = sum(said.n_users for said in stretch.roster.joined.values())
        n_ratings = stretch.side.n_ratings
        return None if n_ratings is None else n_ratings / max(n_users, 1)

    def _lose(self, error: Exception) -> None:
        """Count a lost round; before the first round there is no coordinator that counts."""
        self._n_lost += 1
        log.warning("no sum: %s", error)
        if self._n_lost >= self._charter.deadlines.retries:
            raise error
        self._pause(BREATH)

    # Rounds

    def _go_on(self, stretch: _Stretch) -> None:
        """Run rounds until training is done, a site arrives, or a round gives no sum."""
        coordinator, is_good = self._rounds(), True
        while is_good and not coordinator.is_finished and self._may_go_on(stretch):
            self._pause(0)
            is_good = self._one_round(coordinator, stretch)
        if not is_good:
            self._pause(BREATH)
        if coordinator.is_finished and self._plan.update_shape.n_newcomer:
            self._sum_for_newcomers(coordinator, stretch)

    def _sum_for_newcomers(self, coordinator: Coordinator, stretch: _Stretch) -> None:
        """Sum what the prior of newcomers is made from, once; its number is used up either way."""
        last = coordinator.next_round(is_last=True)
        self._store.begin_attempt(last.round)
        coordinator.newcomers = stretch.side.newcomers(last)
        self._tell_of(stretch)

    def _may_go_on(self, stretch: _Stretch) -> bool:
        """Whether to go on with these sites: none has arrived, and those ahead must still wait."""
        is_past = any(number <= self._rounds().round for number in stretch.ahead.values())
        return stretch.changes == self._sites.changes and not is_past

    def _one_round(self, coordinator: Coordinator, stretch: _Stretch) -> bool:
        """Run a round; return whether it gave a sum. Its number is used up either way."""
        round_, began = coordinator.next_round(), time.perf_counter()
        self._store.begin_attempt(round_.round)
        joined = list(stretch.roster.joined)
        try:
            coordinator.advance(round_, stretch.side.sums(round_))
        except (WireError, DataError, DivergenceError) as error:
            log.warning("attempt %d gave no sum: %s", round_.round, error)
            self._sites.count(joined, ())
            coordinator.lose(round_, error)
            return False
        finally:
            self._tell_of(stretch)
            self._show_rounds()
        self._sites.count(joined, stretch.side.survivors)
        self._note(round_.round, stretch, time.perf_counter() - began)
        return True

    def _note(self, number: int, stretch: _Stretch, seconds: float) -> None:
        """Save a finished round, and show it in the status."""
        survivors = sorted(stretch.side.survivors)
        self._seconds = [*self._seconds[1 - _RECENT :], seconds]
        line = {
            "round": number,
            "parties": survivors,
            "seconds": round(seconds, 4),
            "at": time.time(),
        }
        self._store.note_round({**line, "session": sorted(stretch.side.summed_with)})
        self._keep()
        self._show_rounds()
        words = "round %d (attempt %d): %d parties, %.2f s"
        log.info(words, self._rounds().n_done, number, len(survivors), seconds)

    def _keep(self) -> None:
        coordinator, invitation = self._rounds(), self._invitation
        if invitation is None:
            return
        arrays = {f"server/{name}": value for name, value in coordinator.state().items()}
        arrays |= {f"side/{name}": value for name, value in self._side_state.items()}
        arrays["invitation"] = np.frombuffer(invitation.encode(), np.uint8)
        meta = {"round": coordinator.round, "ratings_per_user": self._plan.ratings_per_user}
        self._store.save(arrays, meta)

    def _finish(self, coordinator: Coordinator) -> bytes:
        """Save the finished model, and offer it to the sites."""
        if self._invitation is None:
            raise WireError("a run without an invitation cannot end")
        last = coordinator.next_round(is_last=True)
        told, layout = coordinator.newcomers, self._side_state["layout"].tobytes()
        more = b"" if told is None else Newcomers(told).encode()
        parcel = self._invitation.encode() + layout + more + last.encode()
        self._store.save_model(parcel)
        self._show_rounds()
        return parcel

    # What is shown

    def _tell_of(self, stretch: _Stretch) -> None:
        """Report incidents of parties to the status."""
        news = stretch.roster.incidents[stretch.n_told :]
        stretch.n_told += len(news)
        lines = [
            IncidentLine(at=now(), **{name: shown(text) for name, text in vars(incident).items()})
            for incident in news
        ]
        for line in lines:
            log.warning("%s, %s: %s", line.party, line.stage, line.reason)
            self._sites.blame(line.party, line.reason)
        self._board.change(lambda status: status.having(*lines))

    def _show_rounds(self) -> None:
        coordinator = self._rounds()
        per_round = statistics.median(self._seconds) if self._seconds else None
        left = None if per_round is None else per_round * (coordinator.rounds - coordinator.n_done)
        self._board.show(
            state="training",
            detail=f"{coordinator.n_done} of {coordinator.rounds} rounds are done",
            round=coordinator.n_done,
            rounds=coordinator.rounds,
            attempts=coordinator.round,
            held_out=_shown(coordinator.history),
            seconds_per_round=per_round,
            seconds_left=left,
            sites=self._sites.pictures,
        )


def _shown(history: Sequence[Any]) -> tuple[float | None, ...]:
    return tuple(float(value) if np.isfinite(value) else None for value in history)
