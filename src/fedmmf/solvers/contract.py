"""What a solver is: a half that lives in each party, a half on the server, and what it declares.

Between the halves go three arrays. Down: `parameters`, a few public numbers, and `item_rows`
(n_items, width), whose first k columns are the item factors. Up: `rows`, one per rated item, which
the server only needs as a sum over raters, and `totals`, which it only needs as a sum over users.
Whatever can add vectors can carry them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import WireError


@dataclass(frozen=True, eq=False)
class ItemSums:
    """What a round's aggregation gives the server."""

    rows: Array  # (n_items, width) summed over each item's raters
    n_raters: Array  # (n_items,)
    totals: Array  # (n_totals,) summed over users


@dataclass(frozen=True, eq=False)
class Public:
    """What the server publishes in a round."""

    rank: int  # k, the length of a vector of factors, biases counted
    parameters: Array  # (n_parameters,) float64
    item_rows: Array  # (n_items, width) float32

    @property
    def item_factors(self) -> Array:
        """q_i, or their means. (n_items, k)."""
        return self.item_rows[:, : self.rank]

    def take(self, items: Array) -> Self:
        """The same for some items only."""
        return type(self)(self.rank, self.parameters, self.item_rows[items])


@dataclass(frozen=True)
class Bounds:
    """How large one user's numbers are at most; public. What exceeds them is clipped."""

    row: float
    total: float


@dataclass(frozen=True, eq=False)
class Ground:
    """What the server's half starts from: public knowledge, and where random starts come from."""

    n_items: int
    span: float  # of the rating scale
    level: float  # the masked rating that an unknown user gives an unknown item
    ratings_per_user: float
    regressors: Array  # (n_items, d) public columns that item factors may depend on; d may be 0
    stream: np.random.Generator


class PartyHalf(Protocol):
    """What lives in a party, for one user; holds p_u."""

    user_factors: Array  # (k,)

    def update(self, masked_ratings: Array, public: Public, t: int) -> tuple[Array, Array]:
        """Take part in round t with the rows of the rated items; return (rows, totals)."""

    def settle(self, masked_ratings: Array, public: Public) -> None:
        """Find p_u for finished item factors, without a round."""

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round; copies."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


class ServerHalf(Protocol):
    """What lives on the server; holds the items."""

    def public(self) -> Public:
        """What to publish for the coming round."""

    def advance(self, sums: ItemSums, t: int) -> None:
        """Finish round t."""

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


Solve = Callable[[Array, Array, Array, float], Array]
"""Many small linear systems at once, where a server's half has them; engines have fast ones."""


class Solver(Protocol):
    """Both halves, and what everybody has to know about them.

    Attributes:
        name: what the settings call it.
        ring: name of the ring that its sums fit into.
        default_rounds: rounds where nobody asks for a number.
        default_held_out: share of a party's ratings kept for early stopping, unless asked for.
        may_be_clear: whether a lone update may ever leave in the clear.
        may_be_noisy: whether it learns from clipped updates with noise, without counts.
    """

    name: str
    ring: str
    default_rounds: int
    default_held_out: float
    may_be_clear: bool
    may_be_noisy: bool

    def rank(self, settings: Any) -> int:
        """Length k of a vector of factors, biases counted."""

    def width(self, rank: int) -> int:
        """Columns of `item_rows` and of `rows`."""

    def n_totals(self, rank: int) -> int:
        """Totals of an update."""

    def bounds(self, span: float) -> Bounds:
        """Bounds that training does not reach on a scale of that span."""

    def check(self, public: Public) -> None:
        """Raise `WireError` unless a party can compute with what was published."""

    def party(self, rank: int) -> PartyHalf:
        """A party's half before its first round."""

    def server(self, settings: Any, ground: Ground, solve: Solve | None = None) -> ServerHalf:
        """The server's half before the first round."""


def require_published(holds: bool, rule: str) -> None:
    """Refuse a publication that breaks a rule of its solver."""
    if not holds:
        raise WireError(f"the server's numbers are out of range: {rule}")


def added(parts: Sequence[ItemSums]) -> ItemSums:
    """Sums over several groups of users together."""
    return ItemSums(
        np.sum([part.rows for part in parts], axis=0),
        np.sum([part.n_raters for part in parts], axis=0),
        np.sum([part.totals for part in parts], axis=0),
    )


def unrated(sums: ItemSums) -> Array:
    """Items that nobody has rated. (n_items,) bool."""
    return np.asarray(sums.n_raters == 0)


def part_of(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The entries under a prefix, without it."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }
