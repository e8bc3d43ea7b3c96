"""Secure aggregation in a simulation: the exact sum of fixed-point updates, and its cost.

Bytes are exact. CPU seconds come from a linear model in `costs.json`, fitted to measurements
(`fedmmf bench costs --write` writes it). A party's work is keys and shares, which grow with its
neighbours; its own vector, with its length; masks, with both; and signatures to check. The server's
work for each party is the same without pairwise masks, which it needs for drop-outs alone.
"""

import json
from functools import cache
from importlib import resources

import numpy as np

from fedmmf.aggregation.rare_items import are_rare
from fedmmf.aggregation.secure.messages import SecureTrip, graph_of
from fedmmf.aggregation.simulated import Cost, CostInput, Group, Simulated
from fedmmf.aggregation.vector import Limbs, n_entries
from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort
from fedmmf.errors import SettingsError
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.secagg.ring import RING64
from fedmmf.secagg.sizes import SessionSize, session_bytes
from fedmmf.wire.frames import NO_NAME

HOW = "by a model fitted to measured rounds"


def groups(users: Simulated) -> list[Group]:
    """Return one group of all users, whose updates are summed in fixed point."""
    everybody = np.ones(users.lists.n_users, bool)
    require_enough(users, everybody)
    return [hidden_group(users, everybody)]


def can_hide(users: Simulated, members: Array) -> bool:
    """Whether a sum over so many users hides each of them."""
    return int(members.sum()) >= fewest_users(users)


def fewest_users(users: Simulated) -> int:
    """Smallest number of users in a sum that hides each of them."""
    return int(users.settings.smallest_cohort)


def require_enough(users: Simulated, members: Array) -> None:
    """Refuse a cohort that is too small."""
    if not can_hide(users, members):
        raise SettingsError(
            f"a sum that hides its summands needs at least {fewest_users(users)} users; got "
            f"{int(members.sum())}. Add users, or simulate without protection: sharing 'plain'"
        )


def hidden_group(users: Simulated, members: Array) -> Group:
    """Group whose sum hides single updates, without items that too few of its members rated."""
    counts = users.lists.counts(users.n_items, None if members.all() else members)
    is_rare = are_rare(counts, users.settings.min_raters, users.settings.batch)
    bounds, ring, n = users.solver.bounds(users.span), ring_named(users.solver.ring), members.sum()
    rows, totals = FixedPoint(int(n), bounds.row, ring), FixedPoint(int(n), bounds.total, RING64)
    cohort = Cohort(
        members=None if members.all() else members,
        left_out=is_rare if is_rare.any() else None,
        bound=bounds.row,
        scale=float(rows.scale),
        total_bound=bounds.total,
        total_scale=float(totals.scale),
    )
    return Group(cohort, members, np.where(is_rare, 0, counts))


def cost(given: CostInput) -> Cost:
    """Cost of a round over all users, each a party of its own."""
    return cost_among(given, given.n_users)


def cost_among(given: CostInput, n_parties: int) -> Cost:
    """Cost of a round over so many parties of one user each, without drop-outs."""
    active = bool(given.settings.signed)
    degree, _ = graph_of(n_parties, active=active, batch=given.settings.batch)
    ring = ring_named(given.solver.ring)
    limbs = 1 if given.update_shape.n_noisy_totals else Limbs.of(given.n_users, ring).n
    length = n_entries(given.sizes, limbs)
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
