"""Carrying bytes between the coordinator and parties in the same process."""

from collections.abc import Mapping
from typing import Protocol


class Answers(Protocol):
    """Something that answers bytes with bytes; a party."""

    def answer(self, message: bytes) -> bytes:
        """Answer one message."""


class InProcess:
    """Parties in this process, asked one after the other; for tests and the demo.

    Counts the bytes each way, so that a test can compare them with what is reported.
    """

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        self.parties = parties
        self.bytes_down = 0
        self.bytes_up = 0

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Hand each party its message; nobody is ever late."""
        replies = {name: self.parties[name].answer(data) for name, data in messages.items()}
        self.bytes_down += sum(map(len, messages.values()))
        self.bytes_up += sum(map(len, replies.values()))
        return replies
