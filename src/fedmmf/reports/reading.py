"""From what commands printed to what a report needs."""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedmmf.errors import DataError
from fedmmf.reports.shapes import Run

PARTS = ("train", "audit")  # of a folder: train.json and audit.json
EXPECTED = "what `fedmmf train --json`, `demo --json` or `audit --json` printed"


def read_run(path: Path) -> dict[str, Any]:
    """Read a run from a JSON file, from standard input (`-`), or from a folder.

    A folder holds `train.json`, `audit.json` or both; each becomes a key of the answer.

    Raises:
        DataError: nothing is there, or it is not what the commands print.
    """
    if str(path) == "-":
        return _parsed(sys.stdin.read(), "standard input")
    if not path.is_dir():
        return _parsed(_text(path), str(path))
    files = {part: path / f"{part}.json" for part in PARTS}
    found = {
        part: _parsed(_text(file), str(file)) for part, file in files.items() if file.is_file()
    }
    if not found:
        raise DataError(f"{path} must hold train.json or audit.json, or both; it has neither")
    return found


def understood(run: dict[str, Any]) -> Run:
    """The parts of a run, checked; its kind is found from its keys.

    Raises:
        DataError: the keys fit no kind, or a value is not what its key promises.
    """
    try:
        return Run.model_validate(_sorted_out(run))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"{where}: {first['msg']}; a report is made of {EXPECTED}, unchanged"
        ) from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read {path}: {error}; it must be a JSON file: {EXPECTED}"
        ) from None


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        run = json.loads(text)
    except ValueError as error:
        raise DataError(f"{source} is not JSON ({error}); it must be {EXPECTED}") from None
    if not isinstance(run, dict):
        raise DataError(f"{source} must hold one JSON object; got {type(run).__name__}")
    _sorted_out(run, source)
    return run


def _sorted_out(run: dict[str, Any], source: str = "the run") -> dict[str, Any]:
    """The same values under the names of `Run`."""
    if "runs" in run:
        return {"trained": run["runs"], "recommended": run.get("recommended")}
    if "groups" in run:
        return {"audit": run}
    if {"settings", "privacy"} <= run.keys():
        return {"trained": [run]}
    if run and run.keys() <= set(PARTS):
        return {
            "trained": [run["train"]] if "train" in run else [],
            "audit": run.get("audit"),
        }
    keys = ", ".join(list(run)[:8]) or "none"
    raise DataError(f"{source} must be {EXPECTED}; its keys are {keys}")
