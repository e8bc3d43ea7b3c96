"""Test cases for timing the torch engine: synthetic, or taken from a prepared run.

Needs numpy and torch alone, so that a bare machine with a card can run it: a case that needs the
rest of the package, real ratings with masks, is packed into a file elsewhere, which needs no torch.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.errors import DataError
from fedmmf.solvers.contract import SolverContext, part_of
from fedmmf.solvers.vb.server import VbServer
from fedmmf.solvers.vb.shapes import VbShape, write_variant

if TYPE_CHECKING:
    import torch

_BLOCK = 1 << 27  # ratings that are made at once
_FEWEST = 20  # ratings of a user
_SPREAD = 1.1  # of the logarithm of users' activity


@dataclass(frozen=True)
class RatingsShape:
    """Numbers of users, items and ratings of a case."""

    n_users: int
    n_items: int
    n_ratings: int


ML_32M = RatingsShape(200_948, 84_432, 32_000_204)
BILLION = RatingsShape(10_000_000, 1_000_000, 1_000_000_000)


@dataclass(frozen=True, eq=False)
class TestedPairs:
    """Test ratings that are predicted after training."""

    users: Array  # (n,)
    items: Array  # (n,)
    ratings: Array  # (n,)
    mask: Array  # what is added to q.p (n,)
    scale: Array  # lowest and highest rating (2,)


@dataclass(frozen=True, eq=False)
class EngineCase:
    """A training to time: the users' data, and the server's initial state."""

    name: str
    given: TrainingInput
    halves: list[VbServer]  # of the runs that are averaged
    n_raters: Array  # (n_items,)
    rounds: int
    tested: TestedPairs | None = None

    def summed(self, cohort: Cohort) -> "EngineCase":
        """Return the same case with another way of summing."""
        return replace(self, given=replace(self.given, cohorts=(cohort,)))


def made(
    shape: RatingsShape, device: "torch.device", seed: int = 0
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Where users' ratings begin, items and masked ratings, of a shape; on the device.

    Activity is log-normal, popularity falls with the rank of an item; ratings say nothing.
    """
    import torch  # not above: a case is packed where there is none

    random = torch.Generator(device=device).manual_seed(seed)
    like: dict[str, Any] = {"device": device, "generator": random}
    activity = torch.exp(_SPREAD * torch.randn(shape.n_users, **like))
    spare = shape.n_ratings - _FEWEST * shape.n_users
    lengths = (activity / activity.sum() * spare).long() + _FEWEST
    lengths[: shape.n_ratings - int(lengths.sum())] += 1
    popularity = (torch.arange(shape.n_items, device=device, dtype=torch.float64) + 20) ** -0.9
    cumulative = (popularity / popularity.sum()).cumsum(0).float()
    order = torch.randperm(shape.n_items, **like).int()
    n = int(lengths.sum())
    items, masked = torch.empty(n, dtype=torch.int32, device=device), torch.empty(n, device=device)
    for begin in range(0, n, _BLOCK):
        some = slice(begin, min(begin + _BLOCK, n))
        drawn = torch.searchsorted(cumulative, torch.rand(some.stop - begin, **like))
        items[some] = order[drawn.clip(max=shape.n_items - 1)]
        masked[some] = torch.randint(1, 6, (some.stop - begin,), **like).float() - 3.0
    return torch.cat((lengths.new_zeros(1), lengths.cumsum(0))), items, masked


def synthetic(
    shape: RatingsShape,
    factors: int,
    device: "torch.device",
    implicit: str = "none",
    rounds: int = 30,
) -> EngineCase:
    """Ratings of a shape, without features and masks."""
    indptr, items, masked = (tensor.cpu().numpy() for tensor in made(shape, device))
    update_shape = VbShape.of(factors + 1, write_variant(implicit))
    nothing = np.zeros((shape.n_items, 0))
    lists, empty = RatedItems(indptr, items), np.zeros((shape.n_users, 0))
    given = TrainingInput("vb", update_shape, nothing, lists, masked, empty, empty)
    per_user = shape.n_ratings / shape.n_users
    stream = np.random.default_rng(0)
    context = SolverContext(shape.n_items, 4.0, 1.0, 0.0, per_user, nothing, nothing, stream)
    counts = lists.counts(shape.n_items)
    return EngineCase("synthetic", given, [VbServer(update_shape, context)], counts, rounds)


