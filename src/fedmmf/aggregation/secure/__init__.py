"""Secure aggregation (`secagg`): the server learns the sum over the surviving parties alone."""

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.secure.disclosure import words
from fedmmf.registry import lazy

SECURE = AggregationScheme(
    name="secure",
    hides=True,
    party=lazy("fedmmf.aggregation.secure.party:SecureParty"),
    server=lazy("fedmmf.aggregation.secure.server:SecureServer"),
    simulate=lazy("fedmmf.aggregation.secure.simulated:groups"),
    cost=lazy("fedmmf.aggregation.secure.cost:cost"),
    words=words,
)
