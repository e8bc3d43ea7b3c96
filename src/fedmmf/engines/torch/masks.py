"""Masks of many users at once: the closed forms of `models`, as batches of linear systems.

Every mask here is linear: an intercept, and weights of the features as far as the family goes.
Users of similar length share a batch, in float64. Each fold of a user's ratings has its Gram
matrix, so that the model without a fold takes the sum of all less that of the fold.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.torch.device import explain_errors
from fedmmf.masks.models import (
    MaskFamily,
    fit_lr,
    fit_mean,
    fit_none,
    predict_lr,
    predict_mean,
    predict_none,
)

ENTRIES = 1 << 24  # numbers of the largest array of a batch
_KNOWN = ((fit_none, predict_none), (fit_mean, predict_mean), (fit_lr, predict_lr))


@dataclass(frozen=True, eq=False)
class _FoldBatch:
    """Some users' ratings, side by side and in folds; j is the position in a fold.

    What is no rating is a row of zeros.
    """

    places: Array  # of the ratings among all, in the order of `is_rating`
    is_rating: torch.Tensor  # (n_users, n_folds, j) bool
    x: torch.Tensor  # (n_users, n_folds, j, m)
    y: torch.Tensor  # (n_users, n_folds, j, 1)

    @property
    def is_alone(self) -> torch.Tensor:
        """Whether a fold holds all ratings of its user. (n_users, n_folds)."""
        sizes = self.is_rating.sum(dim=2)
        return sizes == sizes.sum(dim=1, keepdim=True)

    @property
    def products(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Gram matrices and moments of the folds. (n_users, n_folds, m, m), (..., m, 1)."""
        across = self.x.transpose(2, 3)
        return across @ self.x, across @ self.y

    def write(self, values: torch.Tensor, out: Array) -> None:
        """Write a number for each rating, (n_users, n_folds, j, 1), to the rating's place."""
        out[self.places] = values[..., 0][self.is_rating].cpu().numpy()


