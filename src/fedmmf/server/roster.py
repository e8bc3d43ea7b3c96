"""The roster of parties: sends messages, checks answers, and drops parties that fail.

Nothing that one party sends, or fails to send, ends the run of another: what is refused, missing or
nonsense is noted here, and the others are summed.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedmmf.aggregation.server_side import Reply
from fedmmf.errors import WireError
from fedmmf.transports.contract import Transport
from fedmmf.wire import Invitation, Joined, Message, Refused, Wanted, name_of, read
from fedmmf.wire.messages import NO_PARTY

PATIENCE = 3  # exchanges in a row without a proper answer before a party counts as gone
MAX_USERS_PER_PARTY = 100_000  # one that claims more would leave the others no room
TIMEOUT = 60.0

Known = Callable[[str, bytes], bool]
"""(party, identity) -> whether it is on the list of those who may take part."""


@dataclass(frozen=True)
class Incident:
    """A party's failure, described for people."""

    stage: str
    party: str
    reason: str


class Parcels(Mapping[str, bytes]):
    """Messages with the broadcast that they name, made as they are sent: there may be many."""

    def __init__(
        self, questions: Mapping[str, Message], broadcast: bytes, holding: frozenset[str]
    ) -> None:
        self._questions, self._broadcast, self._holding = questions, broadcast, holding

    def __getitem__(self, name: str) -> bytes:
        frame = self._questions[name].encode()
        return frame if name in self._holding else self._broadcast + frame

    def __iter__(self) -> Iterator[str]:
        return iter(self._questions)

    def __len__(self) -> int:
        return len(self._questions)


class Roster:
    """The parties, by name.

    Args:
        transport: carries the bytes.
        names: of everybody who may take part.
        timeout: seconds that an exchange stays open.
        known: whether a party of this name may have this identity, where parties sign; None: any.
    """

    def __init__(
        self,
        transport: Transport,
        names: list[str],
        timeout: float = TIMEOUT,
        known: Known | None = None,
    ) -> None:
        self._transport, self._timeout, self._known = transport, timeout, known
        self.names = sorted(names)  # of all parties that may take part
        self._misses = dict.fromkeys(self.names, 0)
        self._joined: dict[str, Joined] = {}
        self._latest = b""  # name of the broadcast that went out last
        self._holding: frozenset[str] = frozenset()  # who has it
        self._blamed: dict[str, int] = {}  # by each party's latest answer
        self.incidents: list[Incident] = []

    @property
    def joined(self) -> Mapping[str, Joined]:
        """Replies of the parties that joined and have not dropped out, by name, in order."""
        return {name: said for name, said in self._joined.items() if self._is_alive(name)}

    @property
    def refused(self) -> dict[str, str]:
        """The latest incident of each party that had one."""
        return {incident.party: incident.reason for incident in self.incidents}

    @property
    def accused(self) -> dict[str, int]:
        """Whom a party's latest answer blames, by number, where it was a refusal that blames."""
        return {party: number for party, number in self._blamed.items() if number != NO_PARTY}

    def invite(self, invitation: Invitation) -> None:
        """Begin a run: invite all parties, those that dropped out too."""
        self._misses = dict.fromkeys(self.names, 0)
        replies = self.ask("invite", dict.fromkeys(self.names, invitation), Joined)
        self._joined = {
            name: said for name, said in replies.items() if self._is_welcome(name, said)
        }
        if not self._joined:
            said = next(iter(self.refused.values()), "nobody answered")
            raise WireError(f"no party joined the federation: {said}")

    def _is_welcome(self, name: str, said: Joined) -> bool:
        reason = ""
        if said.n_users > MAX_USERS_PER_PARTY:
            reason = f"claims {said.n_users:,} users; {MAX_USERS_PER_PARTY:,} are the most"
        elif said.identity and self._known and not self._known(name, said.identity):
            reason = "its identity is not on the list of those who may take part"
        if reason:
            self.incidents.append(Incident("invite", name, reason))
        return not reason

    def ask(
        self,
        stage: str,
        questions: Mapping[str, Message],
        expected: type[Reply],
        known: Any = None,
        broadcast: bytes = b"",
    ) -> dict[str, Reply]:
        """Send messages to the active parties; return the proper answers that came in time.

        Args:
            stage: what it is about.
            questions: by party.
            expected: what a proper answer is.
            known: what answers are checked against.
            broadcast: what the questions name; it travels once to each party.
        """
        self._note(broadcast)
        alive = {name: question for name, question in questions.items() if self._is_alive(name)}
        if not alive:
            return {}
        answers = self._exchange(stage, alive, broadcast, expected, known)
        wanting = {name: alive[name] for name, said in answers.items() if isinstance(said, Wanted)}
        if wanting:
            self._holding = self._holding.difference(wanting)
            answers |= self._exchange(stage, wanting, broadcast, expected, known)
        return {name: said for name, said in answers.items() if isinstance(said, expected)}

    def refuse(self, name: str, reason: str) -> None:
        """Record why a party's answer is unusable."""
        self.incidents.append(Incident("sum", name, reason))

    def _note(self, broadcast: bytes) -> None:
        """Forget who holds the last broadcast, if this is another; empty: there is none."""
        name = name_of(broadcast) if broadcast else b""
        if broadcast and name != self._latest:
            self._latest, self._holding = name, frozenset()

    def _exchange(
        self,
        stage: str,
        questions: Mapping[str, Message],
        broadcast: bytes,
        expected: type[Message],
        known: Any,
    ) -> dict[str, Any]:
        parcels = Parcels(questions, broadcast, self._holding)
        replies = self._transport.exchange(stage, parcels, self._timeout)
        answers = {}
        for name in questions:
            said = self._read(stage, name, replies.get(name), expected, known)
            if said is not None:
                answers[name] = said
        if broadcast:
            self._holding = self._holding.union(answers)
        return answers

    def _read(
        self, stage: str, name: str, data: bytes | None, expected: type[Message], known: Any
    ) -> Message | None:
        """Decode a proper answer; None, with an incident, for any other."""
        reason, self._blamed[name] = "did not answer", NO_PARTY
        if data is not None:
            try:
                said = read(data, (expected, Refused, Wanted), known)
            except (WireError, TypeError) as error:  # also from an adapter that gives no bytes
                reason = str(error)
            else:
                if not isinstance(said, Refused):
                    self._misses[name] = 0
                    return said
                reason = f"refused: {said.reason}"
                self._blamed[name] = said.blamed
        self._misses[name] += 1
        gone = "" if self._is_alive(name) else "; it counts as gone"
        self.incidents.append(Incident(stage, name, reason + gone))
        return None

    def _is_alive(self, name: str) -> bool:
        return self._misses[name] < PATIENCE
