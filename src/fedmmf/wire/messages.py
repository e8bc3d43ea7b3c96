"""The messages that every federation uses; those of one aggregation scheme are in `aggregation`.

What leaves a party is `Joined`, `Adopted`, `Refused`, `Wanted`, `Finished`, and what its
aggregation scheme makes of an `Update`. In the clear an update gives the masked ratings away:
the gradients of `sgd` after two rounds (docs/errata.md, 23), those of `vb` as well.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np

from fedmmf.arrays import Array
from fedmmf.masks.population import (
    LARGEST_WEIGHT,
    MAX_LINE_COLUMNS,
    MAX_SHRINKAGE,
    MIN_SHRINKAGE,
    Population,
)
from fedmmf.solvers.contract import Broadcast, UpdateShape
from fedmmf.wire.codec import (
    BLOB,
    COUNTS,
    ITEMS,
    NAME,
    REAL,
    REALS,
    ROWS,
    SWITCH,
    TEXT,
    WHOLE,
    fixed,
    require,
)
from fedmmf.wire.frames import Message
from fedmmf.wire.kinds import Kind

RUN_BYTES = 16
NO_PARTY = 0xFFFFFFFF  # what a refusal that blames nobody has for the number of a party
MAX_WORDS = 1000  # characters of a reason that are worth keeping
MAX_FACTORS = 2048


@dataclass(frozen=True)
class Invitation(Message):
    """Server to party, before anything else: what is to be trained. `Joined` or `Refused`."""

    kind: ClassVar[int] = Kind.INVITATION
    run: Annotated[bytes, fixed(RUN_BYTES)]  # never used twice
    catalogue: Annotated[bytes, NAME]  # digest of the items and the scale
    scale_min: Annotated[float, REAL]
    scale_max: Annotated[float, REAL]
    scale_step: Annotated[float, REAL]
    solver: Annotated[str, TEXT]
    rank: Annotated[int, WHOLE]  # k
    variant: Annotated[str, TEXT]  # of the solver: what is sent besides factors
    rounds: Annotated[int, WHOLE]  # at most
    sums: Annotated[str, TEXT]  # name of the aggregation scheme
    row_bound: Annotated[float, REAL]  # of one user's numbers, in fixed point
    total_bound: Annotated[float, REAL]
    columns: Annotated[int, WHOLE]  # columns of the population statistics: 1, and item features
    minimum: Annotated[int, WHOLE]  # the fewest parties that may be in a sum

    def check(self, known: Any) -> None:
        """Refuse sizes that no training run has."""
        require(0 < self.rank <= MAX_FACTORS, f"k is in [1, {MAX_FACTORS}]; got {self.rank}")
        require(self.rounds > 0, "there must be a round")
        is_usual = 0 < self.columns <= MAX_LINE_COLUMNS
        require(is_usual, f"columns are in [1, {MAX_LINE_COLUMNS}]; got {self.columns}")
        bounds = (self.row_bound, self.total_bound)
        require(min(bounds) > 0, f"bounds are positive; got {bounds}")


@dataclass(frozen=True)
class Joined(Message):
    """Party to server: it takes part."""

    kind: ClassVar[int] = Kind.JOINED
    n_users: Annotated[int, WHOLE]  # behind this party
    identity: Annotated[bytes, BLOB]  # 32-byte Ed25519 public key; empty: it does not sign

    def check(self, known: Any) -> None:
        """Refuse a party without users, or with a malformed identity."""
        require(0 < self.n_users < 1 << 31, f"1 to 2^31 users may join; got {self.n_users}")
        require(len(self.identity) in (0, 32), "an identity has 32 bytes")


@dataclass(frozen=True)
class Refused(Message):
    """Party to server: it does not do what was asked, and why; its state is as before.

    One refusal blames one party at most. The reason is for people and is never searched for names.
    """

    kind: ClassVar[int] = Kind.REFUSED
    reason: Annotated[str, TEXT]
    blamed: Annotated[int, WHOLE] = NO_PARTY  # by its number in the sums at hand; 2^32 - 1: nobody

    def check(self, known: Any) -> None:
        """Refuse a reason that is too long for a log."""
        require(len(self.reason) <= MAX_WORDS, f"a reason has {MAX_WORDS} characters at most")


@dataclass(frozen=True)
class Wanted(Message):
    """Party to server: it does not hold the broadcast of this name; send it along."""

    kind: ClassVar[int] = Kind.WANTED
    name: Annotated[bytes, NAME]


@dataclass(frozen=True, eq=False)
class Survey(Message):
    """Broadcast before the first round: count raters, or add up ratings.

    Three things are asked for, in this order. *Counts*: the rows are ones, of the whole catalogue.
    *Moments*: no rows, and the totals of `masks.population`, what users have in common, over some
    items; these are the items of the layout that follows. *Ratings*: the rows are the ratings of
    the layout's items.
    """

    kind: ClassVar[int] = Kind.SURVEY
    with_ratings: Annotated[bool, SWITCH]
    items: Annotated[Array, ITEMS] = field(default_factory=lambda: np.zeros(0, np.int32))

    @property
    def asks(self) -> str:
        """Kind of sum that is asked for: counts, moments or ratings."""
        if self.with_ratings:
            return "ratings"
        return "moments" if len(self.items) else "counts"

    def check(self, known: "Expected | None") -> None:
        """Refuse items outside the catalogue, and any items in a survey of ratings."""
        names_too_many = self.with_ratings and len(self.items) > 0
        require(not names_too_many, "a survey of ratings is of the layout's items; it names none")
        if known is not None:
            require_items(self.items, known.n_catalogue)


@dataclass(frozen=True, eq=False)
class Layout(Message):
    """Broadcast after the survey: which items are summed, and the population statistics.

    Rows of rounds and of updates are those of these items, in this order; every item that is said
    to be the n-th is the n-th of these.
    """

    kind: ClassVar[int] = Kind.LAYOUT
    items: Annotated[Array, ITEMS]  # (n,)
    line: Annotated[Array, REALS]  # the default user's rating: weights of 1 and features (m,)
    shrinkage: Annotated[float, REAL]  # shrinkage of a user's level towards it, in ratings

    @property
    def population(self) -> Population:
        """Population statistics: the common line, and the shrinkage towards it."""
        return Population(self.line, self.shrinkage)

    def check(self, known: "Expected | None") -> None:
        """Refuse items outside the catalogue; the length of the line is checked elsewhere."""
        require(len(self.items) > 0, "at least one item is summed")
        require(len(self.line) > 0, "what users have in common has a level at least")
        is_tame = bool((np.abs(self.line) <= LARGEST_WEIGHT).all())
        require(is_tame, f"weights of a line are within {LARGEST_WEIGHT:g}")
        is_usual = MIN_SHRINKAGE <= self.shrinkage <= MAX_SHRINKAGE
        require(
            is_usual,
            f"a shrinkage is in [{MIN_SHRINKAGE:g}, {MAX_SHRINKAGE:g}]; got {self.shrinkage:g}",
        )
        if known is not None:
            require_items(self.items, known.n_catalogue)


@dataclass(frozen=True)
class Adopt(Message):
    """Server to party: train with the layout whose broadcast has this name."""

    kind: ClassVar[int] = Kind.ADOPT
    about: Annotated[bytes, NAME]


@dataclass(frozen=True)
class Adopted(Message):
    """Party to server: it does, and how it chooses to share its updates (errata 37)."""

    kind: ClassVar[int] = Kind.ADOPTED
    in_clear: Annotated[bool, SWITCH]  # else only in sums


@dataclass(frozen=True, eq=False)
class Round(Message):
    """Broadcast of a round: the item factors of the layout, and at the end of all items.

    All of it, since downloading only the rated items would reveal which they are (errata 25). If
    the last one is summed, it asks for what the prior of newcomers is made from.
    """

    kind: ClassVar[int] = Kind.ROUND
    round: Annotated[int, WHOLE]  # from 1
    best_round: Annotated[int, WHOLE]  # whose held-out error was lowest so far; 0: none yet
    is_last: Annotated[bool, SWITCH]  # no p_u moves any more: these are the final factors
    rank: Annotated[int, WHOLE]  # k
    parameters: Annotated[Array, REALS]
    item_rows: Annotated[Array, ROWS]

    @classmethod
    def of(cls, broadcast: Broadcast, round_: int, best_round: int, is_last: bool) -> "Round":
        """Make the message from a solver's broadcast."""
        arrays = (broadcast.parameters, broadcast.item_rows)
        return cls(round_, best_round, is_last, broadcast.rank, *arrays)

    @property
    def broadcast(self) -> Broadcast:
        """Return the broadcast in the solver's form."""
        return Broadcast(self.rank, self.parameters, self.item_rows)

    def check(self, known: "Expected | None") -> None:
        """Refuse sizes other than those of the agreed catalogue and solver."""
        require(0 < self.rank <= self.item_rows.shape[1], "k must fit into the rows")
        require(0 <= self.best_round < self.round, "rounds count from 1, and the best one is over")
        if known is not None:
            update_shape, n_items = (
                known.update_shape,
                known.n_catalogue if self.is_last else known.n_items,
            )
            sizes = (self.rank, *self.item_rows.shape, len(self.parameters))
            wanted = (
                update_shape.rank,
                n_items,
                update_shape.broadcast_width,
                update_shape.n_parameters,
            )
            require(sizes == wanted, f"(k, items, width, numbers) must be {wanted}; got {sizes}")


