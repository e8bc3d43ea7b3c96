"""Algorithm 1: parties whose J is small send updates in the clear; the others sum securely.

Obfuscation, not protection: a small J stops nobody who knows the mask's family and the item
features (errata 13, 24), and the clear group shrinks the cohort of the others (errata 35).
Each party decides for itself, from a J that never leaves it (errata 37); the server learns which
group it is in.
"""

from typing import Any

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.secure import NOT_HIDDEN
from fedmmf.registry import lazy


def disclosure(settings: Any) -> tuple[str, ...]:
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


ADAPTIVE = AggregationScheme(
    name="adaptive",
    hides=True,
    party=lazy("fedmmf.aggregation.adaptive.party:AdaptiveParty"),
    server=lazy("fedmmf.aggregation.adaptive.server:AdaptiveServer"),
    simulate=lazy("fedmmf.aggregation.adaptive.simulated:groups"),
    cost=lazy("fedmmf.aggregation.adaptive.simulated:cost"),
    disclosure=disclosure,
    in_clear="some",
    is_secagg=lambda settings: True,
)
