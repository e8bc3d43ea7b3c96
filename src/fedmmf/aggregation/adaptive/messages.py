"""Messages that only adaptive aggregation has: a party's masked ratings, sent once."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fedmmf.arrays import Array
from fedmmf.wire import Kind, Message
from fedmmf.wire.codec import ITEMS, SINGLES, require
from fedmmf.wire.messages import Expected, require_items


@dataclass(frozen=True)
class Collect(Message):
    """Server to party: send your masked ratings once, instead of updates."""

    kind: ClassVar[int] = Kind.COLLECT


@dataclass(frozen=True, eq=False)
class Collected(Message):
    """Party to server: its masked ratings, which it discloses on purpose."""

    kind: ClassVar[int] = Kind.COLLECTED
    items: Annotated[Array, ITEMS]  # (n,)
    masked_ratings: Annotated[Array, SINGLES]  # (n,)

    def check(self, known: Expected | None) -> None:
        """Raise `WireError` unless there is one masked rating per item of the layout."""
        require(len(self.items) == len(self.masked_ratings), "a masked rating per item")
        if known is not None:
            require_items(self.items, known.n_items)
