"""What differentially private aggregation reveals, in sentences for people."""

from typing import Any


def words(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what epsilon covers."""
    return (
        "Updates are shortened and get noise (differential privacy): what the server sees says "
        "little about what a user rated, and how. How little, dp_epsilon says; smaller is less. "
        "That the user took part is not hidden.",
        "With dp_noise local the server sees single updates with much noise; with distributed it "
        "sees sums alone, made by secure aggregation.",
    )