def _solved(normal: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """Solve symmetric systems. (..., m, m), (..., m, 1) -> (..., m, 1)."""
    factor, wrong = torch.linalg.cholesky_ex(normal)
    solution: torch.Tensor = torch.cholesky_solve(moments, factor)
    if wrong.any():  # penalties of zero may leave a matrix that is not positive definite
        solution, wrong = torch.linalg.solve_ex(normal, moments)
    if wrong.any():
        raise np.linalg.LinAlgError("Singular matrix")  # as the numpy trainer says it
    return solution


def _batches(lengths: Array, entries_of: Callable[[int], int]) -> Iterator[Array]:
    """Yield codes of users with ratings, in batches of users with similar numbers of ratings.

    Args:
        lengths: numbers of ratings. (n_users,)
        entries_of: how many numbers a user takes who is padded to a length.
    """
    order = np.argsort(lengths, kind="stable")
    ordered = lengths[order]
    begin, end = int(np.count_nonzero(lengths == 0)), len(order)
    while end > begin:  # from the end: the longest user of a batch decides how much room each takes
        longest = int(ordered[end - 1])
        at_most = max(ENTRIES // entries_of(longest), 1)
        # Users with less than half as many ratings would be mostly padding.
        first = max(end - at_most, int(np.searchsorted(ordered, longest / 2)), begin)
        yield order[first:end]
        end = first


class _Trainer:
    """The trainer of `models`, for one call.

    Args:
        family: of the masks.
        given: items (n,), features (n_items, d), targets (n,), penalties (s, 2), n_folds.
        width: m, the parameters of a mask.
        device: where batches are worked on.
    """

    def __init__(
        self, family: MaskFamily, given: tuple[Any, ...], width: int, device: torch.device
    ) -> None:
        self._items, features, self._targets, penalties, n_folds = given
        self._n_folds = int(n_folds)
        self._design = _design(features, width, device)
        strengths, shrinkages = penalties[:, :1], penalties[:, 1:]
        weights = strengths[:, :width]
        if family.fit is fit_lr:
            weights = np.concatenate((shrinkages, np.repeat(strengths, width - 1, axis=1)), axis=1)
        self._ridges = torch.diag_embed(torch.tensor(weights, device=device))  # (s, m, m)

    def entries_of(self, length: int) -> int:
        """Number of entries of a user's larger array: ratings or Gram matrices."""
        width: int = max(self._design.shape[1], 1)
        return max(length + self._n_folds, self._n_folds * width) * width

    def batch(self, indptr: Array, users: Array) -> _FoldBatch:
        """Gather the ratings of some users."""
        begins, lengths = indptr[users], indptr[users + 1] - indptr[users]
        n_rows = -(-int(lengths.max()) // self._n_folds)
        # Position r of a user is row r // n_folds of fold r % n_folds.
        positions = np.arange(n_rows * self._n_folds).reshape(n_rows, self._n_folds).T
        is_rating = positions < lengths[:, None, None]
        places = (begins[:, None, None] + positions)[is_rating]
        device, shape = self._design.device, (*is_rating.shape, self._design.shape[1])
        here = torch.tensor(is_rating, device=device)
        x = torch.zeros(shape, dtype=torch.float64, device=device)
        x[here] = self._design[torch.tensor(self._items[places], device=device).long()]
        y = torch.zeros((*here.shape, 1), dtype=torch.float64, device=device)
        y[here, 0] = torch.tensor(self._targets[places], dtype=torch.float64, device=device)
        return _FoldBatch(places, here, x, y)

    def fit(self, batch: _FoldBatch, chosen: torch.Tensor, held_out: torch.Tensor) -> torch.Tensor:
        """Choose penalties and fit.

        Args:
            batch: some users.
            chosen: row of penalties. out (n_users,)
            held_out: what models predict that have not seen the fold. out (n_users, n_folds, j, 1)

        Returns:
            Parameters of the masks. (n_users, m, 1)
        """
        grams, moments = batch.products
        all_grams, all_moments = grams.sum(dim=1), moments.sum(dim=1)
        outside = (all_grams[:, None] - grams, all_moments[:, None] - moments)
        alone = batch.is_alone[:, :, None, None]
        eye = torch.eye(grams.shape[-1], dtype=grams.dtype, device=grams.device)
        best = torch.full_like(batch.y[:, 0, 0, 0], torch.inf)
        for s, ridge in enumerate(self._ridges):
            # A fold without ratings outside gets 0, also without any penalty.
            normal = torch.where(alone, eye, outside[0] + ridge)
            parts = _solved(normal, outside[1].masked_fill(alone, 0.0))
            predicted = batch.x @ parts
            errors = (batch.y - predicted).square().sum(dim=(1, 2, 3))
            better = errors < best
            best[better], chosen[better] = errors[better], s
            held_out[better] = predicted[better]
        return _solved(all_grams + self._ridges[chosen], all_moments)


def _design(features: Array, width: int, device: torch.device) -> torch.Tensor:
    """Columns that masks of a width see: an intercept, then features. (n_items, width)."""
    columns = torch.ones((len(features), width), dtype=torch.float64, device=device)
    if width > 1:
        columns[:, 1:] = torch.tensor(features, dtype=torch.float64, device=device)
    return columns


def _is_known(family: MaskFamily) -> bool:
    """Whether the family is one of ours, or is fitted and applied like one."""
    return any(family.fit is fit and family.predict is predict for fit, predict in _KNOWN)


class TorchRunner:
    """A `Runner` that works on batches of users; unknown families run in numpy.

    Args:
        device: where batches are worked on.
        progress: called with the number of users of each finished batch.
    """

    def __init__(self, device: torch.device, progress: Callable[[int], None] | None = None) -> None:
        self._device = device
        self._progress = progress or (lambda users_done: None)

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Train all users; the arguments are those of `models._trainer`."""
        *given, theta, chosen, fitted, held_out = arrays
        if not _is_known(family):
            family.train(indptr, *arrays)
            self._progress(len(indptr) - 1)
            return
        lengths = np.diff(indptr)
        with explain_errors():
            trainer = _Trainer(family, tuple(given), theta.shape[1], self._device)
        self._progress(int(np.count_nonzero(lengths == 0)))
        for users in _batches(lengths, trainer.entries_of):
            with explain_errors():
                batch = trainer.batch(indptr, users)
                rows = torch.tensor(chosen[users], device=self._device)
                predicted = torch.zeros_like(batch.y)
                parameters = trainer.fit(batch, rows, predicted)
            theta[users], chosen[users] = parameters[..., 0].cpu().numpy(), rows.cpu().numpy()
            batch.write(batch.x @ parameters[:, None], fitted)
            batch.write(predicted, held_out)
            self._progress(len(users))

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Apply all masks; the arguments are those of `models._applier`."""
        items, features, theta, out = arrays
        if not _is_known(family):
            family.apply(indptr, *arrays)
            self._progress(len(indptr) - 1)
            return
        design = _design(features, theta.shape[1], self._device)
        masks = torch.tensor(theta, dtype=torch.float64, device=self._device)
        done = 0
        for some in RatedItems(indptr, items).blocks(ENTRIES // max(theta.shape[1], 1)):
            codes = torch.tensor(items[some.entries], device=self._device).long()
            users = torch.tensor(done + some.users, device=self._device)
            out[some.entries] = (design[codes] * masks[users]).sum(dim=1).cpu().numpy()
            self._progress(some.n_users)
            done += some.n_users
