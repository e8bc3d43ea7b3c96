"""Arrays and their description in one file, written atomically and uncompressed."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError
from fedmmf.storage.atomic import OWNER_ONLY, SHARED, make_folder, writing

_META = "meta.json"


class Checkpoint:
    """The newest state of a training: in memory, and in a file where one is named.

    Whoever makes one decides when its file may go; see `remove`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.reached = ""  # how far the training was, for people
        self.is_finished = False
        self._state: tuple[dict[str, Array], dict[str, Any]] | None = None

    @property
    def has_state(self) -> bool:
        """Whether there is anything to write."""
        return self._state is not None

    def hold(self, arrays: Mapping[str, Array], meta: dict[str, Any], reached: str) -> None:
        """Take a copy of a state; the training goes on in its own arrays."""
        self._state = ({name: np.array(value) for name, value in arrays.items()}, meta)
        self.reached = reached

    def write(self, path: Path | None = None) -> None:
        """Write the newest state, if there is one: to this file, or else to its own."""
        target = path or self.path
        if target is not None and self._state is not None:
            save(target, *self._state)

    def remove(self) -> None:
        """Delete the file: nobody needs it any more."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def save(
    path: Path, arrays: Mapping[str, Array], meta: Mapping[str, Any], *, is_private: bool = True
) -> None:
    """Write arrays and a JSON description; a crash or a full disk leaves the old file as it was.

    A private file is for its owner alone; a public one is for whom the umask has it.
    """
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    try:
        make_folder(path.parent)
        rights = OWNER_ONLY if is_private else SHARED
        with writing(path, rights) as partial, partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_META: text}, **arrays)
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or name "
            "another file"
        ) from None


def _refuse_bomb(path: Path) -> None:
    """Refuse a file that unpacks to more than its size: `save` compresses nothing."""
    with zipfile.ZipFile(path) as archive:  # which reads no more of a member than it says here
        n_bytes = sum(member.file_size for member in archive.infolist())
    size = path.stat().st_size
    if n_bytes > size:
        raise ValueError(
            f"it unpacks into {n_bytes:,} bytes and has {size:,} itself, and files of ours are "
            "not compressed. Get it anew"
        )


# What to do with a file of another kind, where a model is due
_INSTEAD = {
    "checkpoint": "That is a training that was interrupted. The same `fedmmf train` with "
    "--checkpoint and this file goes on from there, and --save writes the model",
    "result": "That is what one site of a federation has learned. `fedmmf federation recommend DIR "
    "--site NAME --users FILE` makes lists from it; for other tools, numpy.load reads its "
    "user_ids, user_factors and item_rows",
}


def load(path: Path, kind: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `save` wrote; `kind` must be the description's own."""
    if not path.exists():
        raise CheckpointError(f"there is no {kind} at {path}")
    if path.is_dir():
        raise CheckpointError(f"a fedmmf {kind} is a file; {path} is a folder. Name a file in it")
    try:
        if not zipfile.is_zipfile(path):
            raise ValueError("it is another kind of file")
        _refuse_bomb(path)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop(_META).tobytes())
        if not isinstance(meta, dict):
            raise ValueError("its description is no JSON object")
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("it holds something else than arrays")
    except Exception as error:  # numpy, zip and JSON have no list of what made-up files raise
        raise CheckpointError(f"{path} is not a fedmmf {kind}: {error}") from None
    if (found := meta.get("kind")) != kind:
        instead = _INSTEAD.get(str(found), "") if kind == "model" else ""
        hint = f". {instead}" if instead else ""
        raise CheckpointError(f"{path} must be a fedmmf {kind}; it is a {found!r}{hint}")
    return arrays, meta