@dataclass(frozen=True)
class Ask(Message):
    """Server to party: send your part of the sum that the broadcast of this name asks for."""

    kind: ClassVar[int] = Kind.ASK
    about: Annotated[bytes, NAME]


@dataclass(frozen=True, eq=False)
class Update(Message):
    """Party to server: a row per rated item and some totals, of which it needs the sums alone.

    The totals begin with the number of held-out ratings and the sum of their squared errors, for
    early stopping.
    """

    kind: ClassVar[int] = Kind.UPDATE
    round: Annotated[int, WHOLE]  # 0: of a survey
    items: Annotated[Array, ITEMS]  # (n,)
    counts: Annotated[Array, COUNTS]  # (n,) users of this party who rated each; empty: all are 1
    rows: Annotated[Array, ROWS]  # (n, width): eta_ui, or the moments of the variational solver
    totals: Annotated[Array, REALS]  # (n_totals,)

    @property
    def n_raters(self) -> Array:
        """Number of users of this party who rated each item. (n,)."""
        return self.counts if len(self.counts) else np.ones(len(self.items), np.int64)

    def check(self, known: "Expected | None") -> None:
        """Refuse items outside the catalogue or out of order, and arrays that do not fit."""
        n = len(self.items)
        require(len(self.rows) == n and len(self.counts) in (0, n), "a row and a count per item")
        is_said_once = len(self.counts) == 0 or bool((self.counts != 1).any())
        require(is_said_once, "where every item has one rater, no counts are sent")
        require(bool((self.counts > 0).all()), "each item has a rater")
        if known is None:
            return
        shape = (self.rows.shape[1], len(self.totals))
        wanted = (known.update_shape.width, known.n_totals)
        require(shape == wanted, f"(width, totals) must be {wanted}; got {shape}")
        require_items(self.items, known.n_items)


