"""What plain aggregation reveals, in sentences for people."""

from typing import Any


def words(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what the server sees."""
    return (
        "Sharing is plain: the server sees the update of every user. From two rounds of updates it "
        "can work out masked ratings, and without a mask the ratings themselves.",
    )
