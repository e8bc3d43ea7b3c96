"""The messages of secure aggregation, and the set-up that both sides compute from them.

`secagg` defines the content of a trip. A server that could choose neighbours, threshold or graph
would choose them for itself. So they follow from the number of parties, and the graph's seed from
everything that was agreed on, which parties sign together with their keys. A server may still try
many set-ups until a graph suits it. Where parties sign, a graph is bad with probability
2^-(SECURITY_BITS + GRINDING_BITS) at most: 2^40 tries find one with probability 2^-40, and about
2^80 tries are needed, each of one digest for every party.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from fedmmf.aggregation.contract import CORRUPT, lost_share
from fedmmf.aggregation.vector import SumCodec
from fedmmf.arrays import Array
from fedmmf.secagg import LARGEST_COHORT, Setup, parameters
from fedmmf.wire import Invitation, Kind, Message, name_of
from fedmmf.wire.codec import BLOB, BYTE, ITEMS, KEYS, NAME, SWITCH, WHOLE, fixed, require

SESSION_BYTES = 16
SECURITY_BITS, GRINDING_BITS = 40, 40
FAILURE_BITS = 10  # where 5 % drop out at most, the graph fails one round in 2^10


@dataclass(frozen=True, eq=False)
class SecureSetup(Message):
    """Server to party: the terms of a series of secure rounds.

    Everything here is public. A party checks it against the conditions of `secagg.policy` and its
    own policy before it takes part. Party numbers are 0 to n_parties - 1. Graph and threshold
    follow from what is here (`agreed_setup`).
    """

    kind: ClassVar[int] = Kind.SECURE_SETUP
    session: Annotated[bytes, fixed(SESSION_BYTES)]  # never used twice
    for_survey: Annotated[bool, SWITCH]  # the sums are of a survey; else of rounds
    layout: Annotated[bytes, NAME]  # what rows there are; zeros: those of all items
    party: Annotated[int, WHOLE]  # whom this copy is for
    n_parties: Annotated[int, WHOLE]
    n_users: Annotated[int, WHOLE]  # behind all of them
    minimum: Annotated[int, WHOLE]  # the fewest parties that may be in a sum
    batch: Annotated[int, WHOLE]  # so many are summed together, by number, or not at all
    left_out: Annotated[Array, ITEMS]  # rows of the layout that too few of these users rated
    identities: Annotated[tuple[bytes, ...], KEYS]  # Ed25519 public keys; empty: nobody signs

    def check(self, known: Any) -> None:
        """Raise `WireError` for sizes that a party is not willing to compute with."""
        n = self.n_parties
        require(0 < n <= LARGEST_COHORT, f"1 to {LARGEST_COHORT} parties are summed; got {n}")
        require(self.party < n, f"party {self.party} is not one of {n}")
        require(n <= self.n_users < 1 << 31, f"{n} parties have {self.n_users} users")
        require(0 < self.batch <= n, f"a batch has 1 to {n} parties; got {self.batch}")
        n_keys = len(self.identities)
        require(n_keys in (0, n), f"there must be an identity for each party; got {n_keys}")
        require(len(self.left_out) == 0 or not self.for_survey, "a survey leaves nothing out")


@dataclass(frozen=True)
class SecureAgreed(Message):
    """Party to server: it agrees to a `SecureSetup`."""

    kind: ClassVar[int] = Kind.SECURE_AGREED


@dataclass(frozen=True)
class SecureTrip(Message):
    """Either direction: a message of `secagg.session`, and the name of what is summed."""

    kind: ClassVar[int] = Kind.SECURE_TRIP
    trip: Annotated[int, BYTE]  # 1: masked input, 2: check, where parties sign, 3: unmasking
    about: Annotated[bytes, NAME]  # zeros where nothing is summed
    data: Annotated[bytes, BLOB]

    def check(self, known: Any) -> None:
        """Raise `WireError` unless the trip is one of the three."""
        require(self.trip in (1, 2, 3), f"trip must be 1, 2 or 3; got {self.trip}")


@lru_cache(maxsize=16)
def graph_of(n: int, *, active: bool, batch: int = 1, corrupt: int = 0) -> tuple[int, int]:
    """Return the number of neighbours of each of n parties, and the threshold.

    Args:
        n: parties in the cohort.
        active: whether they sign.
        batch: so many are summed together or not at all.
        corrupt: parties that may be in league, where that is more than 5 %: those of corrupt sites.
    """
    bits = SECURITY_BITS + GRINDING_BITS * active
    return parameters(
        n, max(CORRUPT, corrupt / n), lost_share(batch), bits, FAILURE_BITS, active=active
    )


def agreed_setup(
    message: SecureSetup, codec: SumCodec, invitation: Invitation, corrupt: int = 0
) -> Setup:
    """Setup of the session; raises where a condition of the protocol fails.

    Keys, masks and graph depend on all that was agreed on, of the run and of these sums: bounds,
    layout, items left out, users. Parties that got different terms have no masks in common.
    """
    told = invitation.encode() + replace(message, party=0).encode()
    n, active = message.n_parties, bool(message.identities)
    degree, threshold = graph_of(n, active=active, batch=message.batch, corrupt=corrupt)
    return Setup(
        round_id=message.session,
        parties=tuple(range(n)),
        threshold=threshold,
        length=codec.length,
        ring=codec.ring,
        neighbours=None if degree == n - 1 else degree,
        graph_seed=name_of(b"graph" + told),
        active=active,
        identities=message.identities,
        minimum=message.minimum,
        batch=message.batch,
        binding=name_of(told),
    )
