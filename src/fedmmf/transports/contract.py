"""What a transport is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MAX_MESSAGE_BYTES = 256 << 20  # NVFlare would take two gigabytes from anybody it knows


class Answers(Protocol):
    """Something that answers bytes with bytes; a party."""

    def answer(self, data: bytes) -> bytes:
        """Answer one message."""


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
    """Files that say who a machine is, and whom it believes."""

    authority: Path  # certificate that signed all others
    certificate: Path
    key: Path


MakeTransport = Callable[[Mapping[str, Answers]], Transport]
"""A transport to parties by name, where they are at hand; others are made in their own way."""
