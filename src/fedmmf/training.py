"""One training run in simulation: held-out part, masks, rounds, checkpoints."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedmmf import checkpoint, coordinator, simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import Server
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError
from fedmmf.masks import FittedMasks
from fedmmf.masks.crowd import Compiled
from fedmmf.simulation import Crowd

Progress = Callable[[str, int, int], None]
"""Called with a stage's name, how much of it is done, and how much there is."""

CHECKPOINT_SECONDS = 10.0


def no_progress(stage: str, done: int, total: int) -> None:
    """Show nothing."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What a run leaves behind."""

    masks: FittedMasks
    server: Server
    user_factors: Array  # (n_users, k)
    mask_seconds: float
    train_seconds: float


def train(
    ratings: Ratings,
    settings: Settings,
    *,
    progress: Progress = no_progress,
    checkpoint_file: Path | None = None,
) -> Trained:
    """Fit masks and factors; continue from `checkpoint_file` where it exists."""
    began = time.perf_counter()
    crowd, masks = _prepare(ratings, settings, progress)
    server = simulation.make_server(ratings, settings)
    keeper = None if checkpoint_file is None else _Keeper(checkpoint_file, ratings, settings)
    masked = time.perf_counter()

    def after_round(server: Server) -> None:
        if keeper is not None:
            keeper.keep(server, crowd)
        progress("rounds", server.round, server.rounds)

    if keeper is not None:
        keeper.resume(server, crowd)
    coordinator.run(server, crowd, after_round)
    if keeper is not None:
        keeper.remove()
    ended = time.perf_counter()
    return Trained(masks, server, crowd.user_factors, masked - began, ended - masked)


def _prepare(ratings: Ratings, settings: Settings, progress: Progress) -> tuple[Crowd, FittedMasks]:
    is_held_out = simulation.choose_held_out(ratings, settings)
    has_held_out = bool(is_held_out.any())
    training = ratings.select(~is_held_out) if has_held_out else ratings
    done = 0

    def users_done(n_users: int) -> None:
        nonlocal done
        done = min(done + n_users, ratings.n_users)
        progress("masks", done, ratings.n_users)

    masks = simulation.fit_all_masks(training, settings, users_done)
    masked = masks.masked_ratings(settings.cross_fit)
    if not has_held_out:
        return Crowd(training, masked, settings.factors), masks
    held_out = ratings.select(is_held_out)
    features = simulation.feature_matrix(held_out)
    mask = masks.predict(held_out.by_user, held_out.item_codes, features, Compiled())
    return Crowd(training, masked, settings.factors, held_out, mask), masks


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

    def keep(self, server: Server, crowd: Crowd) -> None:
        """Write a checkpoint if the last one is old enough."""
        if time.monotonic() - self._last >= CHECKPOINT_SECONDS:
            checkpoint.save(self._path, server.state() | crowd.state(), self._meta)
            self._last = time.monotonic()

    def resume(self, server: Server, crowd: Crowd) -> None:
        """Continue from the checkpoint, if there is one of this run."""
        if not self._path.exists():
            return
        state, meta = checkpoint.load(self._path, "checkpoint")
        if meta != self._meta:
            raise CheckpointError(
                f"{self._path} belongs to a run with other settings or ratings; "
                "delete it or name another file"
            )
        server.restore(state)
        crowd.restore(state)

    def remove(self) -> None:
        """Delete the checkpoint of a finished run."""
        self._path.unlink(missing_ok=True)


def fingerprint(ratings: Ratings) -> str:
    """A hash of the ratings, so that a checkpoint is continued on the same ones only."""
    digest = hashlib.sha256()
    for column in (ratings.user_codes, ratings.item_codes, ratings.values):
        digest.update(column.tobytes())
    return digest.hexdigest()
