"""Ways to sum what the parties say: one slice each, by name.

A slice has the server's side, the party's side, what it is in a simulation, what it costs, and
words for people. Naming one loads nothing; a party loads its own side of the way in use alone.
"""

from fedmmf.registry import Registry
from fedmmf.sums.contract import Way

SUMS: Registry[Way] = Registry(
    "way to sum",
    "fedmmf.sums",
    {
        "plain": "fedmmf.sums.plain:PLAIN",
        "adaptive": "fedmmf.sums.adaptive:ADAPTIVE",
        "secure": "fedmmf.sums.secure:SECURE",
        "homomorphic-paillier": "fedmmf.sums.homomorphic:PAILLIER",
        "homomorphic-ckks": "fedmmf.sums.homomorphic:CKKS",
        "dp": "fedmmf.sums.dp:DP",
    },
)

__all__ = ["SUMS", "Way"]
