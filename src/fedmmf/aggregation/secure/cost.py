"""Cost of a round of secure aggregation: exact bytes, and CPU seconds by a model of measurements.

The model is linear, in `costs.json` (`fedmmf bench costs --write` writes it). A party's work is
keys and shares, by neighbours; its own vector, by length; masks, by both; and signatures to check.
The server's work for each party is the same but for the pairwise masks, which it needs for
drop-outs alone.
"""

import json
from functools import cache
from importlib import resources

import numpy as np

from fedmmf.aggregation.costs import Cost, CostInput
from fedmmf.aggregation.secure.agreed import graph_of
from fedmmf.aggregation.secure.messages import SecureTrip
from fedmmf.aggregation.vector import Limbs, n_entries
from fedmmf.secagg import ring_named
from fedmmf.secagg.sizes import SessionSize, session_bytes
from fedmmf.wire.frames import NO_NAME

HOW = "by a model fitted to measured rounds"


def cost(given: CostInput) -> Cost:
    """Cost of a round over all users, each a party of its own."""
    return cost_among(given, given.n_users)


def cost_among(given: CostInput, n_parties: int) -> Cost:
    """Cost of a round over so many parties of one user each, without drop-outs."""
    active = bool(given.settings.signed)
    degree, _ = graph_of(n_parties, active=active, batch=given.settings.batch)
    ring = ring_named(given.solver.ring)
    length = n_entries(given.sizes, Limbs.of(given.n_users, ring).n)
    size = SessionSize(n_parties, degree, length, ring, active)
    inside, around = session_bytes(size), (2 + active) * frame_bytes()
    seconds = predicted_seconds(size)
    return Cost(inside.up + around, inside.down + around + given.round_bytes, *seconds, HOW)


def frame_bytes() -> int:
    """Bytes that a session's message has around its content."""
    return len(SecureTrip(1, NO_NAME, b"").encode())


def n_signatures(size: SessionSize) -> int:
    """Number of signatures that a party checks: its neighbours' neighbours, at most all others."""
    return min(2 * size.degree, size.n - 1) * size.active


def party_features(size: SessionSize) -> list[float]:
    """Features of the model: 1, neighbours, MB of the vector, signatures, MB of all masks."""
    megabytes = 1e-6 * size.length * size.ring.width
    return [1.0, size.degree, megabytes, n_signatures(size), megabytes * size.degree]


def server_features(size: SessionSize) -> list[float]:
    """Features of the model for the server, per party: the same without pairwise masks."""
    return [size.n * feature for feature in party_features(size)[:4]]


def predicted_seconds(size: SessionSize) -> tuple[float, float]:
    """CPU seconds of one party and of the server in one round, by the model."""
    model = _model()
    party_s = float(np.dot(model["party_s"], party_features(size)))
    return party_s, float(np.dot(model["server_s"], server_features(size)))


@cache
def _model() -> dict[str, list[float]]:
    text = resources.files("fedmmf.aggregation.secure").joinpath("costs.json").read_text()
    model: dict[str, list[float]] = json.loads(text)
    return model
