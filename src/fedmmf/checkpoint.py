"""Arrays and their description in one file, written whole or not at all."""

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import CheckpointError

_META = "meta.json"
# What numpy, zip and JSON raise for files that somebody damaged or made up.
_UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    MemoryError,
    RecursionError,
    zipfile.BadZipFile,
)


def save(path: Path, arrays: Mapping[str, Array], meta: Mapping[str, Any]) -> None:
    """Write arrays and a JSON description; a crash leaves the old file as it was."""
    partial = path.with_name(path.name + ".part")
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **{_META: text}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}") from None


def load(path: Path, kind: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `save` wrote; `kind` must be the description's own."""
    if not path.exists():
        raise CheckpointError(f"there is no {kind} at {path}")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path} is not a fedmmf {kind}")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(arrays.pop(_META).tobytes())
        if not isinstance(meta, dict):
            raise ValueError("its description is no JSON object")
    except _UNREADABLE as error:
        raise CheckpointError(f"{path} is not a fedmmf {kind}: {error}") from None
    if meta.get("kind") != kind:
        raise CheckpointError(f"{path} must be a fedmmf {kind}; it is a {meta.get('kind')!r}")
    return arrays, meta
