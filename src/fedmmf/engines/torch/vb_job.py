"""Input and output of a pass over users: tensors, all on one device."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from fedmmf.engines.contract import Cohort
from fedmmf.solvers.vb.reading import Spread, Unrated


@dataclass(frozen=True, eq=False)
class SomeUsers:
    """Some consecutive users, and their ratings, ordered by user."""

    first: int  # number of the first of them
    indptr: torch.Tensor  # where each one's ratings begin (n_users + 1,) int64
    items: torch.Tensor  # (n,) int32
    masked: torch.Tensor  # (n,) float32
    levels: torch.Tensor  # (n or 0,) int32
    mask: torch.Tensor  # (n or 0,) float32
    profiles: torch.Tensor  # (n_users, d) float64
    lines: torch.Tensor  # (n_users, m) float64
    is_member: torch.Tensor  # (n_users,) bool

    @property
    def n_users(self) -> int:
        """Number of users in this set."""
        return len(self.indptr) - 1

    @cached_property
    def lengths(self) -> torch.Tensor:
        """Number of items that each user has rated. (n_users,) int64."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def is_counted(self) -> torch.Tensor:
        """Whether a user takes part in sums: members with ratings. (n_users,) bool."""
        return self.is_member & (self.lengths > 0)

    @cached_property
    def owners(self) -> torch.Tensor:
        """User of each rating. (n,) int64."""
        everybody = torch.arange(self.n_users, device=self.indptr.device)
        return torch.repeat_interleave(everybody, self.lengths)


@dataclass(frozen=True, eq=False)
class VbJob:
    """A pass over some users.

    Attributes:
        users: of the pass.
        reading: the broadcast, a `VbReading` of tensors.
        ratings: in the place of the masked ratings. (n,) float32
        extra: what the squares of a user gain besides those of `ratings`; None: nothing.
            (n_users,) float64
        base: prior mean of p_u, but for what rated items say. (1 or n_users, n_own) float64
        offset: what the first moments gain; None: nothing. (n_users, n_own) float64
        cohort: how rows and totals are bounded and rounded.
        p: of these users; it is moved in place. (n_users, n_own) float32
        with_rows: whether there are any; else p alone moves, of everybody, and is not a number
            where it would overflow.
    """

    users: SomeUsers
    reading: Any
    ratings: torch.Tensor
    extra: torch.Tensor | None
    base: torch.Tensor
    offset: torch.Tensor | None
    cohort: Cohort
    p: torch.Tensor
    with_rows: bool = True

    @property
    def weight(self) -> float:
        """Weight of an unrated item relative to a rated one."""
        return 0.0 if self.reading.unrated is None else self.reading.unrated.weight

    @property
    def profiles(self) -> torch.Tensor:
        """Profiles of all users, the mean one where there is none. (n_users, d)."""
        own = self.users.profiles
        return torch.where(own.any(1, keepdim=True), own, self.reading.profile_mean)

    @property
    def lines(self) -> torch.Tensor:
        """r_m - f_u(i), the masked rating of an unrated item, as weights of the design. (n, m)."""
        unrated = self.reading.unrated
        return self.users.lines if unrated is None else unrated_lines(self.users, unrated)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Output of a pass: sums over the counted users, in whole steps where sums are fixed.

    Who overflows is left out of them, and its p stays.
    """

    rows: torch.Tensor  # (n_items, k) float32 or int64
    moment: torch.Tensor  # of n E[p p^T] (k, k)
    everybody: torch.Tensor  # of E[p p^T], where unrated items count (k, k)
    mean: torch.Tensor  # (n_own,)
    deviation: torch.Tensor  # of E[(p - prior)^2] (n_own,)
    error: torch.Tensor  # of E[(r - q.p)^2] ()
    known: torch.Tensor  # what is known of each user (n_users, e)
    is_sound: torch.Tensor  # who did not overflow (n_users,) bool


def are_small(values: torch.Tensor, most: float) -> torch.Tensor:
    """Whether a user's numbers are finite and at most `most`. (n_users, ...) -> (n_users,) bool."""
    return (values.abs() <= most).flatten(1).all(1)


def unrated_lines(users: SomeUsers, unrated: Unrated) -> torch.Tensor:
    """Value of an unrated item, less the mask, as weights of the design. (n_users, m)."""
    lines = -users.lines
    lines[:, 0] += unrated.value
    return lines


def in_units(reading: Any, unit: torch.Tensor) -> Any:
    """The reading as if ratings were divided by `unit`; p_u stays, masks are divided."""
    k, unrated = reading.update_shape.rank, reading.unrated
    wide = torch.ones_like(reading.user_precision)
    wide[k:] = unit  # weights of known columns are in ratings' units, p_u has none
    mean = reading.mean.clone()
    mean[:, :k] /= unit
    weights = reading.user_weights.clone()
    weights[: reading.update_shape.n_seen] *= unit
    if unrated is not None:
        sums = {"moment": unrated.moment / unit**2, "line": unrated.line / unit}
        unrated = replace(unrated, **sums)
    return replace(
        reading,
        tau=reading.tau / unit**2,
        user_precision=reading.user_precision * wide**2,
        user_middle=reading.user_middle / wide,
        spread=Spread(reading.spread.basis / unit, reading.spread.spectrum),
        mean=mean,
        user_weights=weights,
        unrated=unrated,
    )
