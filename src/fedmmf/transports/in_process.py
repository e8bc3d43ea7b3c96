"""Transport to parties in the same process, one after the other; no reply is ever late."""

from collections.abc import Mapping

from fedmmf.transports.contract import Answers


class InProcess:
    """Passes each party its message; a party that crashes has not answered, and is recorded."""

    def __init__(self, parties: Mapping[str, Answers]) -> None:
        self.parties = parties
        self.crashed: dict[str, str] = {}

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], timeout: float
    ) -> dict[str, bytes]:
        """Pass each party its message; return the replies of those that did not crash."""
        replies = {}
        for name in messages:
            try:
                replies[name] = self.parties[name].answer(messages[name])
            except Exception as error:
                self.crashed[name] = f"{stage}: {type(error).__name__}: {error}"
        return replies
