"""The contract of a solver: a half in each party, a half on the server, and their declarations.

Between the halves go four arrays. Down: `parameters`, a few public numbers, and `item_rows`
(n_items, broadcast_width), whose first k columns are the item factors. Up: `rows` (n, width), one
per rated item, which the server only needs as a sum over raters, and `totals`, which it only needs
as a sum over users. Whatever can add vectors can carry them. How many numbers there are of each is
a `UpdateShape`, which both sides compute from what they agreed on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.scales import RatingScale
from fedmmf.errors import BroadcastError

MAX_NUMBER = 2.0**100  # largest entry of rows and factors: 2^27 such rows add up in float32
MAX_TOTAL = 2.0**900  # largest total of a user, in float64


@dataclass(frozen=True)
class UpdateShape:
    """Sizes of a solver's updates and broadcasts.

    Attributes:
        rank: k, the length of a vector of factors, biases counted.
        width: columns of a row that goes up.
        broadcast_width: columns of a row of the broadcast.
        n_parameters: public numbers of a round.
        n_totals: totals of an update.
        n_profile: columns of users' profiles that are used.
        n_design: columns of what masks are linear in; 0: unrated items do not count.
        n_levels: of ordered ratings; 0: ratings are numbers.
        n_joint: columns of masks that are estimated with the factors; 0: they are fitted alone.
    """

    rank: int
    width: int
    broadcast_width: int
    n_parameters: int
    n_totals: int
    n_profile: int = 0
    n_design: int = 0
    n_levels: int = 0
    n_joint: int = 0

    @property
    def n_own(self) -> int:
        """Entries of a user's vector: p_u and, where it is estimated jointly, the mask."""
        return self.rank + self.n_joint

    @property
    def matrices(self) -> tuple[slice, ...]:
        """Ranges of totals that are shrunk together where one is above its bound.

        A covariance that is bounded entry by entry need not be one any more.
        """
        return ()

    @property
    def n_newcomer(self) -> int:
        """Totals of a user in the sum after the last round; 0: a newcomer's prior needs none."""
        return 0

    @property
    def n_noisy_totals(self) -> int:
        """Number of totals that are clipped with the rows and get noise, under a privacy budget.

        0: under a budget, totals are zeros.
        """
        return 0

    @property
    def solves_last(self) -> bool:
        """Whether users compute p_u anew from the final item factors."""
        return False

    @property
    def divisor(self) -> int | None:
        """Column of the broadcast's rows that columns of joint masks are divided by, if any."""
        return None

    @property
    def n_columns(self) -> int:
        """Number of columns of the design that are used."""
        return max(self.n_design, self.n_joint)


@dataclass(frozen=True, eq=False)
class UserData:
    """One user's rated items and masked ratings, as the solver sees them; they never leave.

    Attributes:
        items: rows of the broadcast that the user has rated. (n,)
        masked_ratings: of these. (n,)
        profile: what is known of the user; no columns where nothing is. (d,)
        line: the mask as a linear function of the items' public design, where unrated items count;
            else empty. (m,)
        levels: positions of the ratings on the scale, where they are ordered; else empty. (n,)
        mask: f_u of the rated items, likewise. (n,)
    """

    items: Array
    masked_ratings: Array
    profile: Array
    line: Array
    levels: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    mask: Array = field(default_factory=lambda: np.zeros(0, np.float32))

    @classmethod
    def of_nobody(cls, update_shape: "UpdateShape") -> Self:
        """Return the data of somebody who has rated nothing, the default user."""
        nothing = (np.zeros(0, np.int32), np.zeros(0, np.float32))
        return cls(*nothing, np.zeros(update_shape.n_profile), np.zeros(update_shape.n_design))


@dataclass(frozen=True, eq=False)
class ItemSums:
    """The summed statistics of a round: rows, raters and totals."""

    rows: Array  # (n_items, width) summed over each item's raters
    n_raters: Array  # (n_items,)
    totals: Array  # (n_totals,) summed over users
    noise_std: float = 0.0  # standard deviation of the noise in each entry of rows and totals


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The server's broadcast of a round."""

    rank: int  # k, the length of a vector of factors, biases counted
    parameters: Array  # (n_parameters,) float64
    item_rows: Array  # (n_items, width) float32
    newcomers: Array | None = None  # (n_newcomer,) sums that a newcomer's prior is made of, if any

    @property
    def item_factors(self) -> Array:
        """Item factors q_i, or their means. (n_items, k)."""
        return self.item_rows[:, : self.rank]

    def take(self, items: Array) -> "Broadcast":
        """Return the broadcast for some items only."""
        return replace(self, item_rows=self.item_rows[items])


