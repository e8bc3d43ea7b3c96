"""Differential privacy for a whole user: updates of bounded length, with Gaussian noise."""

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.dp.disclosure import words
from fedmmf.registry import lazy

DP = AggregationScheme(
    name="dp",
    hides=True,
    party=lazy("fedmmf.aggregation.dp.party:dp_party"),
    server=lazy("fedmmf.aggregation.dp.server:dp_server"),
    simulate=lazy("fedmmf.aggregation.dp.simulated:groups"),
    cost=lazy("fedmmf.aggregation.dp.simulated:cost"),
    words=words,
    spent=lazy("fedmmf.aggregation.dp.spending:spent"),
)
