"""The interfaces of a transport and of a party that it reaches."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_MESSAGE_BYTES = 256 << 20  # NVFlare would take two gigabytes from anybody it knows


class Answers(Protocol):
    """A party, as a transport sees it: it answers bytes with bytes."""

    def answer(self, data: bytes) -> bytes:
        """Return the answer to one message."""


class Transport(Protocol):
    """Carries bytes to parties and back."""

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Send each party its message; return the replies that came in time.

        Args:
            stage: what it is about, for logs.
            messages: by party; an entry is made when it is read, so read each once.
            timeout: seconds.
        """


@dataclass(frozen=True)
class Credentials:
    """Files that prove a machine's identity, and the authority that it trusts."""

    authority: Path  # certificate that signed all others
    certificate: Path
    key: Path
