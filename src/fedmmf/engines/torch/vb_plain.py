"""The pass over users in plain torch: `VbParty`, for batches of users of similar activity.

For devices without kernels of our own. All in float64, since what is slow may as well be exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fedmmf.engines.torch.vb_job import Outcome, SomeUsers, VbJob, are_small
from fedmmf.engines.torch.vb_totals import StepRounding, known_seen
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL

BATCH = 1 << 16  # ratings of a batch, with what it is padded by


@dataclass(frozen=True, eq=False)
class _Batch:
    """Users with about the same number of ratings."""

    users: torch.Tensor  # (b,)
    places: torch.Tensor  # of their ratings; 0 where there is none (b, longest)
    inside: torch.Tensor  # whether there is one (b, longest) bool


def _batches(users: SomeUsers, n_own: int) -> Iterator[_Batch]:
    """Yield users by numbers of ratings; a matrix takes as much room as `n_own` ratings."""
    lengths, order = users.lengths.sort(stable=True)
    begin = 0
    while begin < len(order):
        longest = lengths[begin : begin + BATCH]
        n = torch.arange(1, len(longest) + 1, device=order.device)
        n_users = max(int((longest.clip(min=n_own) * n <= BATCH).sum()), 1)
        some = order[begin : begin + n_users]
        offsets = torch.arange(int(longest[n_users - 1]), device=order.device)
        inside = offsets < users.lengths[some, None]
        places = torch.where(inside, users.indptr[some, None] + offsets, 0)
        yield _Batch(some, places, inside)
        begin += n_users


class Plain:
    """Runs jobs in plain torch, which needs no order of ratings."""

    def order(self, users: SomeUsers, n_items: int) -> None:
        """Return None, since this pass needs no order."""

    def run(self, job: VbJob, order: None) -> Outcome:
        """Run the job over all its users."""
        return _PlainPass(job).run()

    def outer(
        self, job: VbJob, left: torch.Tensor, right: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        """Sum the products of two vectors of each counted user. (x, y)."""
        steps = StepRounding(job.cohort.total_bound, job.cohort.total_scale)
        return steps.outer(left[counted].double(), right[counted].double()).double()


class _PlainPass:
    """Works through a job in batches."""

    def __init__(self, job: VbJob) -> None:
        self._job, self._k = job, job.reading.update_shape.rank
        update_shape, device = job.reading.update_shape, job.ratings.device
        like = {"dtype": torch.float64, "device": device}
        self._steps = StepRounding(job.cohort.total_bound, job.cohort.total_scale)
        self._known = torch.hstack(
            (torch.zeros((job.users.n_users, update_shape.n_seen), **like), job.profiles)
        )
        kind = torch.int64 if job.cohort.is_fixed else torch.float64
        self._rows = torch.zeros((len(job.reading.mean), self._k), dtype=kind, device=device)
        self._moments = torch.zeros((2, self._k, self._k), **like)
        self._vectors = torch.zeros((2, update_shape.n_own), **like)  # of means, of deviations
        self._error = torch.zeros((), **like)
        # Profiles and lines are multiplied by p_u for the totals.
        self._is_sound = are_small(job.lines, MAX_NUMBER)  # (n_users,)

    def run(self) -> Outcome:
        """Run all batches; return the sums over counted users."""
        for batch in _batches(self._job.users, self._job.reading.update_shape.n_own):
            self._one(batch)
        rows = self._rows if self._job.cohort.is_fixed else self._rows.float()
        (moment, everybody), (mean, deviation) = self._moments, self._vectors
        sums = (moment, everybody, mean, deviation, self._error)
        return Outcome(rows, *sums, self._known, self._is_sound)

    def _one(self, batch: _Batch) -> None:
        """Compute the posteriors of one batch, and add its rows and totals."""
        job, items = self._job, self._job.users.items[batch.places].long()
        # Not times 0: past a user's last rating stands another user's, which may be NaN.
        q = torch.where(batch.inside[..., None], job.reading.mean[items].double(), 0.0)
        ratings = torch.where(batch.inside, job.ratings[batch.places].double(), 0.0)  # (b, l)
        prior = self._prior(batch, q)
        first, second, squares = self._evidence(batch, items, q, ratings)
        precision = job.reading.user_precision
        spread = _inverse(torch.diag(precision) + second / job.reading.tau)
        right = precision * prior + first / job.reading.tau
        mean = (spread @ right[..., None])[..., 0]
        if not job.with_rows:
            is_small = are_small(mean, MAX_NUMBER)[:, None]
            job.p[batch.users] = torch.where(is_small, mean, torch.nan).float()
            return
        moment = spread + mean[:, :, None] * mean[:, None, :]
        agreed = 2 * (mean * first).sum(1) - (moment * second).sum((1, 2))
        told = self._told(q, ratings, mean, moment).float()  # as a party would send it
        told = torch.where(batch.inside[..., None], told, 0.0)
        totals = self._totals(batch, (mean, prior), moment, squares - agreed)
        is_sound = self._is_sound[batch.users] & are_small(told, MAX_NUMBER)
        is_sound &= are_small(mean, MAX_NUMBER) & are_small(self._known[batch.users], MAX_NUMBER)
        for values in totals:
            is_sound &= are_small(values[:, None], MAX_TOTAL)
        is_idle = job.users.lengths[batch.users] == 0
        self._is_sound[batch.users] = is_sound | is_idle
        is_moved = is_sound & ~is_idle
        job.p[batch.users[is_moved]] = mean[is_moved].float()
        is_counted = is_sound & job.users.is_counted[batch.users]
        self._add_rows(batch, items, told, is_counted)
        self._add_totals(totals, is_counted)

    def _prior(self, batch: _Batch, q: torch.Tensor) -> torch.Tensor:
        """Prior means of p_u; what rated items say in them is stored in `_known`. (b, n_own)."""
        job, some, n_seen = self._job, batch.users, self._job.reading.update_shape.n_seen
        seen = known_seen(job, q.sum(1), some)
        self._known[some, :n_seen] = seen
        base = job.base if len(job.base) == 1 else job.base[some]
        return base + seen @ job.reading.user_weights[:n_seen]

    def _evidence(
        self, batch: _Batch, items: torch.Tensor, q: torch.Tensor, ratings: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sums that decide p_u: first and second moments, and squares."""
        job, reading, some, weight = self._job, self._job.reading, batch.users, self._job.weight
        first = (q.mT @ ratings[..., None])[..., 0]
        raters = reading.n_raters[items][..., None]
        shrunk = (batch.inside[..., None].double() / (1.0 + raters * reading.spread.spectrum)).sum(
            1
        )
        second = q.mT @ q + (reading.spread.basis * shrunk[:, None]) @ reading.spread.basis.T
        squares = ratings.square().sum(1) + (0.0 if job.extra is None else job.extra[some])
        if reading.unrated is not None and job.offset is not None:
            first = first + job.offset[some]
            second = (1 - weight) * second + weight * reading.unrated.moment
        return first, second, squares

    def _told(
        self, q: torch.Tensor, ratings: torch.Tensor, mean: torch.Tensor, moment: torch.Tensor
    ) -> torch.Tensor:
        """Rows of all ratings of a batch. (b, l, k)."""
        k = self._k
        if self._job.reading.is_membership_round:
            return mean[:, None, :k].expand(-1, ratings.shape[1], -1)
        left = (1 - self._job.weight) * (q @ moment[:, :, :k])
        return ratings[..., None] * mean[:, None, :k] - left

    def _add_rows(
        self, batch: _Batch, items: torch.Tensor, told: torch.Tensor, is_counted: torch.Tensor
    ) -> None:
        cohort, is_summed = self._job.cohort, batch.inside & is_counted[:, None]
        told = told[is_summed].double()
        if cohort.is_fixed:
            told = StepRounding(cohort.bound, cohort.scale).of(told)
        self._rows.index_add_(0, items[is_summed], told)

    def _totals(
        self,
        batch: _Batch,
        vectors: tuple[torch.Tensor, torch.Tensor],
        moment: torch.Tensor,
        error: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Totals of each user: n E[p p^T], E[p p^T], means, deviations, errors. (b, ...) each."""
        (mean, prior), learned = vectors, moment[:, : self._k, : self._k]
        lengths = self._job.users.lengths[batch.users]
        deviation = torch.diagonal(moment, dim1=1, dim2=2) - 2 * mean * prior + prior.square()
        return lengths[:, None, None] * learned, learned, mean, deviation, error

    def _add_totals(self, totals: tuple[torch.Tensor, ...], is_counted: torch.Tensor) -> None:
        whole, *rest = (values[is_counted] for values in totals)
        counted = [self._steps.of(values).sum(0) for values in (self._steps.shrunk(whole), *rest)]
        for sums, values in zip((*self._moments, *self._vectors), counted[:4], strict=True):
            sums += values
        self._error += counted[4]


def _inverse(matrices: torch.Tensor) -> torch.Tensor:
    """Inverses; NaN where there is none, which the caller notices."""
    found, failed = torch.linalg.inv_ex(matrices)
    return torch.where((failed > 0)[:, None, None], torch.nan, found)
