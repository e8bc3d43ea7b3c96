"""Totals of `vb` from the users' posteriors."""

from collections.abc import Callable

import torch

from fedmmf.engines.torch.vb_job import Outcome, VbJob
from fedmmf.solvers.vb.shapes import pack

BLOCK = 1 << 24  # numbers that are rounded at once


class StepRounding:
    """Bounds and rounds finite numbers.

    Args:
        bound: largest absolute number.
        scale: steps per unit; 0: numbers stay as they are.
    """

    def __init__(self, bound: float, scale: float) -> None:
        self._bound, self._scale = bound, scale

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """Round to whole steps, or return the values. (...) int64 or float64."""
        if not self._scale:
            return values
        return (values.clip(-self._bound, self._bound) * self._scale).round().long()

    def shrunk(self, matrices: torch.Tensor) -> torch.Tensor:
        """Shrink each covariance so that its entries are within the bound. (n, k, k)."""
        if not self._scale:
            return matrices
        largest = torch.diagonal(matrices, dim1=1, dim2=2).amax(1)
        return matrices * (self._bound / largest.clip(min=self._bound))[:, None, None]

    def outer(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Sum over users of a_u b_u^T in steps. (n, x), (n, y) -> (x, y)."""
        if not self._scale:
            return left.T @ right
        shape = (left.shape[1], right.shape[1])
        total = torch.zeros(shape, dtype=torch.int64, device=left.device)
        size = max(BLOCK // max(total.numel(), 1), 1)
        for begin in range(0, len(left), size):
            some = slice(begin, begin + size)
            total += self.of(left[some, :, None] * right[some, None, :]).sum(0)
        return total


Outer = Callable[[VbJob, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def totals_of(
    job: VbJob, found: Outcome, levels: torch.Tensor | None, outer: Outer
) -> torch.Tensor:
    """Totals of the counted users who did not overflow. (n_totals,).

    Args:
        job: what was worked on.
        found: in it.
        levels: what ordered ratings add. (n_users, 3 (n_levels - 1))
        outer: sums products of two vectors of some users.
    """
    update_shape, cohort, k = job.reading.update_shape, job.cohort, job.reading.update_shape.rank
    steps = StepRounding(cohort.total_bound, cohort.total_scale)
    parts = _constant(job) | ({} if levels is None else {"levels": levels})
    counted = job.users.is_counted & found.is_sound  # (n_users,)
    summed = {
        name: steps.of(torch.where(counted[:, None], values, 0.0)).sum(0)
        for name, values in parts.items()
    }
    summed |= {
        "error": found.error,
        "user_sum": found.mean[:k],
        "deviation": found.deviation[:k],
        "joint_sum": found.mean[k:],
        "joint_deviation": found.deviation[k:],
        "moment": pack(found.moment),
    }
    if len(job.reading.user_weights):
        moments = outer(job, found.known, job.p[:, :k], counted)
        moments[:, :1] = 0  # the coordinate that is always 1
        summed["user_gram"] = pack(outer(job, found.known, found.known, counted))
        summed["user_moments"] = moments.ravel()
    if job.reading.unrated is not None:
        summed["all_moment"] = pack(found.everybody)
        summed["all_line"] = outer(job, job.p[:, :k], job.lines, counted).ravel()
    whole = torch.zeros(update_shape.n_totals, dtype=torch.float64, device=counted.device)
    for name, values in summed.items():
        whole[update_shape.blocks["totals"].place(name)] = values.double()
    return whole


def _constant(job: VbJob) -> dict[str, torch.Tensor]:
    """Totals of each user that are the same in every round. (n_users, size) each."""
    users, unrated = job.users, job.reading.unrated
    weight = lengths = users.lengths.double()[:, None]
    if unrated is not None:
        weight = (1 - unrated.weight) * lengths + unrated.weight * len(job.reading.mean)
    parts = {"weight": weight, "n_users": torch.ones_like(lengths), "n_ratings": lengths}
    if job.reading.update_shape.n_profile:
        has_any = users.profiles.any(1, keepdim=True).double()
        parts |= {"n_profiled": has_any, "profile_sum": users.profiles}
    return parts


def known_seen(job: VbJob, seen: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
    """Prior knowledge from rated items: a share of the sum of E[q]. (n, n_seen)."""
    update_shape, share = (
        job.reading.update_shape,
        1.0 / job.users.lengths[some].clip(min=1).double(),
    )
    return (share if update_shape.ranks else share.sqrt())[:, None] * seen[:, : update_shape.n_seen]