def to_file(path: Path, case: EngineCase) -> None:
    """Write a case; its servers start where they are."""
    given, (cohort,) = case.given, case.given.cohorts
    context, unrated = case.halves[0].context, case.halves[0].unrated
    arrays = {
        "sizes": np.array((context.n_items, case.rounds)),
        "numbers": np.array(
            (context.span, context.lowest, context.level, context.ratings_per_user)
        ),
        "regressors": context.regressors,
        "server_design": context.design,
        "unrated": unrated,
        "form": np.array((str(given.update_shape.rank), _variant(given.update_shape))),
        "design": given.design,
        "indptr": given.lists.indptr,
        "items": given.lists.items,
        "masked": given.masked_ratings,
        "profiles": given.profiles,
        "lines": given.lines,
        "cohort": np.array((cohort.bound, cohort.scale, cohort.total_bound, cohort.total_scale)),
        "left_out": np.zeros(0, bool) if cohort.left_out is None else cohort.left_out,
        "n_raters": case.n_raters,
    }
    for number, half in enumerate(case.halves):
        arrays |= {f"half{number}/{name}": value for name, value in half.state().items()}
    if case.tested is not None:
        arrays |= {f"tested/{name}": value for name, value in vars(case.tested).items()}
    with path.open("wb") as file:  # as it is called, without another ending
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def from_file(path: Path) -> EngineCase:
    """Read what `to_file` wrote; `DataError` where it did not."""
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        rank, variant = found["form"].tolist()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} must be a case that fedmmf bench engines --pack wrote; it cannot be read "
            f"({error}). Pack it again"
        ) from None
    update_shape = VbShape.of(int(rank), variant)
    n_items, rounds = found["sizes"].tolist()
    left_out = found["left_out"] if found["left_out"].size else None
    bound, scale, total_bound, total_scale = found["cohort"].tolist()
    cohort = Cohort(None, left_out, bound, scale, np.inf, total_bound, total_scale)
    lists = RatedItems(found["indptr"], found["items"])
    known = (found["profiles"], found["lines"])
    given = TrainingInput(
        "vb", update_shape, found["design"], lists, found["masked"], *known, cohorts=(cohort,)
    )
    span, lowest, level, per_user = found["numbers"].tolist()
    columns = (found["regressors"], found["server_design"])
    stream = np.random.default_rng(0)
    context = SolverContext(n_items, span, lowest, level, per_user, *columns, stream)
    halves = list(_halves(update_shape, context, found))
    tested = TestedPairs(**part_of(found, "tested/")) if "tested/users" in found else None
    return EngineCase(path.stem, given, halves, found["n_raters"], rounds, tested)


def _halves(
    update_shape: VbShape, context: SolverContext, found: dict[str, Array]
) -> Iterator[VbServer]:
    number = 0
    while f"half{number}/mean" in found:
        half = VbServer(update_shape, context, tuple(found["unrated"].tolist()))
        half.restore(part_of(found, f"half{number}/"))
        yield half
        number += 1


def _variant(update_shape: Any) -> str:
    sizes = (
        update_shape.n_profile,
        update_shape.n_design,
        update_shape.n_levels,
        update_shape.n_joint,
    )
    return write_variant(update_shape.implicit, *sizes)


Run = tuple[Array, Array]  # q_i and what is known of items, p_u (n_items, n_own), (n_users, n_own)


def scored(case: EngineCase, tested: TestedPairs, runs: list[Run]) -> tuple[str, float]:
    """What the mean of some runs is worth: an RMSE, or, where items are ranked, an nDCG."""
    if case.given.update_shape.n_design:
        return "ndcg_at_10", ndcg_at_10(case, tested, runs)
    pairs = [np.einsum("nk,nk->n", q[tested.items], p[tested.users]) for q, p in runs]
    predicted = np.clip(np.mean(pairs, axis=0) + tested.mask, *tested.scale)
    return "rmse", float(np.sqrt(np.mean(np.square(tested.ratings - predicted))))


def ndcg_at_10(case: EngineCase, tested: TestedPairs, runs: list[Run]) -> float:
    """Of users with relevant items, ratings in the upper quarter of the scale, in the test part."""
    given, (low, high) = case.given, tested.scale.tolist()
    scores = given.lines @ given.design.T + np.mean([p @ q.T for q, p in runs], axis=0)
    scores[given.lists.users, given.lists.items] = -np.inf
    is_relevant = np.zeros(scores.shape, bool)
    is_good = tested.ratings >= low + 0.75 * (high - low)
    is_relevant[tested.users[is_good], tested.items[is_good]] = True
    best = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    gains = 1.0 / np.log2(np.arange(2, 12))
    found = (np.take_along_axis(is_relevant, best, axis=1) * gains).sum(axis=1)
    n_relevant = is_relevant.sum(axis=1)
    ideal = np.concatenate(([0.0], np.cumsum(gains)))[np.minimum(n_relevant, 10)]
    return float(np.mean(found[n_relevant > 0] / ideal[n_relevant > 0]))
