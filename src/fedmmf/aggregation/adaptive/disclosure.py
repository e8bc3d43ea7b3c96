"""What adaptive aggregation reveals, in sentences for people."""

from typing import Any

from fedmmf.aggregation.secure.disclosure import NOT_HIDDEN


def words(settings: Any) -> tuple[str, ...]:
    """Return sentences that say who is protected and who is not."""
    collected = "The server collects the masked ratings themselves of users with J <= threshold_j."
    return (
        "Sharing is adaptive, the paper's way: users with J <= threshold_j send their updates in "
        "the clear. This is obfuscation, not protection. Who knows the item features and the kind "
        "of mask can work ratings out of masked ratings.",
        "The server also learns who is in which group, and which items users in the clear rated.",
        "Updates of the others go into a sum, made by secure aggregation. These users hide in a "
        "smaller crowd than under strict sharing.",
        NOT_HIDDEN,
        *((collected,) if settings.collect_masked else ()),
    )
