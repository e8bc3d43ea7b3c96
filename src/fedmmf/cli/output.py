"""How commands speak: results on standard output, everything else on standard error."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmmf.watching import Report, bars

if TYPE_CHECKING:  # help is shown without them
    from fedmmf.results import AuditResult, TrainResult

Columns = Mapping[str, Callable[[Any], str]]  # title -> how a row shows it

Stamped = TypeVar("Stamped", "TrainResult", "AuditResult")

results = Console()
errors = Console(stderr=True)


def print_json(value: Any) -> None:
    """Print exactly one JSON object."""
    print(json.dumps(value, indent=2, default=_to_plain, allow_nan=False))  # noqa: T201


def stamped(found: Stamped) -> Stamped:
    """A result that tells when it was made, and by which command line, as a shell would take it."""
    typed = shlex.join(["fedmmf", *sys.argv[1:]])
    readable = typed.encode("utf-8", "replace").decode()  # names of files may be no text
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return found.model_copy(update={"made": made, "command": readable})


def lead(found: "TrainResult | AuditResult") -> None:
    """Print how real a run was, and what it came to, before any figure."""
    for line in (found.run_kind, found.verdict):
        results.print(f"[bold]{plain(line)}[/]", highlight=False)


def _to_plain(value: Any) -> Any:
    if hasattr(value, "item"):  # a number of numpy, which is not loaded for this
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


def table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        is_first = position == 0
        made.add_column(
            column,
            justify="left" if is_first else "right",
            no_wrap=is_first,
            overflow="fold",  # on a narrow terminal over several lines: half a key is no key
        )
    for row in rows:
        made.add_row(*map(plain, row))
    return made


def plain(text: str) -> str:
    """A text that may be anybody's, such as a title: no markup in it, and no control characters."""
    return escape("".join(mark for mark in text if mark.isprintable() or mark == "\n"))


def shown(value: float | None, form: str = ".4f") -> str:
    """A figure as tables show it; a dash where there is none."""
    return "-" if value is None else format(value, form)


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
    with errors.status(f"reading {plain(path.name)}, {path.stat().st_size / 1e6:,.1f} MB"):
        yield


def progress_bar(label: str) -> AbstractContextManager[Report]:
    """A bar per stage on a terminal's standard error; nothing where there is no terminal."""
    return bars(label, errors)
