"""Secure sums, in words."""

from typing import Any

NOT_HIDDEN = (
    "Not hidden: that a user takes part, what the sums themselves say, and differences between "
    "sums of groups that change from round to round."
)


def words(settings: Any) -> tuple[str, ...]:
    """What the server sees, and what not."""
    return (
        "Sharing is strict: every update goes into a sum, made by secure aggregation. A server "
        "that follows the protocol learns the sum over the users who stayed. It sees no single "
        "update, so neither a user's masked ratings nor which items that user rated.",
        "Other users see even less. Users who collude with the server do not change this while "
        "they are fewer than the protocol's threshold.",
        NOT_HIDDEN,
    )
