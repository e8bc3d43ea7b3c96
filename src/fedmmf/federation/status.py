"""The status of a federation as an operator may see it, and the board that holds the latest."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from fedmmf.errors import FedMMFError

State = Literal["waiting", "surveying", "training", "finished", "failed", "stopped"]
Presence = Literal["here", "away", "refused", "never seen"]
STRANGER = "connection"  # stage of a machine that could not prove its identity
MAX_INCIDENTS = 100  # that a status shows; the log has all
SENTENCES: dict[State, str] = {  # where there is no detail
    "waiting": "The server waits for its sites.",
    "surveying": "The server asks for what must be known before training.",
    "training": "Rounds are being made.",
    "finished": "All rounds are done.",
    "failed": "The run has failed.",
    "stopped": "The server was stopped.",
}
log = logging.getLogger("fedmmf.server")


def now() -> str:
    """The current time as text that sorts."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Picture(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class IncidentLine(_Picture):
    """An incident of a site or a party: what failed, when, and why."""

    at: str
    party: str
    stage: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Key that makes two incidents equal; a stranger can choose parts of the reason."""
        return self.party, self.stage, "" if self.stage == STRANGER else self.reason


class SiteStatus(_Picture):
    """One site, as the server sees it.

    Attributes:
        name: of the site.
        state: whether it is connected and may take part.
        parties: behind it, in secure sums.
        users: behind its parties, as it says.
        rounds: whose sums have something of it.
        drop_outs: rounds that it began, and whose sums have nothing of it.
        reason: the last thing that went wrong; empty: nothing did.
        up_bytes: received from it.
        down_bytes: sent to it.
        seen: when it was last heard of.
        version: of fedmmf, as it says.
        awaited: since when the server waits for its answer, if that is long; empty: it does not.
    """

    name: str
    state: Presence = "never seen"
    parties: int = 0
    users: int = 0
    rounds: int = 0
    drop_outs: int = 0
    reason: str = ""
    up_bytes: int = 0
    down_bytes: int = 0
    seen: str = ""
    version: str = ""
    awaited: str = ""

    @property
    def trouble(self) -> str:
        """What is wrong with it, in words; empty: nothing is."""
        if self.awaited:
            return f"no answer yet; it was asked at {_clock(self.awaited)}"
        return self.reason


class Evaluated(_Picture):
    """Errors on the sites' own test ratings; only their secure sum over sites has left them."""

    rmse: float
    mae: float
    n_ratings: int
    sites: tuple[str, ...]
    declined: dict[str, str] = {}  # by site, why it gave no errors


class FederationStatus(_Picture):
    """Everything that the status command, the page and the metrics show.

    Attributes:
        federation: its name.
        state: what the server is doing.
        detail: the same in a sentence.
        round: rounds that are finished.
        rounds: that are wanted.
        attempts: rounds that were begun, finished or not.
        held_out: error on held-out ratings of each attempt; None where there is none.
        sites: everybody who may take part.
        incidents: the latest, newest first.
        n_incidents: all that there were, repetitions included.
        seconds_per_round: the median.
        seconds_left: until the last round, about; None: not known.
        smallest_cohort: parties below which no sum is made.
        settings: of the training.
        protection: what is hidden from whom, in sentences.
        evaluation: once it was asked for.
        started: when the server was started.
        updated: when this status was made.
    """

    federation: str
    version: str
    state: State = "waiting"
    detail: str = ""
    round: int = 0
    rounds: int = 0
    attempts: int = 0
    held_out: tuple[float | None, ...] = ()
    sites: tuple[SiteStatus, ...] = ()
    incidents: tuple[IncidentLine, ...] = ()
    n_incidents: int = 0
    seconds_per_round: float | None = None
    seconds_left: float | None = None
    smallest_cohort: int = 0
    settings: dict[str, Any] = {}
    protection: tuple[str, ...] = ()
    evaluation: Evaluated | None = None
    started: str = ""
    updated: str = ""

    @property
    def sentence(self) -> str:
        """What the server is doing and whom it waits for, in the same words everywhere."""
        detail = self.detail or SENTENCES[self.state]
        return f"{detail.rstrip('.')}; {self.waiting}" if self.waiting else detail

    @property
    def waiting(self) -> str:
        """Whom the server waits for, and since when; empty: nobody lets it wait for long."""
        late = [site for site in self.sites if site.awaited]
        if not late or self.state in ("finished", "failed", "stopped"):
            return ""
        since = _clock(min(site.awaited for site in late))
        return f"waiting for {', '.join(site.name for site in late)} since {since}"

    def but(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, stamped with the current time."""
        return self.model_copy(update={**changes, "updated": now()})

    def having(self, *news: IncidentLine) -> Self:
        """Return a copy with more incidents, newest first; a repeated one moves to the front.

        Whoever repeats an incident cannot push those of others out of the list.
        """
        latest = {line.key: line for line in news}
        others = (line for line in self.incidents if line.key not in latest)
        shown = (*reversed(latest.values()), *others)[:MAX_INCIDENTS]
        return self.but(incidents=shown, n_incidents=self.n_incidents + len(news))


def who_is_here(sites: Sequence[SiteStatus]) -> str:
    """Say in words how many of the sites are here."""
    n_here = sum(site.state == "here" for site in sites)
    if 0 < n_here < len(sites):
        return f"{n_here} of {len(sites)} sites are here"
    return f"all {n_here} sites are here" if n_here else "no site is here"


class Board:
    """Holder of the latest status.

    Args:
        first: what it shows until something changes.
        keep: writes a status to disk. Where that fails, training goes on, and the status says so.
    """

    def __init__(self, first: FederationStatus, keep: Callable[[FederationStatus], None]) -> None:
        self._latest, self._keep = (0, first), keep
        self._lock = Lock()
        self._is_kept = True  # whether the last status could be written

    @property
    def status(self) -> FederationStatus:
        """The latest status of the federation."""
        return self._latest[1]

    @property
    def latest(self) -> tuple[int, FederationStatus]:
        """The number of changes so far, and the latest status."""
        return self._latest

    def change(self, make: Callable[[FederationStatus], FederationStatus]) -> None:
        """Replace the status with one computed from it."""
        with self._lock:
            number, status = self._latest
            self._latest = number + 1, self._written(make(status))

    def _written(self, status: FederationStatus) -> FederationStatus:
        """Save the status; the first failure in a row becomes an incident of the server."""
        was_kept, self._is_kept = self._is_kept, True
        try:
            self._keep(status)
        except (FedMMFError, OSError) as error:
            self._is_kept = False
            if was_kept:
                log.error("the status was not written; all else goes on: %s", error)
                return status.having(_incident("server", "status", str(error)))
        else:
            if not was_kept:
                log.info("the status can be written again")
        return status

    def tell(self, party: str, stage: str, reason: str) -> None:
        """Add an incident to the status."""
        self.change(lambda status: status.having(_incident(party, stage, reason)))

    def show(self, **changes: Any) -> None:
        """Change some fields of the status."""
        self.change(lambda status: status.but(**changes))


def _incident(party: str, stage: str, reason: str) -> IncidentLine:
    return IncidentLine(at=now(), party=party, stage=stage, reason=reason)


def _clock(when: str) -> str:
    return f"{when[11:19]} UTC"
