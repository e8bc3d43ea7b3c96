"""How commands speak: results on standard output, everything else on standard error."""

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fedmmf.training import Progress as Report

results = Console()
errors = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print exactly one JSON object."""
    print(json.dumps(value, indent=2, default=_to_plain, allow_nan=False))  # noqa: T201


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position == 0 else "right", no_wrap=position == 0)
    for row in rows:
        made.add_row(*row)
    return made


@contextmanager
def progress_bar(label: str) -> Iterator[Report]:
    """A bar per stage on a terminal's standard error; nothing where there is no terminal."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        stages: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(f"{label}: {stage}", total=total)
            bar.update(stages[stage], completed=done, total=total)

        yield report


def versions() -> dict[str, str]:
    """What made a result, for whoever wants to make it again."""
    packages = ("fedmmf", "numpy", "numba", "cryptography")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
