"""The messages of homomorphic sums."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from fedmmf.arrays import Array
from fedmmf.wire import Catalogue, Kind, Message
from fedmmf.wire.frames import BLOB, ITEMS, TEXT, WHOLE, fixed, require
from fedmmf.wire.messages import require_items

NONCE_BYTES = 12


@dataclass(frozen=True)
class HomomorphicKey(Message):
    """Keeper to party, over a channel that the server cannot read: how to encrypt updates.

    No party answers it; it is given to `Party.hold`, so that a server cannot put its own key in the
    place of the keeper's.
    """

    kind: ClassVar[int] = Kind.HOMOMORPHIC_KEY
    scheme: Annotated[str, TEXT]
    n_users: Annotated[int, WHOLE]  # in one sum at most
    channel: Annotated[bytes, fixed(32)] = field(repr=False)  # known to the parties alone
    public: Annotated[bytes, BLOB] = field(repr=False)  # the public key, as the scheme writes it

    def check(self, known: Any) -> None:
        """There is somebody to sum."""
        require(0 < self.n_users < 1 << 31, f"1 to 2^31 users are summed; got {self.n_users}")


@dataclass(frozen=True, eq=False)
class HomomorphicTask(Message):
    """Keeper to party, in the box of a `Sealed`: what to sum, and which items to leave out."""

    kind: ClassVar[int] = Kind.HOMOMORPHIC_TASK
    left_out: Annotated[Array, ITEMS]  # items that too few users rated
    work: Annotated[bytes, BLOB]  # the frame of a `Round` or `Survey`

    def check(self, known: Catalogue | None) -> None:
        """Items of the catalogue."""
        if known is not None:
            require_items(self.left_out, known.n_items)


@dataclass(frozen=True)
class Sealed(Message):
    """Published by the keeper: a `HomomorphicTask` under AES-256-GCM, with its round bound in."""

    kind: ClassVar[int] = Kind.SEALED
    round: Annotated[int, WHOLE]  # 0: a survey
    nonce: Annotated[bytes, fixed(NONCE_BYTES)]  # never used twice
    box: Annotated[bytes, BLOB]


@dataclass(frozen=True)
class Ciphertexts(Message):
    """Party to server: its update in fixed point, encrypted.

    The server adds these, and the keeper alone can decrypt the sum.
    """

    kind: ClassVar[int] = Kind.CIPHERTEXTS
    round: Annotated[int, WHOLE]
    data: Annotated[bytes, BLOB]
