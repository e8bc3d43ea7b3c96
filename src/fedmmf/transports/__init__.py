"""Carrying bytes between the server and parties; a missing reply is a drop-out."""

from fedmmf.transports.contract import Answers, Transport

__all__ = ["Answers", "Transport"]
