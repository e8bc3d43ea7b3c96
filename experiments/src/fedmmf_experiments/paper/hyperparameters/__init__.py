"""Settings of each model on each data set, as `fedmmf reproduce tune` found them."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedmmf.errors import DataError


def path_of(data: str) -> Path:
    """Where the settings of a data set are kept."""
    return Path(str(files(__name__))) / f"{data.replace(':', '-')}.json"


def load_tuned(data: str) -> dict[str, dict[str, Any]]:
    """Settings by model; nothing for a data set that was never tuned."""
    path = path_of(data)
    if not path.exists():
        return {}
    try:
        tuned: dict[str, dict[str, Any]] = json.loads(path.read_text())
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from None
    return tuned


def save_tuned(data: str, tuned: dict[str, dict[str, Any]]) -> Path:
    """Write the settings of a data set."""
    path = path_of(data)
    try:
        path.write_text(json.dumps(tuned, indent=2) + "\n")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from None
    return path
