"""What an engine is: `Public` in, sums over users out, numpy at the boundary.

How users are shared between threads, cards or machines stays inside.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import WireError
from fedmmf.solvers.contract import Broadcast, UpdateShape

if TYPE_CHECKING:
    from fedmmf.masks.fitting import Runner  # the server's side loads this file, and no masks


@dataclass(frozen=True, eq=False)
class Cohort:
    """Users whose rows are summed together, and how each one's rows are bounded and rounded.

    Bounds and clipping are of one user: a sum over many users is the sum of what each of them,
    alone, would have sent.
    """

    members: Array | None = None  # (n_users,) bool; None: everybody
    left_out: Array | None = None  # (n_items,) bool; items that are not summed; None: none
    bound: float = np.inf  # largest absolute entry of a row
    scale: float = 0.0  # steps per unit of fixed point, a power of two; 0: floating point
    clip: float = np.inf  # largest length of all rows of a user together
    total_bound: float = np.inf  # largest absolute total of a user
    total_scale: float = 0.0  # steps per unit of the totals; 0: floating point

    @property
    def is_fixed(self) -> bool:
        """Whether sums are in whole steps of fixed point."""
        return self.scale > 0

    def is_like(self, other: "Cohort") -> bool:
        """Whether the same users are summed in the same way."""
        numbers = self._numbers == other._numbers
        arrays = ((self.members, other.members), (self.left_out, other.left_out))
        return numbers and all(
            (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
            for a, b in arrays
        )

    @property
    def _numbers(self) -> tuple[float, ...]:
        return self.bound, self.scale, self.clip, self.total_bound, self.total_scale

    def in_steps(self, rows: Array) -> Array:
        """One user's rows, bounded and rounded. (n, width) int64."""
        return _in_steps(rows, self.bound, self.scale)

    def totals_in_steps(self, totals: Array, matrices: Sequence[slice] = ()) -> Array:
        """Users' totals, bounded and rounded where sums are. (..., n_totals) int64 or float64.

        Args:
            totals: of each user. (..., n_totals)
            matrices: parts of them that are shrunk together, as `Form.matrices` has it.
        """
        if not self.total_scale:
            return totals
        for part in matrices:
            largest = np.abs(totals[..., part]).max(axis=-1, initial=0.0, keepdims=True)
            totals[..., part] *= np.minimum(1.0, self.total_bound / np.maximum(largest, 1e-300))
        return _in_steps(totals, self.total_bound, self.total_scale)

    def clipped(self, rows: Array) -> Array:
        """One user's rows, shrunk together to length `clip` at most. (n, width)."""
        if np.isinf(self.clip):
            return rows
        rows = np.asarray(rows, np.float64)
        length = float(np.sqrt(np.sum(rows * rows)))
        return rows * min(1.0, self.clip / length) if length > 0 else rows


def limit_in_float32(bound: float, scale: float) -> np.float32:
    """The bound in steps, or the next float32 below it, for kernels that bound there."""
    limit = np.rint(bound * scale)
    found = np.float32(limit)
    return found if found <= limit else np.nextafter(found, np.float32(0))


def _in_steps(values: Array, bound: float, scale: float) -> Array:
    require_finite(values)
    bounded = np.clip(np.asarray(values, np.float64), -bound, bound)
    return np.rint(bounded * scale).astype(np.int64)


def require_finite(*arrays: Array) -> None:
    """Refuse to round what is not finite."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise WireError("the server's numbers lead to an update that is not finite")


@dataclass(frozen=True, eq=False)
class CrowdUpdate:
    """What a round gives: the sums of each cohort."""

    rows: Sequence[Array]  # (n_items, width) float32, or int64 steps if it is fixed
    totals: Sequence[Array]  # (n_totals,) float64; whole numbers of steps if it is fixed
    n_overflowed: int = 0  # users who added nothing; a simulation's business, never to be sent


class Crowd(Protocol):
    """The party's half of every user.

    A user whose rows, totals or factors would be larger than `solvers.contract` allows or not
    finite, or whose linear system has no solution, adds zeros to all rows and totals, and its
    factors stay. What the others add is the same to the last bit as without that user. So one
    user's ratings move a sum by that user's own bound at most, whatever was published.
    """

    user_factors: Array  # (n_users, k)

    def update(self, public: Broadcast, t: int) -> CrowdUpdate:
        """Take part in round t.

        Raises:
            WireError: what was published is refused, whoever rated what.
            numpy.linalg.LinAlgError: a matrix that was published has no inverse.
        """

    def settle(self, public: Broadcast, users: Array) -> None:
        """Let some users (codes) find p_u for finished item factors, without a round.

        Raises as `update`.
        """

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round; copies."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a state."""


@dataclass(frozen=True, eq=False)
class CrowdInput:
    """What a crowd trains on.

    Attributes:
        solver: its name.
        update_shape: sizes of what is sent.
        design: what masks are linear in, of every item; no columns where only ratings count.
            (n_items, m)
        lists: the rated items of each user.
        masked_ratings: of these. (n,) float32
        profiles: what is known of each user. (n_users, d)
        lines: each user's mask as weights of the design. (n_users, m)
        levels: places of the ratings on the scale, where they are ordered; else none. (n or 0,)
        mask: f_u(i) of the ratings, likewise. (n or 0,) float32
        cohorts: who is summed with whom.
    """

    solver: str
    update_shape: UpdateShape
    design: Array
    lists: RatedItems
    masked_ratings: Array
    profiles: Array
    lines: Array
    levels: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    mask: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    cohorts: Sequence[Cohort] = (Cohort(),)

    @property
    def n_items(self) -> int:
        """How many rows are published."""
        return len(self.design)


class Rounds(Protocol):
    """Everybody's half and the server's in one place: rounds of which the host hears nothing."""

    def one_round(self, t: int) -> None:
        """Do round t."""

    def state(self) -> dict[str, Array]:
        """The server's, after the rounds so far.

        Raises:
            WireError: numbers are no longer finite.
        """

    def parties(self) -> dict[str, Array]:
        """The crowd's, likewise."""


class Engine(Protocol):
    """One way to compute many users' halves.

    Attributes:
        name: what the settings call it.
    """

    name: str

    def crowd(self, given: CrowdInput) -> Crowd:
        """All users before their first round."""

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> "Runner":
        """What fits and applies masks; `progress` is told how many users are done."""

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """q_i . p_u for pairs of codes. (n,)."""


@runtime_checkable
class DeviceEngine(Engine, Protocol):
    """One that computes on a device, and can keep whole rounds there."""

    def on(self, device: str, n_pieces: int) -> Engine:
        """The same engine on a device, where users are in so many turns."""

    def rounds(
        self, given: CrowdInput, half: Any, n_raters: Array, parties: Mapping[str, Array]
    ) -> Rounds | None:
        """Rounds from here on; None where they have to be done one by one.

        Args:
            given: what all users train on.
            half: the server's.
            n_raters: as the sums show them. (n_items,)
            parties: a state of the crowd.
        """
