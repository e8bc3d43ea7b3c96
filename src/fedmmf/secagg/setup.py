"""What all sides agree on before a round; its digest is bound into every key and message."""

import struct
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np

from fedmmf.secagg import policy
from fedmmf.secagg.errors import PolicyError
from fedmmf.secagg.graph import neighbours
from fedmmf.secagg.keys import KEY_BYTES, digest
from fedmmf.secagg.ring import RING32, Ring

SERVER = 0xFFFFFFFF  # the name of the server in message headers


@dataclass(frozen=True)
class Setup:
    """The public parameters of one round, validated.

    Args:
        round_id: 1 to 64 bytes, never used twice among the same parties.
        parties: their numbers, strictly increasing, below 2^32 - 1.
        threshold: how many holders recover a secret.
        length: entries of a vector.
        ring: where vectors are summed.
        neighbours: k of the neighbour graph; None: everybody.
        graph_seed: fixes the graph; public, and not chosen by whoever might gain from it.
        active: whether signatures and the consistency check are on.
        identities: Ed25519 public keys in the order of `parties`; needed when active.
        minimum: the fewest parties that may be in a cohort or in a sum.
    """

    round_id: bytes
    parties: tuple[int, ...]
    threshold: int
    length: int
    ring: Ring = RING32
    neighbours: int | None = None
    graph_seed: bytes = b""
    active: bool = False
    identities: tuple[bytes, ...] = field(default=(), repr=False)
    minimum: int = policy.MINIMUM_COHORT

    def __post_init__(self) -> None:
        parties = self.parties
        increasing = all(a < b for a, b in pairwise(parties))
        in_range = all(0 <= party < SERVER for party in parties)
        named = [key for key in self.identities if len(key) == KEY_BYTES]
        conditions = [
            (1 <= len(self.round_id) <= 64, "round_id must have 1 to 64 bytes"),
            (increasing and in_range, "parties must increase strictly within [0, 2^32 - 1)"),
            (self.length >= 1, f"length must be at least 1; got {self.length}"),
            (
                not self.active or len(set(named)) == len(parties) == len(self.identities),
                "the active variant needs one distinct Ed25519 public key per party in identities",
            ),
        ]
        for holds, rule in conditions:
            if not holds:
                raise PolicyError(rule)
        n, k, t = self.n, self.degree, self.threshold
        policy.check(n, k, t, active=self.active, minimum=self.minimum)

    @property
    def n(self) -> int:
        """How many parties are invited."""
        return len(self.parties)

    @property
    def degree(self) -> int:
        """How many neighbours each party has."""
        return self.n - 1 if self.neighbours is None else self.neighbours

    @property
    def least(self) -> int:
        """The fewest parties a stage may end with."""
        return max(self.threshold, self.minimum)

    @cached_property
    def context(self) -> bytes:
        """Digest of everything here."""
        numbers = struct.pack(
            "<QQQQ?Q", self.n, self.degree, self.threshold, self.length, self.active, self.minimum
        )
        names = np.array(self.parties, "<u4").tobytes() + b"".join(self.identities)
        ring = self.ring.name.encode()
        return digest(b"fedmmf secagg 1", numbers, self.round_id, self.graph_seed, ring, names)

    @cached_property
    def index(self) -> dict[int, int]:
        """Position of each party; its Shamir point is one more."""
        return {party: i for i, party in enumerate(self.parties)}

    def peers(self, party: int) -> tuple[int, ...]:
        """Return the neighbours of a party, increasing."""
        near = neighbours(self.n, self.degree, self.graph_seed, self.index[party])
        return tuple(self.parties[i] for i in near)

    def holders(self, party: int) -> tuple[int, ...]:
        """Return who holds shares of a party's secrets: itself and its neighbours, increasing."""
        return tuple(sorted((party, *self.peers(party))))

    def identity(self, party: int) -> bytes:
        """Return the public identity of a party."""
        return self.identities[self.index[party]]

    def points(self, parties: tuple[int, ...]) -> tuple[int, ...]:
        """Return the Shamir points of parties."""
        return tuple(self.index[party] + 1 for party in parties)
