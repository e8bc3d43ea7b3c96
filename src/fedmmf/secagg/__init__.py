"""Secure aggregation: the server learns the sum of the survivors' vectors and nothing else.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", with
the neighbour graph of Bell et al. 2020, "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead". Pure state machines: bytes in, bytes out, no sockets, no clocks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmmf.secagg.client import RoundClient
    from fedmmf.secagg.errors import BelowThresholdError, PolicyError, RoundError, SecAggError
    from fedmmf.secagg.fixed_point import FixedPoint
    from fedmmf.secagg.keys import public_identity
    from fedmmf.secagg.policy import LARGEST_COHORT, MINIMUM_COHORT, least_threshold, parameters
    from fedmmf.secagg.ring import PRIME61, RING32, RING64, Ring, ring_named
    from fedmmf.secagg.server import Receipt, RoundServer, Stage
    from fedmmf.secagg.session import SessionClient
    from fedmmf.secagg.session_server import SessionServer
    from fedmmf.secagg.setup import Setup
    from fedmmf.secagg.sizes import SessionSize, session_bytes

# Imported when first used: a party needs no server.
_MODULES = {
    "client": ("RoundClient",),
    "fixed_point": ("FixedPoint",),
    "errors": ("BelowThresholdError", "PolicyError", "RoundError", "SecAggError"),
    "keys": ("public_identity",),
    "policy": ("LARGEST_COHORT", "MINIMUM_COHORT", "least_threshold", "parameters"),
    "ring": ("PRIME61", "RING32", "RING64", "Ring", "ring_named"),
    "server": ("Receipt", "RoundServer", "Stage"),
    "session": ("SessionClient",),
    "session_server": ("SessionServer",),
    "setup": ("Setup",),
    "sizes": ("SessionSize", "session_bytes"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "LARGEST_COHORT",
    "MINIMUM_COHORT",
    "PRIME61",
    "RING32",
    "RING64",
    "BelowThresholdError",
    "FixedPoint",
    "PolicyError",
    "Receipt",
    "Ring",
    "RoundClient",
    "RoundError",
    "RoundServer",
    "SecAggError",
    "SessionClient",
    "SessionServer",
    "SessionSize",
    "Setup",
    "Stage",
    "least_threshold",
    "parameters",
    "public_identity",
    "ring_named",
    "session_bytes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedmmf.secagg' has no attribute {name!r}")
    return getattr(import_module(f"fedmmf.secagg.{_HOMES[name]}"), name)
