"""How commands speak: results on standard output, everything else on standard error."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fedmmf.cli.tables import FittingTable

Columns = Mapping[str, Callable[[Any], str]]  # title -> how a row shows it
Report = Callable[[str, int, int], None]  # told (stage, done, total)

results = Console()
errors = Console(stderr=True)
_bars: list[Progress] = []  # that are being shown


def print_json(value: Any) -> None:
    """Print exactly one JSON object."""
    text = json.dumps(_finite(value), indent=2, default=_to_plain, allow_nan=False)
    print(text, flush=True)  # noqa: T201


def _finite(value: Any) -> Any:
    """The same with null for numbers that are none, which JSON has no other word for."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        return None
    return value


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def table(title: str, columns: list[str], rows: list[list[str]]) -> FittingTable:
    """A table whose first column is text and whose others are numbers."""
    return FittingTable(title, columns, rows)


def shown(value: float | None, form: str = ".4f") -> str:
    """A figure as tables show it; a dash where there is none."""
    return "-" if value is None or not np.isfinite(value) else format(value, form)


def print_markdown(columns: Columns, found: Iterable[Any]) -> None:
    """Print a table as Markdown, so that pages can show what a command has printed."""
    rows = ([show(one) for show in columns.values()] for one in found)
    for row in (list(columns), ["---"] * len(columns), *rows):
        results.print(f"| {' | '.join(row)} |", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[..., None]]:
    """A bar per stage on a terminal's standard error; nothing where there is no terminal."""
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        _bars.append(bar)
        stages: dict[str, Any] = {}

        def report(stage: str, done: int, total: int, text: str | None = None) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task("", total=total)
            shown = f"{label}: {text or stage}"
            bar.update(stages[stage], description=shown, completed=done, total=total)

        try:
            yield report
        finally:
            _bars.remove(bar)


@contextmanager
def steps_bar(label: str) -> Iterator[Report]:
    """What is being done, and how far: one bar on a terminal, else a line at each step."""
    with progress_bar(label) as progress:

        def report(what: str, done: int, total: int) -> None:
            if errors.is_terminal:
                progress("steps", done, total, what)
            else:
                text = f"{label}: {done + 1} of {total}: {what}"
                errors.print(text, soft_wrap=True, markup=False, highlight=False)

        yield report


def stop_bars() -> None:
    """Leave the terminal as it was, before a process ends without another word."""
    for bar in _bars:
        bar.stop()
