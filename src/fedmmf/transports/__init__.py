"""Carrying bytes between the server and parties; a missing reply is a drop-out."""

from fedmmf.registry import Registry
from fedmmf.transports.contract import Answers, MakeTransport, Transport

TRANSPORTS: Registry[MakeTransport] = Registry(
    "transport",
    "fedmmf.transports",
    {"in_process": "fedmmf.transports.in_process:InProcess"},
)

__all__ = ["TRANSPORTS", "Answers", "MakeTransport", "Transport"]