UPDATES = "updates"  # the only release of a solver that names none


@dataclass(frozen=True)
class RequestedRelease:
    """The release that a broadcast asks for, under a privacy budget."""

    name: str = UPDATES
    clip: float | None = None  # that the broadcast names; None: it names none


@dataclass(frozen=True)
class Bounds:
    """Public bounds of one user's numbers; values beyond them are clipped."""

    row: float
    total: float


@dataclass(frozen=True, eq=False)
class SolverContext:
    """Inputs of the server's half: public knowledge, and the random generator of its start."""

    n_items: int
    span: float  # of the rating scale
    lowest: float  # lowest rating of the scale
    level: float  # the masked rating that an unknown user gives an unknown item
    ratings_per_user: float
    regressors: Array  # (n_items, d) public columns that item factors may depend on; d may be 0
    # what masks are linear in, where unrated items count or masks are joint; else m = 0
    design: Array  # (n_items, m)
    stream: np.random.Generator


class PartyHalf(Protocol):
    """The party's half for one user; it holds p_u."""

    user_factors: Array  # (n_own,)

    def update(self, own: UserData, reading: Any, t: int) -> tuple[Array, Array]:
        """Take part in round t; return (rows, totals).

        Raises:
            OverflowError: the user's numbers do not pass `require_small`, or its linear system has
                no solution; p_u stays.
            WireError: the round is refused for what is public.
        """

    def solve_user(self, own: UserData, reading: Any) -> None:
        """Compute p_u for fixed item factors, without a round.

        Raises:
            OverflowError: as `update`; p_u stays.
        """

    def effects_of_rating(self, own: UserData, reading: Any, items: Array) -> Array:
        """Changes of a newcomer's scores, each given that the newcomer rates that item. (n,).

        Asked for where the broadcast has what the prior of newcomers is made from.

        Raises:
            OverflowError: as `update`.
        """

    def newcomer_totals(self, own: UserData, reading: Any) -> Array:
        """Totals for the prior of newcomers, given the final broadcast; p_u stays. (n_newcomer,).

        Asked for where `UpdateShape.n_newcomer` is above 0.

        Raises:
            OverflowError: as `update`.
        """

    def state(self) -> dict[str, Array]:
        """Return copies of everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a copy that `state` returned."""


class ServerHalf(Protocol):
    """The server's half; it holds the items."""

    def broadcast(self) -> Broadcast:
        """Return the broadcast of the coming round."""

    def advance(self, sums: ItemSums, t: int) -> None:
        """Finish round t: update the items from the parties' summed statistics."""

    def check(self, broadcast: Broadcast) -> None:
        """Raise `WireError` unless parties can compute with the next broadcast."""

    def unknown(self, regressors: Array) -> Array:
        """Return final rows of items that are not summed. (n, broadcast_width).

        Args:
            regressors: of these items. (n, d)
        """

    def state(self) -> dict[str, Array]:
        """Return everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from what `state` returned."""


