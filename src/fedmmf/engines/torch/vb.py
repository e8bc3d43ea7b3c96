"""`vb` for every party at once, as tensors on one device.

Users may be cut into pieces that are copied to the device in turn, where their ratings do not fit.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fedmmf.arrays import Array
from fedmmf.engines.contract import CohortSums, TrainingInput
from fedmmf.engines.torch.device import explain_errors
from fedmmf.engines.torch.vb_job import SomeUsers, VbJob
from fedmmf.engines.torch.vb_plain import Plain
from fedmmf.engines.torch.vb_ratings import ordered, unrated_here
from fedmmf.engines.torch.vb_totals import totals_of
from fedmmf.solvers.contract import Broadcast
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER
from fedmmf.solvers.vb.party import N_ALTERNATIONS, counted_membership_round, starting_user
from fedmmf.solvers.vb.reading import Unrated, VbReading
from fedmmf.solvers.vb.shapes import VbShape

SHARED: WeakKeyDictionary[TrainingInput, dict[Any, Any]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Piece:
    """Some of the users, and the order in which the pass reads their ratings."""

    users: SomeUsers
    order: Any  # None where the pass needs none


class TorchVbHalves:
    """The user group of `vb`, in one cohort: the party's half of every user.

    Args:
        given: what they train on.
        device: where.
        n_pieces: of users, which are on the device in turn; 1: all stay there.
        kernels: makes what goes over users; None: what suits the device.
    """

    def __init__(
        self,
        given: TrainingInput,
        device: torch.device,
        n_pieces: int = 1,
        kernels: Callable[[TrainingInput, torch.device], Any] | None = None,
    ) -> None:
        if not isinstance(given.update_shape, VbShape):
            raise TypeError("vb has forms of its own")
        # Keep no reference to `given`: the shared tensors live as long as it does.
        self._update_shape, self._device, self._host_design = (
            given.update_shape,
            device,
            given.design,
        )
        (self.cohort,) = given.cohorts
        self.design = self.placed(given.design)
        self._kernels, self._pieces = self._shared(given, n_pieces, kernels or _kernels_for)
        start = np.tile(starting_user(given.update_shape), (given.lists.n_users, 1))
        self._p, self._n_membership_rounds = torch.as_tensor(start, device=device), 0
        left_out = self.cohort.left_out
        self._left_out = None if left_out is None else self.placed(left_out)
        self._here: dict[tuple[Any, ...], Any] = {}  # `unrated_here` by its arguments

    def _shared(
        self,
        given: TrainingInput,
        n_pieces: int,
        kernels: Callable[[TrainingInput, torch.device], Any],
    ) -> tuple[Any, list[Piece]]:
        """Return what runs over the same ratings share: an ensemble's are on the GPU once."""
        known, about = SHARED.setdefault(given, {}), (self._device, n_pieces, kernels)
        if about not in known:
            made = kernels(given, self._device)
            with explain_errors(n_pieces):
                known[about] = made, list(self._made_pieces(given, n_pieces, made))
        return known[about]

    def _made_pieces(self, given: TrainingInput, n_pieces: int, kernels: Any) -> Iterator[Piece]:
        """Make pieces one after the other, so that several are never on the device together."""
        for users in _cut(given, n_pieces):
            here = moved(users, self._device)
            piece = Piece(here, kernels.order(here, given.n_items))
            yield piece if users.n_users == given.lists.n_users else _kept(piece)

    def placed(self, array: Any) -> torch.Tensor:
        """Copy an array to the device."""
        return torch.tensor(np.asarray(array), device=self._device)

    @property
    def stays_on_card(self) -> bool:
        """Whether all ratings stay on the device, so that a round needs nothing from the host."""
        return self._device.type == "cuda" and len(self._pieces) == 1

    @property
    def user_factors(self) -> Array:
        """Posterior means of all p_u. (n_users, n_own)."""
        return self._p.cpu().numpy().copy()

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p[...] = self.placed(np.asarray(value, np.float32))

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Compute all posteriors; return the sums of all updates."""
        rows, totals, n_overflowed = self.sums(self._reading(broadcast), t)
        return CohortSums([rows.cpu().numpy()], [totals.cpu().numpy()], int(n_overflowed))

    def _reading(self, broadcast: Broadcast) -> Any:
        with np.errstate(all="ignore"):  # each user's numbers are checked
            reading = VbReading.of(self._update_shape, broadcast, self._host_design)
        return moved(reading, self._device)

    def sums(self, reading: VbReading, t: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rows and totals of round t, and the number of overflowed users; all on the device."""
        self._n_membership_rounds = counted_membership_round(self._n_membership_rounds, reading)
        is_ordered = self._update_shape.n_levels > 0 and t > BEGINS_AFTER
        with explain_errors(len(self._pieces)):
            found = [self._pass(piece, reading, is_ordered) for piece in self._in_turn()]
        rows, totals, n_overflowed = found[0]
        for more_rows, more_totals, n_more in found[1:]:
            rows, totals, n_overflowed = (
                rows + more_rows,
                totals + more_totals,
                n_overflowed + n_more,
            )
        if self._left_out is not None:
            rows = rows.masked_fill(self._left_out[:, None], 0)
        return rows, totals, n_overflowed

    def _pass(
        self, piece: Piece, reading: VbReading, is_ordered: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run a round of the users of one piece."""
        job, levels = self._job(piece.users, reading, is_ordered)
        found = self._kernels.run(job, piece.order)
        totals = totals_of(job, found, levels, self._kernels.outer)
        return found.rows, totals, (~found.is_sound).sum()

    def _job(
        self, users: SomeUsers, reading: VbReading, is_ordered: bool
    ) -> tuple[VbJob, torch.Tensor | None]:
        """Return the input of a pass, and what ordered ratings add to the totals."""
        middle, p = reading.user_middle[None], self._p[users.first : users.first + users.n_users]
        job = VbJob(users, reading, users.masked, None, middle, None, self.cohort, p)
        if self._update_shape.n_profile:
            known = job.profiles @ reading.user_weights[self._update_shape.n_seen :]
            job = replace(job, base=middle + known)
        if reading.unrated is not None:
            ratings, extra = self._unrated(users, reading.unrated)
            offset = job.weight * job.lines @ reading.unrated.line.T
            return replace(job, ratings=ratings, extra=extra, offset=offset), None
        if not is_ordered:
            return job, None
        ratings, extra, levels = ordered(users, reading, p)
        return replace(job, ratings=ratings, extra=extra), levels

    def _unrated(self, users: SomeUsers, unrated: Unrated) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `unrated_here`, the same in every round; cached where users stay on the device."""
        about = (users.first, unrated.weight, unrated.value)
        found = self._here.get(about)
        if found is None:
            found = unrated_here(users, unrated)
            self._here = {about: found} if len(self._pieces) == 1 else {}
        return found

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute the posterior means of p_u of some users for fixed item factors."""
        reading = self._reading(broadcast)
        before, chosen = self._p.clone(), self.placed(users).long()
        with explain_errors(len(self._pieces)):
            for turn in range(1 + N_ALTERNATIONS * bool(self._update_shape.n_levels)):
                for piece in self._in_turn():
                    job, _ = self._job(piece.users, reading, is_ordered=turn > 0)
                    self._kernels.run(replace(job, with_rows=False), piece.order)
        is_other = torch.ones(len(before), dtype=torch.bool, device=self._device)
        is_other[chosen] = False
        stays = is_other | ~torch.isfinite(self._p).all(1)
        self._p[...] = torch.where(stays[:, None], before, self._p)

    def _in_turn(self) -> Iterator[Piece]:
        """Yield each piece on the device; the next is copied during the work on the last."""
        if self._device.type != "cuda" or len(self._pieces) == 1:
            yield from self._pieces
            return
        aside, here = torch.cuda.Stream(self._device), torch.cuda.current_stream(self._device)
        coming = self._fetched(0, aside)
        for number in range(len(self._pieces)):
            here.wait_stream(aside)
            piece = coming
            if number + 1 < len(self._pieces):
                coming = self._fetched(number + 1, aside)
            yield piece

    def _fetched(self, number: int, aside: torch.cuda.Stream) -> Piece:
        with torch.cuda.stream(aside):
            piece = moved(self._pieces[number], self._device)
        here = torch.cuda.current_stream(self._device)
        _each(piece, lambda tensor: tensor.record_stream(here))
        return piece

    def state(self) -> dict[str, Array]:
        """Return the means, and the number of membership rounds of each user."""
        looks = np.full(len(self._p), self._n_membership_rounds)
        return {"value": self.user_factors, "looks": looks}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the means and the number of membership rounds from a state."""
        self.user_factors = state["value"]
        self._n_membership_rounds = int(state["looks"].max(initial=0))


def _kernels_for(given: TrainingInput, device: torch.device) -> Any:
    """Return the pass over users that suits the device."""
    if device.type != "cuda":
        return Plain()
    from fedmmf.engines.torch.vb_fused import Fused  # needs triton, which only CUDA builds have

    return Fused.of(given, device)


def _cut(given: TrainingInput, n_pieces: int) -> Iterator[SomeUsers]:
    """Cut users into pieces of about as many ratings each, as tensors on the host."""
    lists, n_users = given.lists, given.lists.n_users
    indptr = np.asarray(lists.indptr, np.int64)
    targets = np.arange(1, n_pieces) * indptr[-1] // n_pieces
    cuts = np.unique(np.concatenate(([0], np.searchsorted(indptr, targets), [n_users])))
    members = given.cohorts[0].members
    members = np.ones(n_users, bool) if members is None else members
    profiles = (
        given.profiles if given.profiles.size else np.zeros((1, given.update_shape.n_profile))
    )
    profiles = np.broadcast_to(profiles, (n_users, given.update_shape.n_profile))
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        entries, some = slice(indptr[first], indptr[last]), slice(first, last)
        yield SomeUsers(
            first,
            torch.tensor(indptr[first : last + 1] - indptr[first]),
            torch.tensor(np.asarray(lists.items[entries], np.int32)),
            torch.tensor(np.asarray(given.masked_ratings[entries], np.float32)),
            torch.tensor(np.asarray(given.levels[entries], np.int32)),
            torch.tensor(np.asarray(given.mask[entries], np.float32)),
            torch.tensor(np.asarray(profiles[some], np.float64)),
            torch.tensor(np.asarray(given.lines[some], np.float64)),
            torch.tensor(members[some]),
        )


def _each(thing: Any, act: Callable[[Any], Any]) -> Any:
    """Copy a dataclass, with `act` applied to each of its tensors and arrays."""
    if isinstance(thing, (torch.Tensor, np.ndarray, np.floating)):
        return act(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        parts = {part.name: _each(getattr(thing, part.name), act) for part in fields(thing)}
        return replace(thing, **parts)
    return thing


def moved(thing: Any, device: torch.device) -> Any:
    """Copy a dataclass to a device."""

    def to(value: Any) -> torch.Tensor:
        if isinstance(value, torch.Tensor):
            return value.to(device, non_blocking=True)
        return torch.tensor(np.asarray(value), device=device)

    return _each(thing, to)


def _kept(piece: Piece) -> Any:
    """Copy a piece to the host, to pinned memory that a GPU can copy from by itself."""
    return _each(piece, lambda tensor: tensor.cpu().pin_memory() if tensor.is_cuda else tensor)
