"""Plain aggregation: the server sees every party's update."""

from typing import Any

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.registry import lazy


def disclosure(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what the server sees."""
    return (
        "Sharing is plain: the server sees the update of every user. From two rounds of updates it "
        "can work out masked ratings, and without a mask the ratings themselves.",
    )


PLAIN = AggregationScheme(
    name="plain",
    hides=False,
    party=lazy("fedmmf.aggregation.plain.party:PlainParty"),
    server=lazy("fedmmf.aggregation.plain.server:PlainServer"),
    simulate=lazy("fedmmf.aggregation.plain.simulated:groups"),
    cost=lazy("fedmmf.aggregation.plain.simulated:cost"),
    disclosure=disclosure,
    in_clear="everybody",
)
