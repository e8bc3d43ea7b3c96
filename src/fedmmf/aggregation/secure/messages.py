"""The messages of secure aggregation; `secagg` defines the content of a trip."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fedmmf.arrays import Array
from fedmmf.secagg import LARGEST_COHORT
from fedmmf.wire import Kind, Message
from fedmmf.wire.frames import (
    BLOB,
    BYTE,
    ITEMS,
    KEYS,
    NAME,
    SWITCH,
    WHOLE,
    fixed,
    require,
)

SESSION_BYTES = 16


@dataclass(frozen=True, eq=False)
class SecureSetup(Message):
    """Server to party: the terms of a series of secure rounds.

    Everything here is public. A party checks it against the conditions of `secagg.policy` and its
    own policy before it takes part. Party numbers are 0 to n_parties - 1. Graph and threshold
    follow from what is here (`agreed`).
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
