"""The server's files: the checkpoint, the round numbers in use, and who was in which sum.

Written so that a server that is killed at any moment goes on from the last finished round: the
number of a round is written down before anybody hears of it, and never used again.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError
from fedmmf.federation.status import Evaluated, FederationStatus
from fedmmf.storage import atomic, checkpoints
from fedmmf.storage.atomic import OWNER_ONLY, SHARED


class RunStore:
    """Files in the server's own folder.

    Args:
        folder: for the server alone.
        identity: digests of the charter and the catalogue; a run belongs to both.
    """

    def __init__(self, folder: Path, identity: Mapping[str, str]) -> None:
        self._folder, self._identity = folder, dict(identity)
        self._run, self._attempt = folder / "run.npz", folder / "attempt"
        self._rounds, self._model = folder / "rounds.jsonl", folder / "model.bin"

    def load(self) -> tuple[dict[str, Array], dict[str, Any]] | None:
        """Read the checkpoint; None: training has not begun."""
        if not self._run.exists():
            return None
        arrays, meta = checkpoints.load(self._run, "run")
        if {name: meta.get(name) for name in self._identity} != self._identity:
            raise CheckpointError(
                f"{self._run} belongs to a run with another charter or catalogue. Go back to "
                f"those, or move {self._folder} away to begin anew"
            )
        self._forget_rounds_after(int(meta["round"]))
        return arrays, meta

    def save(self, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
        """Write the checkpoint to disk atomically."""
        checkpoints.save(self._run, arrays, {"kind": "run", **self._identity, **meta})

    def begin_attempt(self, number: int) -> None:
        """Write the number of a round before it begins, so that it is never used again."""
        _write(self._attempt, str(number).encode())

    @property
    def attempt(self) -> int:
        """Number of the last round that was begun; 0: none."""
        return int(self._attempt.read_text()) if self._attempt.exists() else 0

    def note_round(self, about: Mapping[str, Any]) -> None:
        """Append a line on a finished round, before the checkpoint that includes it."""
        is_new = not self._rounds.exists()
        try:
            with self._rounds.open("a") as file:
                file.write(json.dumps(about) + "\n")
                file.flush()
                os.fsync(file.fileno())
            if is_new:
                atomic.sync_folder(self._folder)
        except OSError as error:
            raise _unwritable(self._rounds, error) from None

    def rounds(self) -> Iterator[dict[str, Any]]:
        """Yield the record of each finished round, oldest first."""
        if self._rounds.exists():
            yield from map(json.loads, self._rounds.read_text().splitlines())

    def _forget_rounds_after(self, last: int) -> None:
        """Delete lines of rounds without a checkpoint, since these will be run again."""
        lines = self._rounds.read_text().splitlines() if self._rounds.exists() else []
        kept = [line for line in lines if _is_whole(line) and json.loads(line)["round"] <= last]
        if kept != lines:
            _write(self._rounds, "".join(line + "\n" for line in kept).encode())

    @property
    def model(self) -> bytes:
        """The invitation and the final factors, as sites read them; empty: not finished."""
        return self._model.read_bytes() if self._model.exists() else b""

    def save_model(self, parcel: bytes) -> None:
        """Write the finished model: the invitation and the final factors."""
        _write(self._model, parcel)

    def save_evaluation(self, model: bytes, found: Evaluated) -> None:
        """Save the result of `federation evaluate`, which runs once for a model."""
        kept = {"model": model.hex(), "found": found.model_dump()}
        _write(self._folder / "evaluation.json", json.dumps(kept).encode())

    def evaluation(self, model: bytes) -> Evaluated | None:
        """Return the saved errors of a model; None: there are none yet."""
        path = self._folder / "evaluation.json"
        try:
            kept = json.loads(path.read_bytes()) if path.exists() else {}
            is_same = kept.get("model") == model.hex()
            return Evaluated.model_validate_json(json.dumps(kept["found"])) if is_same else None
        except (OSError, ValueError, AttributeError, KeyError):
            return None

    def save_status(self, status: FederationStatus) -> None:
        """Write the status, for readers while no server runs."""
        data = status.model_dump_json().encode()
        _write(self._folder / "status.json", data, SHARED, is_synced=False)

    def status(self) -> FederationStatus | None:
        """The last saved status; None: there is none that can be read."""
        try:
            return FederationStatus.model_validate_json((self._folder / "status.json").read_bytes())
        except (OSError, ValidationError):
            return None


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _write(path: Path, data: bytes, rights: int = OWNER_ONLY, *, is_synced: bool = True) -> None:
    """Replace a file atomically; an error says which file and what to do."""
    try:
        atomic.write(path, data, rights, is_synced=is_synced)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} cannot be written: {error.strerror}. Make room and start again")
