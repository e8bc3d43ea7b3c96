"""One training run in simulation: masks, rounds, checkpoints."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from fedmmf.aggregation.simulated import Cost
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError, WireError
from fedmmf.federation.local import Member
from fedmmf.masks import FittedMasks
from fedmmf.masks.fitting import resolve_mask
from fedmmf.progress import Report, quiet
from fedmmf.server import Coordinator
from fedmmf.server import train as train_rounds
from fedmmf.server.rounds import divergence
from fedmmf.settings import Settings
from fedmmf.settings.groups import Scope, marked
from fedmmf.simulation.parties import SimulatedParties
from fedmmf.simulation.prepared import Prepared, prepare
from fedmmf.solvers.contract import Broadcast, part_of
from fedmmf.storage import checkpoints
from fedmmf.storage.checkpoints import Checkpoint
from fedmmf.wire import Layout

CHECKPOINT_SECONDS = 10.0  # between two files
HOLD_SECONDS = 0.5  # between two copies in memory: the work that an interrupt may cost


@dataclass(frozen=True, eq=False)
class Trained:
    """The result of a training run with all its members."""

    masks: FittedMasks
    features: Array  # (n_items, d)
    layout: Layout  # which items are summed, and the population statistics
    variant: str  # of the solver
    in_clear: Array  # (n_users,) bool, who shared updates in the clear
    members: list[Member]
    mask_seconds: float
    train_seconds: float
    counted_cost: Cost | None  # of a round among real parties; a simulation sends nothing
    n_left_out: int  # items with too few raters for a sum that hides summands


def train(
    ratings: Ratings,
    settings: Settings,
    *,
    progress: Report = quiet,
    checkpoint_file: Path | Checkpoint | None = None,
) -> Trained:
    """Fit masks and factors; continue from `checkpoint_file` where it exists.

    A file given by its path is deleted in the end; a `Checkpoint` is left to the caller.
    """
    began = time.perf_counter()
    kept = Checkpoint(checkpoint_file) if isinstance(checkpoint_file, Path) else checkpoint_file
    settings = resolve_mask(settings, has_features=ratings.has_features)
    saved = None if kept is None else _RunCheckpoint(kept, ratings, settings)
    run = prepare(ratings, settings, progress)
    masked = time.perf_counter()
    members = _train_members(run, progress, saved)
    if saved is not None:
        saved.finish(members, is_last_use=kept is not checkpoint_file)
    times = (masked - began, time.perf_counter() - masked)
    found = (run.masks, run.features.seen, run.layout, run.plan.variant, run.in_clear, members)
    return Trained(*found, *times, None, run.n_left_out)


def _train_members(run: Prepared, progress: Report, saved: "_RunCheckpoint | None") -> list[Member]:
    members = [] if saved is None else saved.finished(run)
    for number in range(len(members), run.settings.ensemble):
        coordinator = run.coordinator(number)
        parties = run.parties(number)
        stage = f"rounds of run {number + 1}" if number else "rounds"

        def after_round(
            coordinator: Coordinator, parties: SimulatedParties = parties, stage: str = stage
        ) -> None:
            if saved is not None:
                saved.keep(coordinator, parties, members)
            progress(stage, coordinator.n_done, coordinator.rounds)

        if saved is not None:
            saved.resume(coordinator, parties)
        _on_device(run, coordinator, parties, after_round)
        # The server's matrices are small: threads of BLAS would mostly wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            train_rounds(coordinator, parties, after_round)
        members.append(Member.of(coordinator, parties.user_factors.copy()))
    return members


def _on_device(
    run: Prepared,
    coordinator: Coordinator,
    parties: SimulatedParties,
    after_round: Callable[[Coordinator], None],
) -> None:
    """Run rounds on the engine's device, where it can; hand them to the coordinator at times."""
    try:
        rounds = parties.rounds(coordinator.half)
    except np.linalg.LinAlgError as error:
        raise divergence(run.settings, coordinator.round + 1, error) from error
    n_new, looked = 0, time.monotonic()
    while rounds is not None and not coordinator.is_finished:
        n_new += 1
        is_last = coordinator.n_done + n_new == coordinator.rounds
        try:
            rounds.one_round(coordinator.round + n_new)
            if not is_last and time.monotonic() - looked < HOLD_SECONDS:
                continue
            coordinator.skip_ahead(n_new, rounds.state())
        except (WireError, np.linalg.LinAlgError) as error:
            raise divergence(run.settings, coordinator.round + n_new, error) from error
        parties.take(rounds)
        after_round(coordinator)
        n_new, looked = 0, time.monotonic()


def members_to_arrays(members: Iterable[Member]) -> dict[str, Array]:
    """Members of an ensemble as named arrays, for a file."""
    arrays: dict[str, Array] = {}
    for number, member in enumerate(members):
        sizes = np.array((member.broadcast.rank, member.best_round))
        arrays |= {
            f"member{number}/sizes": sizes,
            f"member{number}/parameters": member.broadcast.parameters,
            f"member{number}/item_rows": member.broadcast.item_rows,
            f"member{number}/user_factors": member.user_factors,
            f"member{number}/history": member.history,
        }
        if member.broadcast.newcomers is not None:
            arrays[f"member{number}/newcomers"] = member.broadcast.newcomers
    return arrays


