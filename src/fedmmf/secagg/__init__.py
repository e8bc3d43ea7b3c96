"""Secure aggregation: the server learns the sum of the survivors' vectors and nothing else.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", with
the neighbour graph of Bell et al. 2020, "Secure Single-Server Aggregation with (Poly)Logarithmic
Overhead". Pure state machines: bytes in, bytes out, no sockets, no clocks.
"""

from fedmmf.secagg.client import Client
from fedmmf.secagg.codec import FixedPoint
from fedmmf.secagg.errors import BelowThresholdError, PolicyError, RoundError, SecAggError
from fedmmf.secagg.keys import public_identity
from fedmmf.secagg.policy import least_cohort, least_threshold, parameters
from fedmmf.secagg.ring import PRIME61, RING32, RING64, Ring, ring_named
from fedmmf.secagg.server import Receipt, Server, Stage
from fedmmf.secagg.session import SessionClient, SessionServer
from fedmmf.secagg.setup import Setup

__all__ = [
    "PRIME61",
    "RING32",
    "RING64",
    "BelowThresholdError",
    "Client",
    "FixedPoint",
    "PolicyError",
    "Receipt",
    "Ring",
    "RoundError",
    "SecAggError",
    "Server",
    "SessionClient",
    "SessionServer",
    "Setup",
    "Stage",
    "least_cohort",
    "least_threshold",
    "parameters",
    "public_identity",
    "ring_named",
]
