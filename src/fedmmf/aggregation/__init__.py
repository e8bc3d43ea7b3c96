"""Aggregation schemes for the parties' updates: one subpackage each, found by name.

A scheme has the server's side, the party's side, its simulation, its cost and its disclosure (what
it reveals). Modules are imported at first use; a party loads only its own side of its scheme.
"""

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.registry import Registry

AGGREGATIONS: Registry[AggregationScheme] = Registry(
    "aggregation scheme",
    "fedmmf.aggregation",
    {
        "plain": "fedmmf.aggregation.plain:PLAIN",
        "adaptive": "fedmmf.aggregation.adaptive:ADAPTIVE",
        "secure": "fedmmf.aggregation.secure:SECURE",
        "homomorphic-paillier": "fedmmf.aggregation.homomorphic:PAILLIER",
        "homomorphic-ckks": "fedmmf.aggregation.homomorphic:CKKS",
        "dp": "fedmmf.aggregation.dp:DP",
    },
)

__all__ = ["AGGREGATIONS", "AggregationScheme"]
