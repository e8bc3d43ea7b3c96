"""What the server keeps on disk: where training is, what was begun, who was in which sum.

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
        """Where training is; None: it has not begun."""
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
        """Write where training is; whole, or as before."""
        checkpoints.save(self._run, arrays, {"kind": "run", **self._identity, **meta})

    def begin_attempt(self, number: int) -> None:
        """Write down that a round of this number is about to begin."""
        _write(self._attempt, str(number).encode())

    @property
    def attempt(self) -> int:
        """The last round that was begun; 0: none."""
        return int(self._attempt.read_text()) if self._attempt.exists() else 0

    def note_round(self, about: Mapping[str, Any]) -> None:
        """Add a line on a finished round, before the checkpoint that has it."""
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
        """Lines on finished rounds."""
        if self._rounds.exists():
            yield from map(json.loads, self._rounds.read_text().splitlines())

    def _forget_rounds_after(self, last: int) -> None:
        """A line whose checkpoint was never written is of a round that will be made again."""
        lines = self._rounds.read_text().splitlines() if self._rounds.exists() else []
        kept = [line for line in lines if _is_whole(line) and json.loads(line)["round"] <= last]
        if kept != lines:
            _write(self._rounds, "".join(line + "\n" for line in kept).encode())

    @property
    def model(self) -> bytes:
        """The invitation and the final factors, as sites read them; empty: not finished."""
        return self._model.read_bytes() if self._model.exists() else b""

    def save_model(self, parcel: bytes) -> None:
        """Keep the result."""
        _write(self._model, parcel)

    def save_evaluation(self, model: bytes, found: Evaluated) -> None:
        """Keep what came of `federation evaluate`, which is made once for a model."""
        kept = {"model": model.hex(), "found": found.model_dump()}
        _write(self._folder / "evaluation.json", json.dumps(kept).encode())

    def evaluation(self, model: bytes) -> Evaluated | None:
        """What was found of a model; None: nothing yet."""
        path = self._folder / "evaluation.json"
        try:
            kept = json.loads(path.read_bytes()) if path.exists() else {}
            is_same = kept.get("model") == model.hex()
            return Evaluated.model_validate_json(json.dumps(kept["found"])) if is_same else None
        except (OSError, ValueError, AttributeError, KeyError):
            return None

    def save_status(self, status: FederationStatus) -> None:
        """Write the picture for whoever asks while no server runs."""
        data = status.model_dump_json().encode()
        _write(self._folder / "status.json", data, SHARED, is_synced=False)

    def status(self) -> FederationStatus | None:
        """The last picture that was kept; None: there is none that can be read."""
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
