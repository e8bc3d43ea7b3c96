"""Parameters that all sides agree on before a round; their digest is bound into every message."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import policy
from fedmmf.secagg.errors import SERVER as SERVER
from fedmmf.secagg.errors import PolicyError
from fedmmf.secagg.graph import neighbour_rows, neighbours
from fedmmf.secagg.keys import KEY_BYTES, digest
from fedmmf.secagg.ring import RING32, Ring

LARGEST_NAME = 64  # bytes of a round's name, and of the graph's seed
_LARGEST_VECTOR = 1 << 31  # bytes; the sizes of parts travel in 32 bits


@dataclass(frozen=True)
class Setup:
    """The public parameters of one round, validated.

    Args:
        round_id: 1 to 64 bytes, never used twice among the same parties.
        parties: their numbers, strictly increasing, below 2^32 - 1. If only their
            number is known, call `policy.check` before making the numbers.
        threshold: how many holders recover a secret.
        length: entries of a vector, which has at most 2^31 bytes.
        ring: where vectors are summed.
        neighbours: k of the neighbour graph; None: everybody.
        graph_seed: fixes the graph, at most 64 bytes; public, and not chosen by whoever might gain
            from it.
        active: whether signatures and the consistency check are on.
        identities: Ed25519 public keys in the order of `parties`; needed when active.
        minimum: the fewest parties that may be in a cohort or in a sum.
        batch: parties are summed in batches of so many by their order, the last with the rest;
            all of a batch or none (So et al. 2021).
        binding: digest of whatever else decides what is summed; keys and masks depend on it, so
            that parties with different terms have none in common.
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
    batch: int = 1
    binding: bytes = b""

    def __post_init__(self) -> None:
        n, k, t = self.n, self.degree, self.threshold
        policy.check(n, k, t, active=self.active, minimum=self.minimum)
        most = _LARGEST_VECTOR // self.ring.width
        conditions = [
            (1 <= len(self.round_id) <= LARGEST_NAME, "round_id must have 1 to 64 bytes"),
            (len(self.graph_seed) <= LARGEST_NAME, "graph_seed must have at most 64 bytes"),
            (_are_numbers(self.parties), "parties must increase strictly within [0, 2^32 - 1)"),
            (1 <= self.length <= most, f"length must be in [1, {most}]; got {self.length}"),
            (1 <= self.batch <= n, f"batch must be in [1, {n}]; got {self.batch}"),
            (
                not self.active or _are_keys(self.identities, n),
                "the active variant needs one distinct Ed25519 public key per party in identities",
            ),
        ]
        for holds, rule in conditions:
            if not holds:
                raise PolicyError(rule)

    @property
    def n(self) -> int:
        """Number of parties that are invited."""
        return len(self.parties)

    @property
    def degree(self) -> int:
        """Number of neighbours of each party."""
        return self.n - 1 if self.neighbours is None else self.neighbours

    @property
    def least(self) -> int:
        """The fewest parties a stage may end with."""
        return max(self.threshold, self.minimum)

    @cached_property
    def context(self) -> bytes:
        """SHA-256 digest of all parameters, to bind keys and messages to them."""
        sizes = (self.n, self.degree, self.threshold, self.length, self.minimum, self.batch)
        numbers = struct.pack("<QQQQQQ?", *sizes, self.active)
        names = np.array(self.parties, "<u4").tobytes() + b"".join(self.identities)
        ring = self.ring.name.encode()
        parts = (numbers, self.round_id, self.graph_seed, ring, names, self.binding)
        return digest(b"fedmmf secagg 3", *parts)

    @cached_property
    def index(self) -> Mapping[int, int]:
        """Position of each party; its Shamir point is one more."""
        return _positions(self.parties)

    def peers(self, party: int) -> tuple[int, ...]:
        """Return the neighbours of a party, increasing."""
        near = neighbours(self.n, self.degree, self.graph_seed, self.index[party])
        return tuple(self.parties[i] for i in near)

    def holders(self, party: int) -> tuple[int, ...]:
        """Return who holds shares of a party's secrets: itself and its neighbours, increasing."""
        return tuple(sorted((party, *self.peers(party))))

    def around(self, party: int) -> frozenset[int]:
        """Return who holds shares of the secrets that a party holds shares of; itself too."""
        if self.degree == self.n - 1:
            return frozenset(self.parties)
        far = np.unique(self.holder_rows(self.holders(party)))
        return frozenset(self.parties[i] for i in far.tolist())

    def holder_rows(self, parties: Sequence[int]) -> Array:
        """Return the positions of the holders of several parties. (n_parties, degree + 1)."""
        own = np.array([self.index[party] for party in parties], np.int64)  # (n_parties,)
        near = neighbour_rows(self.n, self.degree, self.graph_seed, own)
        return np.column_stack((own, near))

    def mates(self, party: int) -> tuple[int, ...]:
        """Return the batch of a party, itself too."""
        number = min(self.index[party], self.n // self.batch * self.batch - 1) // self.batch
        is_last = number + 1 == self.n // self.batch
        start = number * self.batch
        return self.parties[start : self.n if is_last else start + self.batch]

    def whole(self, members: frozenset[int]) -> frozenset[int]:
        """Return the members all of whose batch are members."""
        if self.batch == 1:
            return members
        return frozenset(party for party in members if members.issuperset(self.mates(party)))

    def identity(self, party: int) -> bytes:
        """Return the public identity of a party."""
        return self.identities[self.index[party]]

    def points(self, parties: tuple[int, ...]) -> tuple[int, ...]:
        """Return the Shamir points of parties."""
        return tuple(self.index[party] + 1 for party in parties)


@lru_cache(maxsize=2)
def _positions(parties: tuple[int, ...]) -> Mapping[int, int]:
    """Return where each party stands; made once for all rounds of a session."""
    return {party: i for i, party in enumerate(parties)}


def _are_numbers(parties: tuple[int, ...]) -> bool:
    """Whether these are strictly increasing names of parties."""
    increasing = all(a < b for a, b in pairwise(parties))
    return increasing and parties[0] >= 0 and parties[-1] < SERVER


def _are_keys(identities: tuple[bytes, ...], n: int) -> bool:
    """Whether there are n different keys; the number is checked first, being the cheapest."""
    right = len(identities) == n and all(len(key) == KEY_BYTES for key in identities)
    return right and len(set(identities)) == n
