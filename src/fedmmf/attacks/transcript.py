"""A transport that keeps what passes through it, for attacks on real messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from fedmmf.transport import Answers, InProcess


@dataclass(frozen=True)
class Exchange:
    """One stage: what the server sent and what it received, by party."""

    stage: str
    sent: Mapping[str, bytes]
    received: Mapping[str, bytes]


class Recording(InProcess):
    """Parties in this process; the server's side of every exchange is kept."""

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        super().__init__(parties)
        self.seen: list[Exchange] = []

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Hand each party its message and keep what it answers."""
        replies = super().exchange(stage, messages, timeout)
        self.seen.append(Exchange(stage, messages, replies))
        return replies

    def last(self, stage: str) -> Exchange:
        """The latest exchange of a stage."""
        return next(exchange for exchange in reversed(self.seen) if exchange.stage == stage)