@dataclass(frozen=True)
class Finish(Message):
    """Server to party: training is over; the broadcast of this name has the final factors."""

    kind: ClassVar[int] = Kind.FINISH
    about: Annotated[bytes, NAME]


@dataclass(frozen=True)
class Finished(Message):
    """Party to server: it has the final factors."""

    kind: ClassVar[int] = Kind.FINISHED


@dataclass(frozen=True, eq=False)
class Newcomers(Message):
    """Server to site, in the finished model: sums that the prior of newcomers is made from."""

    kind: ClassVar[int] = Kind.NEWCOMERS
    totals: Annotated[Array, REALS]  # (n_newcomer,)

    def check(self, known: "Expected | None") -> None:
        """Refuse another size than that of the agreed solver."""
        if known is not None:
            size, wanted = len(self.totals), known.update_shape.n_newcomer
            require(size == wanted, f"newcomers' totals must be {wanted}; got {size}")


BROADCASTS: tuple[type[Message], ...] = (Survey, Layout, Round)


@dataclass(frozen=True)
class Expected:
    """Sizes that both sides know from what they agreed on."""

    n_catalogue: int  # all items
    n_items: int  # those that are summed
    update_shape: UpdateShape  # of the solver, or of a survey
    n_totals: int  # of an update, those of held-out ratings among them


def require_items(items: Array, n_items: int) -> None:
    """Item codes, which increase as they were read, are in the catalogue."""
    inside = len(items) == 0 or bool(items[-1] < n_items)
    require(inside, f"items must increase within [0, {n_items})")
