"""The pass over users by Triton kernels: their inputs, their outputs and their launches."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fedmmf.engines.contract import Cohort, TrainingInput, limit_in_float32
from fedmmf.engines.torch import vb_kernels as kernels
from fedmmf.engines.torch.vb_job import Outcome, SomeUsers, VbJob, are_small, in_units
from fedmmf.errors import SettingsError

HEAVY = 8192  # largest number of ratings of a user that one program works through
HEAVY_PIECE = 512  # ratings per program for users with more
PIECE = 1024  # ratings of an item that one program adds up
BLOCK = 32  # ratings of a tile
USER_COST = 24  # time that a user takes besides its ratings, in ratings
PER = 64  # users whose products one program adds up
MAX_FACTOR = 2.0**50  # largest factor of products in float32 that are summed over users
SQUARE = 32  # rows and columns of these sums that it takes


@dataclass(frozen=True)
class Launch:
    """Launch parameters for kernels of one width, found by trials on an H200."""

    programs: int  # per multiprocessor
    warps: int
    stages: int = 3


LAUNCHES = {
    16: Launch(12, 1),
    32: Launch(8, 1),
    64: Launch(4, 4),
    128: Launch(2, 8),
}


@dataclass(frozen=True, eq=False)
class Order:
    """Order of ratings and pieces for the kernels, computed once.

    Attributes:
        places: of each rating in the order of items. (n,)
        chunks: where each program's users begin. (n_programs + 1,)
        piece_begins: in the order of items. (n_pieces,)
        piece_ends: likewise.
        item_pieces: where the pieces of each item begin. (n_items + 1,)
        heavy: users with more ratings than one program takes. (n_heavy,)
        heavy_pieces: where the pieces of each begin. (n_heavy + 1,)
        part_owners: place in `heavy` of each of these pieces. (n_parts,)
        part_begins: its ratings. (n_parts,)
        part_counts: how many there are. (n_parts,) int32
    """

    places: torch.Tensor
    chunks: torch.Tensor
    piece_begins: torch.Tensor
    piece_ends: torch.Tensor
    item_pieces: torch.Tensor
    heavy: torch.Tensor
    heavy_pieces: torch.Tensor
    part_owners: torch.Tensor
    part_begins: torch.Tensor
    part_counts: torch.Tensor

    @classmethod
    def of(cls, users: SomeUsers, n_items: int, n_programs: int) -> "Order":
        """Sort the ratings by item, and cut users and items into pieces."""
        heavy = torch.nonzero(users.lengths > HEAVY)[:, 0]
        counts = torch.bincount(users.items, minlength=n_items)
        item_begins = _begins(counts)
        _, begins, ends, item_pieces = _cut(item_begins[:-1], counts, PIECE)
        sizes = users.lengths[heavy]
        parts, part_begins, part_ends, heavy_pieces = _cut(users.indptr[heavy], sizes, HEAVY_PIECE)
        return cls(
            places=_places(users.items),
            chunks=_chunks(users.lengths, n_programs),
            piece_begins=begins,
            piece_ends=ends,
            item_pieces=item_pieces,
            heavy=heavy,
            heavy_pieces=heavy_pieces,
            part_owners=parts,
            part_begins=part_begins,
            part_counts=(part_ends - part_begins).int(),
        )


def _begins(counts: torch.Tensor) -> torch.Tensor:
    """Cumulative counts: where each begins, and where the last ends. (n + 1,)."""
    return torch.cat((counts.new_zeros(1), counts.cumsum(0)))


def _cut(begins: torch.Tensor, counts: torch.Tensor, size: int) -> tuple[torch.Tensor, ...]:
    """Cut ranges into pieces: owners, begins and ends, and where each range's pieces begin."""
    n_pieces = (counts + size - 1) // size
    first = _begins(n_pieces)
    everybody = torch.arange(len(counts), device=counts.device)
    owners = torch.repeat_interleave(everybody, n_pieces)
    number = torch.arange(len(owners), device=counts.device) - first[owners]
    piece_begins = begins[owners] + size * number
    ends = torch.minimum(piece_begins + size, (begins + counts)[owners])
    return owners, piece_begins, ends, first


def _places(items: torch.Tensor) -> torch.Tensor:
    """Position of each rating in the order of items. (n,)."""
    kind = torch.int32 if len(items) < 2**31 else torch.int64
    order = torch.sort(items, stable=True).indices
    places = torch.empty(len(items), dtype=kind, device=items.device)
    places[order] = torch.arange(len(items), dtype=kind, device=items.device)
    return places


