"""The server's view of the sites: which are connected, and how to reach their parties."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from threading import RLock, Thread
from typing import Protocol

from fedmmf.errors import WireError
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import PROTOCOL, Hello, Welcome, shown
from fedmmf.federation.limits import PARTIES_PER_BUNDLE, beyond_limits
from fedmmf.federation.status import SiteStatus, now
from fedmmf.transports.bundles import pack, unpack_answers

_MISSED = 3  # heartbeats after which a site is away
_HURRY = 10  # divides the time limit of a site that was silent
_FULL_EVERY = 10  # requests after which it gets the whole time limit again
_LOOK = 0.2  # seconds between checks that a site that is asked is still connected
NOTICE = timedelta(seconds=3)  # after which the status says that a site is waited for
_SECOND = "another process of this site is connected; this one waits for its end"
log = logging.getLogger("fedmmf.server")


class Link(Protocol):
    """Connection to other machines that carries bytes, such as `transports.nvflare.CellLink`."""

    def ask(self, topic: str, questions: Mapping[str, bytes], timeout: float) -> dict[str, bytes]:
        """Send questions to machines; return the answers that arrived in time."""

    def is_connected(self, name: str) -> bool:
        """Whether there is a connection now."""


@dataclass(frozen=True)
class Admission:
    """The conditions under which a site is let in."""

    charter: Charter
    catalogue: bytes  # digest
    identities: Mapping[bytes, str] | None  # site of each key that may sign; None: nobody signs

    def refusal(self, site: str, hello: Hello) -> str:
        """Return why a site may not take part; empty: it may."""
        if hello.protocol != PROTOCOL:
            return f"it speaks protocol {hello.protocol} ({hello.version}); {PROTOCOL} is due"
        if hello.charter != self.charter.digest.hex():
            return "its federation.toml differs from the server's"
        if hello.catalogue != self.catalogue.hex():
            return "its catalogue differs from the server's: other items, features or scale"
        if site not in self.charter.sites:
            return "it is not among the sites of this federation"
        if self.charter.party == "site" and hello.parties != 1:
            return f"a site is one party here; it has {hello.parties}"
        if hello.parties > self.charter.most_parties:
            return (
                f"a site brings at most {self.charter.most_parties:,} parties "
                f"(max_parties_per_site); it has {hello.parties:,}"
            )
        if not self.knows(site, bytes.fromhex(hello.identity)):
            return "its identity is unknown or was revoked"
        return ""

    def knows(self, party: str, identity: bytes) -> bool:
        """Whether a party may sign with this identity."""
        return self.identities is None or self.identities.get(identity) == site_of(party)


@dataclass(frozen=True)
class _Seen:
    """What the server knows of a site that has said hello."""

    hello: Hello
    heard: float  # by the monotonic clock
    is_away: bool = False


class Sites:
    """All sites that may take part, and the transport to the parties of connected ones.

    Attributes:
        changes: counts up whenever somebody comes, or comes back.

    Args:
        link: to the machines.
        admission: whom to let in.
        on_change: called when a site's status has changed.
        on_refusal: called with the name of a site that is not let in, and why.
    """

    def __init__(
        self,
        link: Link,
        admission: Admission,
        on_change: Callable[[], None],
        on_refusal: Callable[[str, str], None] = lambda site, reason: None,
    ) -> None:
        self._link, self._admission, self._on_change = link, admission, on_change
        self._on_refusal = on_refusal
        self._lock = RLock()
        self._seen: dict[str, _Seen] = {}
        self._asked: dict[str, datetime] = {}  # who is at work on an answer, and since when
        self._refused: dict[str, str] = {}  # why each was refused last
        self._silences: dict[str, int] = {}  # of each site, since it was last in a sum
        self._pictures = {name: SiteStatus(name=name) for name in admission.charter.sites}
        self._heartbeat = admission.charter.deadlines.heartbeat
        self.changes = 0
        self.welcome = Welcome(is_welcome=True)  # answer to a site that is let in

    def remember(self, pictures: Sequence[SiteStatus]) -> None:
        """Go on counting where an earlier server of this federation was."""
        for picture in pictures:
            if picture.name in self._pictures:
                self._pictures[picture.name] = picture.model_copy(update={"state": "away"})

    def hello(self, site: str, data: bytes) -> bytes:
        """Answer the hello of a site."""
        try:
            hello = Hello.decode(data)
            reason = self._admission.refusal(site, hello) or self._beyond_limits(site, hello)
        except (WireError, ValueError) as error:
            return self._refuse(site, str(error))
        if reason:
            return self._refuse(site, reason)
        if self._is_second(site, hello.instance):
            return self._refuse(site, _SECOND, may_retry=True)
        self._note(site, hello)
        return self.welcome.encode()

    def _beyond_limits(self, site: str, hello: Hello) -> str:
        with self._lock:
            others = (seen.hello.parties for name, seen in self._seen.items() if name != site)
            return beyond_limits(hello.parties, hello.users, sum(others))

    def knock(self, site: str, instance: bytes) -> bytes:
        """Tell a process that is not connected yet whether its site's place is free.

        In the network, a second connection of one name would end the first.
        """
        with self._lock:
            if site in self._pictures:
                self._look_after(site)
            is_second = self._is_second(site, instance.decode(errors="replace"))
        if is_second:
            return self._refuse(site, _SECOND, may_retry=True)
        return Welcome(is_welcome=True).encode()

    def _is_second(self, site: str, instance: str) -> bool:
        with self._lock:
            before = self._seen.get(site)
            is_other = before is not None and before.hello.instance != instance
            return is_other and not self._is_silent(site)

    def _is_silent(self, site: str) -> bool:
        """Whether nothing was heard of a site for long; one that is at work may be late."""
        seen = self._seen[site]
        is_late = time.monotonic() - seen.heard > _MISSED * self._heartbeat
        return seen.is_away or (is_late and site not in self._asked)

    def _refuse(self, site: str, reason: str, *, may_retry: bool = False) -> bytes:
        reason = shown(reason)
        with self._lock:
            is_news, self._refused[site] = self._refused.get(site) != reason, reason
        if is_news:  # one that waits asks again with every heartbeat
            log.warning("%s was refused: %s", site, reason)
        self._on_refusal(shown(site), reason)
        with self._lock:
            is_here = site in self._seen and not self._is_silent(site)
            if site in self._pictures and not is_here:
                self._picture(site, state="refused", reason=reason)
        self._on_change()
        return Welcome(is_welcome=False, may_retry=may_retry, reason=reason).encode()

    def _note(self, site: str, hello: Hello) -> None:
        with self._lock:
            before = self._seen.get(site)
            is_new = before is None or before.hello.instance != hello.instance
            comes = before is None or is_new or self._is_silent(site)
            self._seen[site] = _Seen(hello, time.monotonic())
            about = hello.model_dump(include={"parties", "users", "version"})
            self._picture(site, state="here", seen=now(), **about)
            self.changes += comes
            if comes:  # every sign of life would make the same refusal news again
                self._refused.pop(site, None)
        if comes:
            log.info("%s is here, with %d users", site, hello.users)
            self._on_change()

    def _picture(self, site: str, **changes: object) -> None:
        self._pictures[site] = self._pictures[site].model_copy(update=changes)

    @property
    def pictures(self) -> tuple[SiteStatus, ...]:
        """Status of every site, as an operator sees it."""
        with self._lock:
            for site in self._pictures:
                self._look_after(site)
                self._picture(site, awaited=self._awaited(site))
            return tuple(self._pictures.values())

    def _awaited(self, site: str) -> str:
        """Since when a site's answer is waited for; empty where that is not long."""
        since = self._asked.get(site)
        if since is None or datetime.now(UTC) - since < NOTICE:
            return ""
        return since.isoformat(timespec="seconds")

    def here(self) -> list[str]:
        """Names of sites that are connected and were heard of lately."""
        with self._lock:
            for site in self._pictures:
                self._look_after(site)
            return [name for name, picture in self._pictures.items() if picture.state == "here"]

    def _look_after(self, site: str) -> None:
        seen = self._seen.get(site)
        is_gone = seen is not None and (self._is_silent(site) or not self._link.is_connected(site))
        if seen is not None and is_gone and self._pictures[site].state == "here":
            self._seen[site] = replace(seen, is_away=True)
            self._picture(site, state="away", reason=self._pictures[site].reason or "went away")
            log.warning("%s is away", site)

    def parties(self, sites: Sequence[str]) -> list[str]:
        """Names of the parties behind some sites."""
        with self._lock:
            return [name for site in sites for name in self._parties_of(site)]

    def _parties_of(self, site: str) -> list[str]:
        if self._admission.charter.party == "site":
            return [site]
        return [f"{site}/{number:06}" for number in range(self._seen[site].hello.parties)]

    def named_rounds(self, run: str) -> dict[str, int]:
        """The last round of a run that each site, here or not, says that it had a part in."""
        with self._lock:
            return {
                site: seen.hello.round for site, seen in self._seen.items() if seen.hello.run == run
            }

    def count(self, joined: Sequence[str], summed: Sequence[str]) -> None:
        """Note whose parties were in a round's sum, and whose were not."""
        began, stayed = ({site_of(name) for name in names} for names in (joined, summed))
        with self._lock:
            for site in began:
                picture, is_in = self._pictures[site], site in stayed
                rounds, lost = picture.rounds + is_in, picture.drop_outs + (not is_in)
                self._picture(site, rounds=rounds, drop_outs=lost)
                if is_in:
                    self._silences.pop(site, None)

    def blame(self, party: str, reason: str) -> None:
        """Record what went wrong with a party."""
        with self._lock:
            if site_of(party) in self._pictures:
                self._picture(site_of(party), reason=reason)

    def identity_of(self, site: str) -> bytes:
        """Public key that a site which was let in signs with; empty: it does not sign."""
        with self._lock:
            return bytes.fromhex(self._seen[site].hello.identity)

    def knows(self, party: str, identity: bytes) -> bool:
        """Whether a party may sign with this identity."""
        return self._admission.knows(party, identity)

    # A transport

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Send messages to parties, a thread per site; do not wait for absent sites."""
        by_site: dict[str, list[str]] = {}
        for name in messages:
            by_site.setdefault(site_of(name), []).append(name)
        here = [site for site in by_site if site in self.here()]
        began = time.monotonic()
        until = {site: began + self._patience(site, timeout) for site in here}
        replies: dict[str, bytes] = {}
        with ThreadPoolExecutor(max(1, len(here))) as pool:
            asked = [
                pool.submit(self._ask, site, by_site[site], messages, until[site]) for site in here
            ]
            for answer in asked:
                replies |= answer.result()
        return replies

    def _patience(self, site: str, timeout: float) -> float:
        """Seconds to wait for a site: few for one that was silent, until it is in a sum again.

        Now and then it has the whole time, since an honest site may have become slow.
        """
        with self._lock:
            is_hurried = self._silences.get(site, 0) % _FULL_EVERY
        return timeout / _HURRY if is_hurried else timeout

    def _ask(
        self, site: str, names: Sequence[str], messages: Mapping[str, bytes], until: float
    ) -> dict[str, bytes]:
        """Send messages to one site's parties, some at a time."""
        replies: dict[str, bytes] = {}
        rest = iter(names)
        while some := list(islice(rest, PARTIES_PER_BUNDLE)):
            bundle = pack(messages, some)
            answer = self._answer_of(site, bundle, until)
            self._traffic(site, len(answer or b""), len(bundle))
            found = self._unpacked(site, answer, some)
            if found is None:
                break  # whatever happened to it, the next bundle would only wait as long again
            replies |= found
            del answer, found  # the bytes of an answer are here once
        return replies

    def _answer_of(self, site: str, bundle: bytes, until: float) -> bytes | None:
        with self._lock:
            self._asked[site] = datetime.now(UTC)
        try:
            return self._ask_while_connected(site, bundle, until)
        finally:
            with self._lock:
                self._asked.pop(site, None)
                self._seen[site] = replace(self._seen[site], heard=time.monotonic())

    def _ask_while_connected(self, site: str, bundle: bytes, until: float) -> bytes | None:
        """Ask, and wait no longer once there is no connection on which an answer could come."""
        answer: Future[bytes | None] = Future()
        left = max(until - time.monotonic(), 0.001)

        def ask() -> None:
            try:
                answer.set_result(self._link.ask("ask", {site: bundle}, left).get(site))
            except BaseException as error:  # passed on to the thread that waits
                answer.set_exception(error)

        Thread(target=ask, daemon=True).start()
        while not wait((answer,), _LOOK).done:
            if not self._link.is_connected(site):
                return None
        return answer.result()

    def _unpacked(
        self, site: str, data: bytes | None, asked: Sequence[str]
    ) -> dict[str, bytes] | None:
        if data is None:
            with self._lock:
                if site in self._seen:
                    self._seen[site] = replace(self._seen[site], is_away=True)
                self._silences[site] = self._silences.get(site, 0) + 1
                self._picture(site, state="away", reason="did not answer in time")
            return None
        try:
            return unpack_answers(data, asked)
        except WireError as error:
            self.blame(site, str(error))
            return None

    def _traffic(self, site: str, up: int, down: int) -> None:
        with self._lock:
            picture = self._pictures[site]
            self._picture(
                site, up_bytes=picture.up_bytes + up, down_bytes=picture.down_bytes + down
            )


def site_of(party: str) -> str:
    """Which site a party is at."""
    return party.partition("/")[0]
