"""One training run in simulation: held-out part, masks, rounds, checkpoints."""

import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmmf import checkpoint, coordinator, simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import Server
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError
from fedmmf.factorization.contract import Public
from fedmmf.masks import FittedMasks
from fedmmf.masks.crowd import Compiled
from fedmmf.sharing import who_shares_in_clear
from fedmmf.simulation import Crowd
from fedmmf.traffic import Traffic

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is."""

CHECKPOINT_SECONDS = 10.0


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class Member:
    """One run of an ensemble."""

    public: Public
    user_factors: Array  # (n_users, k)
    history: Array  # (rounds,) held-out RMSE
    best_round: int  # the last, where nothing was held out


@dataclass(frozen=True, eq=False)
class Trained:
    """What training leaves behind."""

    masks: FittedMasks
    features: Array  # (n_items, d)
    in_clear: Array  # (n_users,) bool, who shared updates in the clear
    members: list[Member]
    mask_seconds: float
    train_seconds: float
    traffic: Traffic | None = None  # as counted in a real run


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Masked ratings, ready for the rounds; the members of an ensemble share them."""

    training: Ratings
    features: Array
    masks: FittedMasks
    in_clear: Array  # (n_users,) bool
    held_out: Ratings | None
    held_out_mask: Array | None


def train(
    ratings: Ratings,
    settings: Settings,
    *,
    progress: Progress = no_progress,
    checkpoint_file: Path | None = None,
) -> Trained:
    """Fit masks and factors; continue from `checkpoint_file` where it exists."""
    began = time.perf_counter()
    prepared = _prepare(ratings, settings, progress)
    keeper = None if checkpoint_file is None else _Keeper(checkpoint_file, ratings, settings)
    masked = time.perf_counter()
    members = _train_members(ratings, prepared, settings, progress, keeper)
    if keeper is not None:
        keeper.remove()
    times = (masked - began, time.perf_counter() - masked)
    return Trained(prepared.masks, prepared.features, prepared.in_clear, members, *times)


def _prepare(ratings: Ratings, settings: Settings, progress: Progress) -> _Prepared:
    is_held_out = simulation.choose_held_out(ratings, settings)
    has_held_out = bool(is_held_out.any())
    training = ratings.select(~is_held_out) if has_held_out else ratings
    features = simulation.feature_matrix(training, settings)
    done = 0

    def users_done(n_users: int) -> None:
        nonlocal done
        done += n_users
        progress("masks", done, ratings.n_users)

    masks = simulation.fit_all_masks(training, features, settings, users_done)
    in_clear = who_shares_in_clear(training, settings, masks)
    if not has_held_out:
        return _Prepared(training, features, masks, in_clear, None, None)
    held_out = ratings.select(is_held_out)
    mask = masks.predict(held_out.by_user, held_out.item_codes, features, Compiled())
    return _Prepared(training, features, masks, in_clear, held_out, mask)


def _train_members(
    ratings: Ratings,
    prepared: _Prepared,
    settings: Settings,
    progress: Progress,
    keeper: "_Keeper | None",
) -> list[Member]:
    members = [] if keeper is None else keeper.finished()
    for number in range(len(members), settings.ensemble):
        server = simulation.make_server(ratings, settings, number)
        of = (prepared.training, settings, prepared.masks, server.result.factors)
        rest = (prepared.in_clear, prepared.held_out, prepared.held_out_mask)
        crowd = simulation.make_crowd(*of, *rest, member=number)
        members.append(_train_member(server, crowd, members, progress, keeper))
    return members


def _train_member(
    server: Server,
    crowd: Crowd,
    finished: list[Member],
    progress: Progress,
    keeper: "_Keeper | None",
) -> Member:
    stage = f"rounds of run {len(finished) + 1}" if finished else "rounds"

    def after_round(server: Server) -> None:
        if keeper is not None:
            keeper.keep(server, crowd, finished)
        progress(stage, server.round, server.rounds)

    if keeper is not None:
        keeper.resume(server, crowd)
    coordinator.run(server, crowd, after_round)
    best_round = server.best_round or server.round
    user_factors = crowd.user_factors.copy()
    return Member(server.result, user_factors, np.array(server.history), best_round)


def members_to_arrays(members: Iterable[Member]) -> dict[str, Array]:
    """Members of an ensemble as named arrays, for a file."""
    arrays: dict[str, Array] = {}
    for number, member in enumerate(members):
        sizes = np.array((member.public.factors, member.best_round))
        arrays |= {
            f"member{number}/sizes": sizes,
            f"member{number}/parameters": member.public.parameters,
            f"member{number}/item_rows": member.public.item_rows,
            f"member{number}/user_factors": member.user_factors,
            f"member{number}/history": member.history,
        }
    return arrays


def members_from_arrays(arrays: dict[str, Array]) -> list[Member]:
    """Read back what `members_to_arrays` gave."""
    members: list[Member] = []
    while f"member{len(members)}/sizes" in arrays:
        part = coordinator.part_of(arrays, f"member{len(members)}/")
        factors, best_round = part["sizes"].tolist()
        public = Public(factors, part["parameters"], part["item_rows"])
        members.append(Member(public, part["user_factors"], part["history"], best_round))
    return members


class _Keeper:
    """Writes checkpoints now and then, and finds its way back."""

    def __init__(self, path: Path, ratings: Ratings, settings: Settings) -> None:
        self._path = path
        self._meta = {
            "kind": "checkpoint",
            "settings": settings.model_dump(),
            "ratings": fingerprint(ratings),
        }
        self._last = time.monotonic()
        self._found: dict[str, Array] = {}
        if path.exists():
            self._found, meta = checkpoint.load(path, "checkpoint")
            if meta != self._meta:
                raise CheckpointError(
                    f"{path} belongs to a run with other settings or ratings; "
                    "delete it or name another file"
                )

    def finished(self) -> list[Member]:
        """Members of the ensemble that the checkpoint already holds."""
        return members_from_arrays(self._found)

    def resume(self, server: Server, crowd: Crowd) -> None:
        """Continue the member that was running when the checkpoint was written, if any."""
        if self._found:
            server.restore(self._found)
            crowd.restore(self._found)
            self._found = {}

    def keep(self, server: Server, crowd: Crowd, finished: list[Member]) -> None:
        """Write a checkpoint if the last one is old enough."""
        if time.monotonic() - self._last >= CHECKPOINT_SECONDS:
            state = server.state() | crowd.state() | members_to_arrays(finished)
            checkpoint.save(self._path, state, self._meta)
            self._last = time.monotonic()

    def remove(self) -> None:
        """Delete the checkpoint of a finished run."""
        self._path.unlink(missing_ok=True)


def fingerprint(ratings: Ratings) -> str:
    """A hash of the ratings, so that a checkpoint is continued on the same ones only."""
    digest = hashlib.sha256()
    for column in (ratings.user_codes, ratings.item_codes, ratings.values):
        digest.update(column.tobytes())
    return digest.hexdigest()
