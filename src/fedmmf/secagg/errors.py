"""Errors of secure aggregation: a bad message, a round below its threshold, a bad setting."""

from fedmmf.errors import SettingsError, WireError

SERVER = 0xFFFFFFFF  # the number of the server in message headers


def in_words(sender: int) -> str:
    """Name a sender: `party 7` or `the server`."""
    return "the server" if sender == SERVER else f"party {sender}"


class SecAggError(WireError):
    """A message was refused; the state of the refusing side is unchanged.

    Args:
        sender: the number of the party that sent it, or `SERVER`.
        reason: what was required and what arrived.
    """

    def __init__(self, sender: int, reason: str) -> None:
        super().__init__(f"message from {in_words(sender)} refused: {reason}")
        self.sender, self.reason = sender, reason
        self.blamed = None if sender == SERVER else sender


class BelowThresholdError(WireError):
    """Too few parties are left to finish the round; it is aborted and nothing of it is kept.

    Args:
        stage: where it ended.
        answered: how many answered.
        needed: how many had to.
        whom: what they are.
        owner: the party whose secret could not be recovered, where that is the reason.
    """

    def __init__(
        self,
        stage: str,
        answered: int,
        needed: int,
        whom: str = "parties",
        owner: int | None = None,
    ) -> None:
        super().__init__(
            f"round aborted at '{stage}': {answered} {whom} answered, at least {needed} are "
            "needed. Wait longer, or invite more parties."
        )
        self.stage = stage
        self.answered = answered
        self.needed = needed
        self.owner = owner


class RoundError(WireError):
    """A stage was asked for out of order, or after the round was aborted."""


class PolicyError(SettingsError):
    """Threshold, cohort or neighbour count break a security condition; the text says which."""


def require(condition: bool, sender: int, reason: str) -> None:
    """Refuse a message of `sender` unless `condition` holds."""
    if not condition:
        raise SecAggError(sender, reason)
