"""The contract of an engine: a broadcast in, sums over users out, numpy at the boundary.

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
    """Users whose rows are summed together, and how each user's rows are bounded and rounded.

    Bounds and clipping are of one user: a sum over many users is the sum of what each of them,
    alone, would have sent.
    """

    members: Array | None = None  # (n_users,) bool; None: everybody
    left_out: Array | None = None  # (n_items,) bool; items that are not summed; None: none
    bound: float = np.inf  # largest absolute entry of a row
    scale: float = 0.0  # steps per unit of fixed point, a power of two; 0: floating point
    clip: float = np.inf  # largest length of all rows of a user together, see `clips_totals`
    total_bound: float = np.inf  # largest absolute total of a user
    total_scale: float = 0.0  # steps per unit of the totals; 0: floating point
    clips_totals: bool = False  # whether `clip` bounds rows and totals as one vector

    @property
    def is_fixed(self) -> bool:
        """Whether sums are integers, in steps of fixed point."""
        return self.scale > 0

    def is_like(self, other: "Cohort") -> bool:
        """Whether the other cohort sums the same users with the same bounds and rounding."""
        numbers = self._numbers == other._numbers
        arrays = ((self.members, other.members), (self.left_out, other.left_out))
        return numbers and all(
            (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
            for a, b in arrays
        )

    @property
    def _numbers(self) -> tuple[float, ...]:
        totals = (self.total_bound, self.total_scale, self.clips_totals)
        return self.bound, self.scale, self.clip, *totals

    def in_steps(self, rows: Array) -> Array:
        """Bound and round one user's rows. (n, width) int64."""
        return _in_steps(rows, self.bound, self.scale)

    def totals_in_steps(self, totals: Array, matrices: Sequence[slice] = ()) -> Array:
        """Bound and round users' totals if sums are fixed. (..., n_totals) int64 or float64.

        Args:
            totals: of each user. (..., n_totals)
            matrices: parts of them that are shrunk together, as in `UpdateShape.matrices`.
        """
        if not self.total_scale:
            return totals
        for part in matrices:
            largest = np.abs(totals[..., part]).max(axis=-1, initial=0.0, keepdims=True)
            totals[..., part] *= np.minimum(1.0, self.total_bound / np.maximum(largest, 1e-300))
        return _in_steps(totals, self.total_bound, self.total_scale)

    def clipped(self, rows: Array) -> Array:
        """Shrink one user's rows together to length `clip` at most. (n, width)."""
        return rows if np.isinf(self.clip) else _shortened(self.clip, rows)[0]

    def both_clipped(self, rows: Array, totals: Array) -> tuple[Array, Array]:
        """Shrink one user's rows, and its totals with them where `clip` bounds both."""
        if not self.clips_totals:
            return self.clipped(rows), totals
        rows, totals = _shortened(self.clip, rows, totals)
        return rows, totals


def _shortened(length: float, *parts: Array) -> list[Array]:
    """Shrink arrays, as one vector, to that length at most; one without a length to nothing."""
    parts = tuple(np.asarray(part, np.float64) for part in parts)
    found = float(np.sqrt(sum(np.sum(part * part) for part in parts)))
    if not np.isfinite(found):
        return [np.zeros_like(part) for part in parts]
    return [part * min(1.0, length / max(found, 1e-300)) for part in parts]


def limit_in_float32(bound: float, scale: float) -> np.float32:
    """The bound in steps, rounded down to a float32, for kernels that bound in float32."""
    limit = np.rint(bound * scale)
    found = np.float32(limit)
    return found if found <= limit else np.nextafter(found, np.float32(0))


def _in_steps(values: Array, bound: float, scale: float) -> Array:
    require_finite(values)
    bounded = np.clip(np.asarray(values, np.float64), -bound, bound)
    return np.rint(bounded * scale).astype(np.int64)


def require_finite(*arrays: Array) -> None:
    """Raise unless all values are finite, so that they can be rounded."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise WireError("the server's numbers lead to an update that is not finite")


@dataclass(frozen=True, eq=False)
class CohortSums:
    """The sums of each cohort in one round."""

    rows: Sequence[Array]  # (n_items, width) float32, or int64 steps if it is fixed
    totals: Sequence[Array]  # (n_totals,) float64; whole numbers of steps if it is fixed
    n_overflowed: int = 0  # users who added nothing; known to a simulation only, never sent


class UserHalves(Protocol):
    """The user group: the party's half of every user.

    A user whose rows, totals or factors would be larger than `solvers.contract` allows or not
    finite, or whose linear system has no solution, adds zeros to all rows and totals, and its
    factors stay. What the others add is the same to the last bit as without that user. So one
    user's ratings move a sum by that user's own bound at most, whatever the broadcast.
    """

    user_factors: Array  # (n_users, k)

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Take part in round t.

        Raises:
            WireError: the broadcast is refused, whatever the users rated.
            numpy.linalg.LinAlgError: a matrix of the broadcast has no inverse.
        """

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users (codes) for fixed item factors, without a round.

        Raises as `update`.
        """

    def state(self) -> dict[str, Array]:
        """Return copies of everything that changes from round to round."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a copy that `state` returned."""


@dataclass(frozen=True, eq=False)
class TrainingInput:
    """Training data of a user group.

    Attributes:
        solver: its name.
        update_shape: sizes of what is sent.
        design: what masks are linear in, of every item; no columns where only ratings count.
            (n_items, m)
        lists: the rated items of each user.
        masked_ratings: of these. (n,) float32
        profiles: what is known of each user. (n_users, d)
        lines: each user's mask as weights of the design. (n_users, m)
        levels: positions of the ratings on the scale, where they are ordered; else none. (n or 0,)
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
        """Number of items of a broadcast."""
        return len(self.design)


class Rounds(Protocol):
    """The parties' and the server's halves on one device: rounds without copies to the host."""

    def one_round(self, t: int) -> None:
        """Run round t of both halves on the device."""

    def state(self) -> dict[str, Array]:
        """Return the server's state after the rounds so far.

        Raises:
            WireError: numbers are no longer finite.
        """

    def parties(self) -> dict[str, Array]:
        """Return the user group's state after the rounds so far."""


class Engine(Protocol):
    """An implementation that computes the halves of many users.

    Attributes:
        name: what the settings call it.
    """

    name: str

    def halves(self, given: TrainingInput) -> UserHalves:
        """Make the user group before its first round."""

    def mask_runner(self, progress: Callable[[int], None] | None = None) -> "Runner":
        """Return a runner that fits and applies masks; it reports finished users to `progress`."""

    def pair_scores(self, users: Array, items: Array, p: Array, q: Array) -> Array:
        """Scores q_i . p_u for pairs of codes. (n,)."""


@runtime_checkable
class DeviceEngine(Engine, Protocol):
    """An engine that computes on a device, and can keep whole rounds there."""

    def on(self, device: str, n_pieces: int) -> Engine:
        """Return the same engine on a device that holds `n_pieces` pieces of users in turn."""

    def rounds(
        self, given: TrainingInput, half: Any, n_raters: Array, parties: Mapping[str, Array]
    ) -> Rounds | None:
        """Return rounds from this state on; None where they have to be run one by one.

        Args:
            given: what all users train on.
            half: the server's.
            n_raters: as the sums show them. (n_items,)
            parties: a state of the user group.
        """