def members_from_arrays(arrays: dict[str, Array]) -> list[Member]:
    """Read back what `members_to_arrays` gave."""
    members: list[Member] = []
    while f"member{len(members)}/sizes" in arrays:
        part = part_of(arrays, f"member{len(members)}/")
        rank, best_round = part["sizes"].tolist()
        public = (part["parameters"], part["item_rows"], part.get("newcomers"))
        broadcast = Broadcast(rank, *public)
        members.append(Member(broadcast, part["user_factors"], part["history"], best_round))
    return members


def _is_sound(array: Array) -> bool:
    """Whether numbers are finite, and counts not negative."""
    return bool((array >= 0).all() if array.dtype.kind == "i" else np.isfinite(array).all())


class _RunCheckpoint:
    """Saves a simulation's state now and then, and resumes from it."""

    def __init__(self, kept: Checkpoint, ratings: Ratings, settings: Settings) -> None:
        self._kept = kept
        self._meta = {
            "kind": "checkpoint",
            "settings": {
                name: value
                for name, value in settings.to_dict().items()
                if name not in marked(Scope.ONLY_WHERE)
            },
            "ratings": ratings.fingerprint,
        }
        self._written, self._held = time.monotonic(), -math.inf
        self._found: dict[str, Array] = {}
        if kept.path is not None and kept.path.exists():
            self._found, meta = checkpoints.load(kept.path, "checkpoint")
            if meta != self._meta:
                raise CheckpointError(
                    f"{kept.path} belongs to a run with other settings or ratings; "
                    "delete it or name another file"
                )

    def finished(self, run: Prepared) -> list[Member]:
        """Members of the ensemble that the checkpoint already holds."""
        found = {name.split("/")[0] for name in self._found if name.startswith("member")}
        if not found:
            return []
        coordinator = run.coordinator()
        parties = run.parties()
        if parties.n_newcomer:
            coordinator.newcomers = np.zeros(parties.n_newcomer)
        fresh = Member.of(coordinator, parties.user_factors)
        self._require_like(members_to_arrays([fresh] * len(found)))
        members = members_from_arrays(self._found)
        ranks = {member.broadcast.rank for member in members}
        is_listed = all(member.best_round <= len(member.history) for member in members)
        if len(found) > run.settings.ensemble or ranks != {fresh.broadcast.rank} or not is_listed:
            raise self._damaged("its finished runs")
        return members

    def resume(self, coordinator: Coordinator, parties: SimulatedParties) -> None:
        """Continue the member that was running when the checkpoint was written, if any."""
        if self._found:
            best = coordinator.result
            fresh = {"best/rows": best.item_rows, "best/parameters": best.parameters}
            fresh = fresh if fresh.keys() & self._found.keys() else {}  # nothing may be held out
            self._require_like(coordinator.state() | parties.state() | fresh)
            if self._found["n_done"] > len(self._found["history"]):
                raise self._damaged("n_done")
            coordinator.restore(self._found)
            parties.restore(self._found)
            self._found = {}

    def _require_like(self, fresh: dict[str, Array]) -> None:
        """Refuse arrays of other types or shapes, which would crash compiled kernels."""
        for name, like in fresh.items():
            array = self._found.get(name)
            if array is None or array.dtype != like.dtype or array.ndim != like.ndim:
                raise self._damaged(name)
            is_history = name.endswith("history")  # grows, and has NaN where nothing was held out
            if not is_history and (array.shape != like.shape or not _is_sound(array)):
                raise self._damaged(name)

    def _damaged(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._kept.path} must hold what this run was when it was written; {what} cannot be "
            "that. Somebody changed the file: delete it, and training begins anew"
        )

    def keep(
        self, coordinator: Coordinator, parties: SimulatedParties, finished: list[Member]
    ) -> None:
        """Hold the state in memory, and write it to its file, each if the last time is long ago."""
        now = time.monotonic()
        is_due = self._kept.path is not None and now - self._written >= CHECKPOINT_SECONDS
        if is_due or now - self._held >= HOLD_SECONDS:
            state = coordinator.state() | parties.state() | members_to_arrays(finished)
            reached = f"round {coordinator.n_done} of {coordinator.rounds}"
            self._kept.hold(state, self._meta, reached)
            self._held = time.monotonic()
        if is_due:
            self._kept.write()
            self._written = time.monotonic()

    def finish(self, members: list[Member], *, is_last_use: bool) -> None:
        """End after all rounds: keep the members, or delete a file that nobody will need."""
        if is_last_use:
            self._kept.remove()
            return
        self._kept.hold(members_to_arrays(members), self._meta, "the last round")
        self._kept.is_finished = True
        self._kept.write()
