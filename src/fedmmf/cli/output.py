"""How commands speak: results on standard output, everything else on standard error."""

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from fedmmf.cli.tables import FittingTable, plain, size
from fedmmf.progress import Report, bars

if TYPE_CHECKING:  # help is shown without them
    from fedmmf.reports.results import AuditResult, TrainResult

Columns = Mapping[str, Callable[[Any], str]]  # title -> how a row shows it

Stamped = TypeVar("Stamped", "TrainResult", "AuditResult")

results = Console()
errors = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print exactly one JSON object."""
    text = json.dumps(_finite(value), indent=2, allow_nan=False)
    print(text, flush=True)  # noqa: T201


def _finite(value: Any) -> Any:
    """Replace NaN and infinite numbers with null, since JSON cannot hold them."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if not isinstance(value, str) and hasattr(value, "item"):  # numpy's, which is not loaded here
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def stamped(found: Stamped) -> Stamped:
    """Add to a result the time and the command line that made it."""
    typed = shlex.join(["fedmmf", *sys.argv[1:]])
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    # Names of files may be no text, which no page could have in it.
    texts = {"command": typed, "data": found.data}
    readable = {key: text.encode("utf-8", "replace").decode() for key, text in texts.items()}
    return found.model_copy(update={"made": made, **readable})


def lead(found: "TrainResult | AuditResult") -> None:
    """Print whether a run was simulated, and its verdict, before any figure."""
    for line in (found.run_kind, found.verdict):
        results.print(f"[bold]{plain(line)}[/]", highlight=False)


def table(title: str, columns: list[str], rows: list[list[str]]) -> FittingTable:
    """A table whose first column is text and whose others are numbers."""
    return FittingTable(title, columns, rows)


def shown(value: float | None, update_shape: str = ".4f") -> str:
    """A figure as tables show it; a dash where there is none."""
    return "-" if value is None or not math.isfinite(value) else format(value, update_shape)


def print_markdown(columns: Columns, found: Iterable[Any]) -> None:
    """Print a table as Markdown, so that pages can show what a command has printed."""
    rows = ([show(one) for show in columns.values()] for one in found)
    for row in (list(columns), ["---"] * len(columns), *rows):
        results.print(f"| {' | '.join(row)} |", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def reading_of(name: str) -> Iterator[None]:
    """Show a file's name and size on a terminal's standard error while it is read."""
    path = Path(name)
    if not errors.is_terminal or not path.is_file():
        yield
        return
    with errors.status(f"reading {plain(path.name)}, {size(path.stat().st_size)}"):
        yield


LINE_SECONDS = 10.0  # between two lines where there is no terminal; shorter work is silent


def progress_bar(label: str) -> AbstractContextManager[Report]:
    """A bar per stage on a terminal's standard error; where there is none, a line now and then."""
    return bars(label, errors) if errors.is_terminal else _lines(label)


@contextmanager
def _lines(label: str) -> Iterator[Report]:
    """Lines for a pipe or a file: how far the work is, every LINE_SECONDS."""
    last = time.monotonic()

    def report(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_SECONDS:
            last = now
            text = f"{label}: {stage}: {done:,} of {total:,}"
            errors.print(text, soft_wrap=True, markup=False, highlight=False)

    yield report


@contextmanager
def steps_bar(label: str) -> Iterator[Report]:
    """Show the current step and the progress: a bar on a terminal, else a line per step."""
    with bars(label, errors, is_one=True) as progress:

        def report(what: str, done: int, total: int) -> None:
            if errors.is_terminal:
                progress(what, done, total)
            else:
                text = f"{label}: {done + 1} of {total}: {what}"
                errors.print(text, soft_wrap=True, markup=False, highlight=False)

        yield report