def _chunks(lengths: torch.Tensor, n_programs: int) -> torch.Tensor:
    """Cut users into chunks so that programs take about the same time. (n_programs + 1,)."""
    costs = (torch.where(lengths > HEAVY, 0, lengths) + USER_COST).cumsum(0)
    cuts = torch.arange(1, n_programs, device=lengths.device) * costs[-1] // n_programs
    ends = torch.searchsorted(costs, cuts)
    zero, last = ends.new_zeros(1), ends.new_full((1,), len(lengths))
    return torch.cat((zero, ends, last))


def width_of(n_own: int) -> int:
    """Number of columns of a tile, a power of two: p_u, the rating and 1."""
    return int(max(16, 1 << (n_own + 1).bit_length()))


class Fused:
    """Runs jobs over the same users again and again.

    Args:
        n_programs: of the pass over users.
    """

    def __init__(self, n_programs: int) -> None:
        self._n_programs = n_programs
        self._buffer = torch.empty(0)

    @classmethod
    def of(cls, given: TrainingInput, device: torch.device) -> "Fused":
        """Make the pass for a user group."""
        return cls(programs_on(device, given.update_shape.n_own))

    def order(self, users: SomeUsers, n_items: int) -> Order:
        """Order the ratings for the kernels and divide the users between programs."""
        return Order.of(users, n_items, self._n_programs)

    def run(self, job: VbJob, order: Order) -> Outcome:
        """Run the job over all its users."""
        return _FusedPass(job, order, self._rows(job)).run()

    def outer(
        self, job: VbJob, left: torch.Tensor, right: torch.Tensor, counted: torch.Tensor
    ) -> torch.Tensor:
        """Sum the products of two vectors of each counted user. (x, y)."""
        n_users, fixed = len(left), job.cohort.is_fixed
        shape = (-(-n_users // PER), left.shape[1], right.shape[1])
        kind = torch.int64 if fixed else torch.float32
        sums = torch.zeros(shape, dtype=kind, device=left.device)
        vectors = (left.float(), right.float())
        sizes = (n_users, *shape[1:], vectors[0].stride(0), vectors[1].stride(0))
        limits = _limits(job.cohort)[1:]
        grid = (shape[0], -(-shape[1] // SQUARE), -(-shape[2] // SQUARE))
        arguments = (*vectors, counted.int(), sums, *sizes, *limits)
        options = {"PER": PER, "WIDTH": SQUARE, "FIXED": fixed}
        kernels.launch(kernels.outer_kernel, grid, arguments, **options)
        return sums.sum(0) if fixed else sums.sum(0, dtype=torch.float64)

    def _rows(self, job: VbJob) -> torch.Tensor:
        """Buffer with a row for each rating. (n, stride)."""
        stride = -(-job.reading.update_shape.rank // 8) * 8  # whole sectors of 32 bytes
        n = len(job.users.items) * stride if job.with_rows else 0
        if self._buffer.numel() < n or self._buffer.device != job.ratings.device:
            self._buffer = torch.empty(0)  # free the old one first
            self._buffer = torch.empty(n, dtype=torch.float32, device=job.ratings.device)
        rows = self._buffer[:n].view(-1, stride)
        return rows.view(torch.int32) if job.cohort.is_fixed else rows


def _limits(cohort: Cohort) -> tuple[float, float, float]:
    """Bounds of rows and of totals in steps, and steps per unit of totals."""
    if not cohort.is_fixed:
        return 0.0, 0.0, 0.0
    rows = limit_in_float32(cohort.bound, cohort.scale)
    totals = limit_in_float32(cohort.total_bound, cohort.total_scale)
    return float(rows), float(totals), cohort.total_scale


class _FusedPass:
    def __init__(self, job: VbJob, order: Order, rows: torch.Tensor) -> None:
        self._job, self._order, self._rows = job, order, rows
        update_shape, device = job.reading.update_shape, job.ratings.device
        self._k, self._n, self._width = (
            update_shape.rank,
            update_shape.n_own,
            width_of(update_shape.n_own),
        )
        self._unit = unit_of(job.reading.mean[:, : self._k])
        self._told = in_units(job.reading, self._unit)
        # Gradients have the unit of ratings; rows of a membership round are p_u, which has none.
        self._row_unit = (
            torch.ones_like(self._unit) if job.reading.is_membership_round else self._unit
        )
        seen = torch.zeros((job.users.n_users, update_shape.n_seen), device=device)
        self._known = torch.hstack((seen, job.profiles.float()))
        is_small = are_small(self._known, MAX_FACTOR) & are_small(job.lines, MAX_FACTOR)
        self._overflowed = (~is_small).int()  # (n_users,) to which the kernels add
        kind = torch.int64 if job.cohort.is_fixed else torch.float32
        n_sums = len(order.chunks) - 1 + len(order.heavy)
        n_squares = 1 + (job.reading.unrated is not None)
        size = (n_squares * self._width + 3) * self._width
        self._sums = torch.zeros((n_sums, size), dtype=kind, device=device)

    def run(self) -> Outcome:
        """Launch the kernels, and collect their sums."""
        self._light()
        if len(self._order.heavy):
            self._heavy()
        return self._outcome()

    @cached_property
    def _table(self) -> torch.Tensor:
        """High and low parts of E[q_i], of the known columns, and 1. (n_items, 2, width)."""
        mean = self._told.mean.float()
        table = torch.zeros((len(mean), 2, self._width), dtype=torch.float16, device=mean.device)
        high = mean.half()
        table[:, 0, : self._n], table[:, 1, : self._n] = high, (mean - high.float()).half()
        table[:, 0, self._n + 1] = 1.0
        return table

    @cached_property
    def _is_finite(self) -> torch.Tensor:
        """Whether the public table is finite; if not, nobody adds anything. ()."""
        return torch.isfinite(self._table).all()

    @cached_property
    def _wide(self) -> torch.Tensor:
        """Unit of each entry: 1 for p_u, that of ratings for weights of known columns. (n,)."""
        wide = torch.ones(self._n, device=self._overflowed.device)
        wide[self._k :] = self._unit
        return wide

    @cached_property
    def _numbers(self) -> tuple[torch.Tensor, ...]:
        """Inputs that all users share: numbers, vectors, basis, weights, unrated moments."""
        told, width = self._told, self._width
        tau = torch.where(self._is_finite, told.tau, torch.nan)
        weight = torch.full_like(told.tau, self._job.weight)
        steps = self._row_unit * self._job.cohort.scale
        everybody = told.tau[None, None] if told.unrated is None else told.unrated.moment
        vectors = torch.ones((2, width), device=told.mean.device)
        vectors[0, : self._n], vectors[1, : self._n] = told.user_precision, self._wide
        return (
            torch.stack((tau, weight, self._unit, steps, 1.0 / self._unit)).float(),
            vectors,
            _square(told.spread.basis, width),
            _square(told.user_weights[: told.update_shape.n_seen], width),
            _square(everybody, width),
        )

    @cached_property
    def _of_users(self) -> tuple[Any, ...]:
        """Prior means, additions to squares and first moments, and the stride of the first."""
        job, unit = self._job, self._unit
        base = _padded(job.base / self._wide, self._width)
        none = self._overflowed
        extra = none if job.extra is None else (job.extra / unit**2).float()
        offset = none if job.offset is None else _padded(job.offset / unit**2, self._width)
        return base, extra, offset, self._width if len(base) > 1 else 0

    @property
    def _lists(self) -> tuple[torch.Tensor, ...]:
        """Items and ratings of all users, ordered by user. (n,) each."""
        return self._job.users.items, self._job.ratings

    @cached_property
    def _items(self) -> tuple[torch.Tensor, ...]:
        """The table, numbers of raters, and the spectrum."""
        told = self._told
        return self._table, told.n_raters.float(), told.spread.spectrum.float()

    @property
    def _out(self) -> tuple[torch.Tensor, ...]:
        return self._job.p, self._known, self._overflowed

    @cached_property
    def _options(self) -> dict[str, Any]:
        """Compile-time options of the kernels."""
        job, update_shape = self._job, self._job.reading.update_shape
        return {
            "n": self._n,
            "k": self._k,
            "e": self._known.shape[1],
            "K": self._width,
            "S": self._rows.shape[1],
            "BN": BLOCK,
            "SIZE": self._sums.shape[1],
            "SEEN": update_shape.n_seen > 0,
            "RANKS": job.reading.unrated is not None,
            "EXTRA": job.extra is not None,
            "FIXED": job.cohort.is_fixed,
            "LOOK": job.reading.is_membership_round,
            "ROWS": job.with_rows,
            "HEAVY": HEAVY,
            "WIDE": 2 * self._width * len(job.reading.mean) >= 2**31,
            "FAST": job.ratings.is_cuda,
            "NEAR": _limits(job.cohort)[0] < 2**22,
        }

    def _run(self, kernel: Any, n_programs: int, *arguments: Any) -> None:
        """Launch a kernel with those of the options that it has."""
        known, launch = set(kernel.arg_names), LAUNCHES[self._width]
        options = {name: value for name, value in self._options.items() if name in known}
        options |= {"num_warps": launch.warps, "num_stages": launch.stages}
        kernels.launch(kernel, (n_programs,), arguments, **options)

    def _light(self) -> None:
        """Run users whom one program can work through."""
        job, order, limits = self._job, self._order, _limits(self._job.cohort)
        lists = (order.chunks, job.users.indptr, job.users.is_counted.int(), *self._lists)
        about = (*lists, order.places, *self._items, *self._numbers, *self._of_users)
        n_programs = len(order.chunks) - 1
        out = (*self._out, self._sums, self._rows, *limits)
        self._run(kernels.users_kernel, n_programs, *about, *out)

    def _heavy(self) -> None:
        """Run users with more ratings, in pieces: sums, posteriors, rows."""
        job, order, width = self._job, self._order, self._width
        n_pieces, n_heavy, device = len(order.part_begins), len(order.heavy), job.ratings.device
        grams = torch.empty((n_pieces, width, width), device=device)
        shrunk = torch.empty((n_pieces, width), device=device)
        moments = torch.empty((n_heavy, width + 1, width), device=device)
        ranges, limits = (order.part_begins, order.part_counts), _limits(job.cohort)
        about = (*ranges, *self._lists, *self._items, self._numbers[0])
        self._run(kernels.heavy_gram_kernel, n_pieces, *about, grams, shrunk)
        users = (order.heavy, order.heavy_pieces, job.users.indptr, job.users.is_counted.int())
        about = (*users, grams, shrunk, *self._numbers, *self._of_users)
        own = self._sums[len(order.chunks) - 1 :]
        out = (*self._out, own, moments, *limits[1:])
        self._run(kernels.heavy_users_kernel, n_heavy, *about, *out)
        if job.with_rows:
            lists = (order.part_owners, *ranges, *self._lists, order.places, self._table)
            out = (moments, self._rows, self._numbers[0], limits[0])
            self._run(kernels.heavy_rows_kernel, n_pieces, *lists, *out)

    def _outcome(self) -> Outcome:
        """Add the sums of all programs; return them with the users' flags."""
        k, n, width = self._k, self._n, self._width
        kind = None if self._job.cohort.is_fixed else torch.float64
        sums = self._sums.sum(0, dtype=kind)
        moment, rest = sums[: width**2].view(width, width), sums[width**2 :].view(-1, width)
        everybody = rest[3:, :k][:k]
        is_sound = self._overflowed == 0
        vectors = (rest[0, :n], rest[1, :n], rest[2, 0])
        return Outcome(self._summed(), moment[:k, :k], everybody, *vectors, self._known, is_sound)

    def _summed(self) -> torch.Tensor:
        """Rows of each item, summed by pieces, then over pieces. (n_items, k) float32 or int64."""
        order, stride, fixed = self._order, self._rows.shape[1], self._job.cohort.is_fixed
        kind = torch.int64 if fixed else torch.float32
        sizes = (len(order.piece_begins), len(order.item_pieces) - 1)
        made = [torch.zeros((n, stride), dtype=kind, device=self._rows.device) for n in sizes]
        if self._job.with_rows:
            options = {"S": stride, "WIDTH": 1 << (stride - 1).bit_length(), "FIXED": fixed}
            options |= {"BN": BLOCK, "num_warps": 2}
            steps = (
                (order.piece_begins, order.piece_ends, self._rows, made[0]),
                (order.item_pieces[:-1], order.item_pieces[1:], *made),
            )
            for n, arguments in zip(sizes, steps, strict=True):
                kernels.launch(kernels.pieces_kernel, (n,), arguments, **options)
        rows = made[1][:, : self._k]
        return rows if fixed else rows * self._row_unit.float()


def _padded(values: torch.Tensor, width: int) -> torch.Tensor:
    """Append columns of zeros. (n, width) float32."""
    room = torch.zeros((len(values), width), device=values.device)
    room[:, : values.shape[1]] = values
    return room


def _square(values: torch.Tensor, width: int) -> torch.Tensor:
    """Append rows and columns of zeros. (width, width) float32."""
    room = torch.zeros((width, width), device=values.device)
    room[: values.shape[0], : values.shape[1]] = values
    return room


def unit_of(mean: torch.Tensor) -> torch.Tensor:
    """Return 1, or a power of two near the largest factor if float16 holds it badly. ()."""
    largest = mean.abs().amax().double()
    near = torch.exp2(torch.frexp(largest)[1].double())
    is_usual = (largest > 2.0**-5) & (largest < 2.0**7) | (largest == 0) | ~largest.isfinite()
    return torch.where(is_usual, torch.ones_like(near), near)


def programs_on(device: torch.device, n_own: int) -> int:
    """Number of programs that go over users at once."""
    if width_of(n_own) not in LAUNCHES:
        raise SettingsError(
            f"kernels for a card have room for {max(LAUNCHES) - 3} factors and columns of masks "
            f"together; got {n_own - 1}. Take fewer factors, mask_fit 'alone' or the device 'cpu'",
            flags="--factors, --mask-fit alone, --device cpu",
        )
    if device.type != "cuda":
        return 3  # in the interpreter
    multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
    return int(multiprocessors * LAUNCHES[width_of(n_own)].programs)
