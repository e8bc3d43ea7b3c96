"""Plain aggregation: the server sees every party's update."""

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.plain.disclosure import words
from fedmmf.registry import lazy

PLAIN = AggregationScheme(
    name="plain",
    hides=False,
    party=lazy("fedmmf.aggregation.plain.party:PlainParty"),
    server=lazy("fedmmf.aggregation.plain.server:PlainServer"),
    simulate=lazy("fedmmf.aggregation.plain.simulated:groups"),
    cost=lazy("fedmmf.aggregation.plain.simulated:cost"),
    words=words,
)