class Solver(Protocol):
    """Both halves of a solver, and its public declarations.

    Its settings and their rules are a group of their own, registered in `fedmmf.settings`.

    Attributes:
        name: what the settings call it.
        ring: name of the ring that its sums fit into.
        default_rounds: rounds where nobody asks for a number.
        default_held_out: share of a party's ratings kept for early stopping, unless asked for.
        may_be_clear: whether a lone update may ever leave in the clear.
        may_be_noisy: whether it learns from clipped updates with noise, without counts.
        ranks: whether it can count unrated items.
        joins_masks: whether it can estimate linear masks together with the factors.
        spans: least and largest span of a rating scale that its sums have digits for.
        sums_as: what attacks its sums are given to, a `Target` of `attacks`.

    A solver for privacy budgets may also declare `knows_noise` (its server uses the variance of the
    noise: it is taken where nobody names one), `noisy_defaults(chosen)` (values
    of settings that nobody named, under a budget), `releases(rounds, objective)` (names of what is
    released, in order, each with its number of rounds) and
    `requested_release(update_shape, broadcast)` (the `RequestedRelease` that a broadcast stands
    for; parties refuse what is not due). Its server's half then has `lose()`: a round gave no sum,
    and what it would have released is not asked for again.
    """

    name: str
    ring: str
    default_rounds: int
    default_held_out: float
    may_be_clear: bool
    may_be_noisy: bool
    ranks: bool
    joins_masks: bool
    spans: tuple[float, float]
    sums_as: str

    def rank(self, settings: Any) -> int:
        """Length k of a vector of factors, biases counted."""

    def variant(self, settings: Any, n_profile: int, n_columns: int, n_levels: int) -> str:
        """Return what else both sides have to agree on, as one line of text.

        Args:
            settings: of the run.
            n_profile: columns of the users' profiles.
            n_columns: of what masks are linear in.
            n_levels: of the scale.
        """

    def update_shape(self, rank: int, variant: str) -> UpdateShape:
        """Return the shape of updates; raise `WireError` if there is no such variant."""

    def bounds(self, span: float) -> Bounds:
        """Return bounds that training does not reach on a scale of that span."""

    def check(self, update_shape: UpdateShape, broadcast: Broadcast) -> None:
        """Raise `WireError` unless a party can compute with the broadcast."""

    def reading(self, update_shape: UpdateShape, broadcast: Broadcast, design: Array) -> Any:
        """Precompute from a broadcast what all users of a party need.

        Args:
            update_shape: of the run.
            broadcast: the broadcast.
            design: of the same items. (n_items, m)
        """

    def party(self, update_shape: UpdateShape) -> PartyHalf:
        """Make a party's half before its first round."""

    def server(
        self, settings: Any, update_shape: UpdateShape, context: SolverContext
    ) -> ServerHalf:
        """Make the server's half before the first round."""

    def default_user(self, update_shape: UpdateShape, broadcast: Broadcast) -> Array:
        """Factors of the default user, of whom nothing is known. (n_own,)."""

    def divergence_hint(self, settings: Any) -> str | None:
        """Return settings that may have made training diverge, and the remedy; None: no setting."""

    def ratings_of(
        self, update_shape: UpdateShape, broadcast: Broadcast, scores: Array, scale: RatingScale
    ) -> Array:
        """Turn scores q_i . p_u + f_u(i) into ratings; ranking scores stay as they are. (n,)."""


def require_valid_broadcast(holds: bool, rule: str) -> None:
    """Refuse a broadcast that breaks a rule of its solver."""
    if not holds:
        raise BroadcastError(f"the server's numbers are out of range: {rule}")


def require_small(arrays: Sequence[Array], most: float) -> None:
    """Raise `OverflowError` unless all numbers of a user are finite and at most `most`.

    What one user adds is decided by that user's numbers alone, so an overflow is the user's own:
    it must change nothing of what its party says about others.
    """
    if not all(bool((np.abs(array) <= most).all()) for array in arrays):  # NaN is not
        raise OverflowError("a user's numbers are too large to be added")


def added(parts: Sequence[ItemSums]) -> ItemSums:
    """Add the sums of several groups of users."""
    return ItemSums(
        np.sum([part.rows for part in parts], axis=0),
        np.sum([part.n_raters for part in parts], axis=0),
        np.sum([part.totals for part in parts], axis=0),
        float(np.linalg.norm([part.noise_std for part in parts])),
    )


def unrated(sums: ItemSums) -> Array:
    """Whether nobody has rated an item. (n_items,) bool."""
    return np.asarray(sums.n_raters == 0)


def part_of(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the entries whose names begin with a prefix, without the prefix."""
    return {
        name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)
    }


def whole_factors(update_shape: UpdateShape, broadcast: Broadcast, design: Array) -> Array:
    """Item factors q_i, beside known columns where masks belong to p_u. (n_items, n_own).

    Args:
        update_shape: of the run.
        broadcast: the broadcast.
        design: of the same items. (n_items, m)
    """
    if not update_shape.n_joint:
        return broadcast.item_factors
    known = design[:, : update_shape.n_joint].astype(np.float32)
    if update_shape.divisor is not None:
        known /= broadcast.item_rows[:, update_shape.divisor, np.newaxis]
    return np.hstack((broadcast.item_factors, known))
