"""A cache of the results of long runs: a run that was killed continues where it was."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fedmmf
import fedmmf_experiments
from fedmmf.errors import CheckpointError
from fedmmf.storage.atomic import SHARED, make_folder, write


@dataclass(frozen=True)
class ResultCache:
    """A folder with one file for each result. Without a folder, nothing is stored."""

    folder: Path | None = None

    def once(
        self,
        name: Sequence[str],
        facts: Mapping[str, Any],
        compute: Callable[[], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the stored result of the same facts; else compute and store it."""
        if self.folder is None:
            return compute()
        path = path_in(self.folder, name)
        known = json.loads(json.dumps({**facts, "name": list(name), "code": code_print()}))
        stored = _read(path) if path.exists() else {}
        if stored.get("facts") != known or not isinstance(stored.get("found"), dict):
            stored = {"facts": known, "found": compute()}
            write_text(path, json.dumps(stored, indent=2) + "\n")
        found: dict[str, Any] = json.loads(json.dumps(stored["found"]))
        return found


@cache
def code_print() -> str:
    """A hash of the source of both packages: what another version found is not taken for its own.

    Any edit counts, since nothing tells which ones matter.
    """
    digest = hashlib.sha256()
    for package in (fedmmf, fedmmf_experiments):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def path_in(folder: Path, name: Sequence[str]) -> Path:
    """Return the path of a result's file."""
    parts = [re.sub(r"[^\w.,=+ ()'-]+", "-", part).strip(".") or "-" for part in name]
    return folder.joinpath("runs", *parts[:-1], f"{parts[-1]}.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Delete it.") from None
    return stored if isinstance(stored, dict) else {}


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; a failure raises `CheckpointError`."""
    try:
        make_folder(path.parent)
        write(path, text.encode(), SHARED)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}") from None
