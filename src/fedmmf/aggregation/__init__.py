"""Aggregation schemes for the parties' updates: one subpackage each, found by name.

A slice has the server's side, the party's side, what it is in a simulation, what it costs, and
words for people. Naming one loads nothing; a party loads its own side of the way in use alone.
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
