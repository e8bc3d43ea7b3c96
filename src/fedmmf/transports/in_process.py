"""Parties in the same process, asked one after the other; nobody is ever late."""

from collections.abc import Mapping

from fedmmf.transports.contract import Answers


class InProcess:
    """Hands each party its message. One that crashes has not answered, and is named."""

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        self._parties = parties
        self.crashed: dict[str, str] = {}

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Ask everybody."""
        replies = {}
        for name in messages:
            try:
                replies[name] = self._parties[name].answer(messages[name])
            except Exception as error:
                self.crashed[name] = f"{stage}: {type(error).__name__}: {error}"
        return replies
