"""Wrappers over any transport: record messages, count them, or lose and damage some."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import process_time

from fedmmf.transports.contract import Transport


@dataclass(frozen=True)
class Exchange:
    """One stage: what the server sent and what it received, by party."""

    stage: str
    sent: Mapping[str, bytes]
    received: Mapping[str, bytes]


class Recorded:
    """Keeps the server's side of every exchange."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.seen: list[Exchange] = []

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Pass messages on, and record both directions."""
        replies = self._inner.exchange(stage, messages, timeout)
        self.seen.append(Exchange(stage, messages, replies))
        return replies

    def last(self, stage: str) -> Exchange:
        """The latest exchange of a stage."""
        return next(exchange for exchange in reversed(self.seen) if exchange.stage == stage)


@dataclass
class Counted:
    """Counts of one stage, over all its exchanges."""

    up_bytes: int = 0
    down_bytes: int = 0
    inside_s: float = 0.0  # CPU seconds below the wrapper; in one process, those of the parties
    outside_s: float = 0.0  # CPU seconds since the exchange before; those of the server


@dataclass
class Metered:
    """Counts bytes and CPU seconds, by stage."""

    inner: Transport
    by_stage: dict[str, Counted] = field(default_factory=dict)
    _ended: float = field(default_factory=process_time)  # the exchange before

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Pass messages on, and count bytes and CPU seconds."""
        counted = self.by_stage.setdefault(stage, Counted())
        counted.down_bytes += sum(len(messages[name]) for name in messages)
        began = process_time()
        replies = self.inner.exchange(stage, messages, timeout)
        counted.outside_s += began - self._ended
        self._ended = process_time()
        counted.inside_s += self._ended - began
        counted.up_bytes += sum(map(len, replies.values()))
        return replies

    def of(self, *stages: str) -> Counted:
        """Sum the counts of some stages."""
        found = [self.by_stage[stage] for stage in stages if stage in self.by_stage]
        return Counted(
            sum(part.up_bytes for part in found),
            sum(part.down_bytes for part in found),
            sum(part.inside_s for part in found),
            sum(part.outside_s for part in found),
        )


Fault = Callable[[str, str, bytes], bytes | None]
"""(stage, party, message) -> what arrives instead; None: nothing does."""


def no_fault(stage: str, party: str, data: bytes) -> bytes | None:
    """Return a message unchanged: no fault."""
    return data


@dataclass
class Faulty:
    """Loses or damages messages in either direction, as a function decides."""

    inner: Transport
    down: Fault = no_fault
    up: Fault = no_fault

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Pass on the messages that are not lost."""
        sent = _through(self.down, stage, messages)
        return _through(self.up, stage, self.inner.exchange(stage, sent, timeout))


def _through(fault: Fault, stage: str, messages: Mapping[str, bytes]) -> dict[str, bytes]:
    arrived = {name: fault(stage, name, messages[name]) for name in messages}
    return {name: data for name, data in arrived.items() if data is not None}
