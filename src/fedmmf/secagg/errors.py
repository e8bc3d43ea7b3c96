"""What secure aggregation raises: a bad message, a round below its threshold, a bad setting."""

from fedmmf.errors import SettingsError, WireError


class SecAggError(WireError):
    """A message was refused; the state of whoever refused it is as it was before.

    Args:
        sender: who sent it, in words: `party 7` or `the server`.
        reason: what was required and what arrived.
    """

    def __init__(self, sender: str, reason: str) -> None:
        super().__init__(f"message from {sender} refused: {reason}")
        self.sender = sender
        self.reason = reason


class BelowThresholdError(WireError):
    """Too few parties are left to finish the round; it is aborted and nothing of it is kept."""

    def __init__(self, stage: str, answered: int, needed: int, whom: str = "parties") -> None:
        super().__init__(
            f"round aborted at '{stage}': {answered} {whom} answered, at least {needed} are "
            "needed. Wait longer, invite more parties, or lower the threshold."
        )
        self.stage = stage
        self.answered = answered
        self.needed = needed


class RoundError(WireError):
    """A stage was asked for out of order, or after the round was aborted."""


class PolicyError(SettingsError):
    """Threshold, cohort or neighbour count break a security condition; the text says which."""


def require(condition: bool, sender: str, reason: str) -> None:
    """Refuse a message of `sender` unless `condition` holds."""
    if not condition:
        raise SecAggError(sender, reason)
