"""How commands speak: results on standard output, everything else on standard error.

Tables fit the terminal: no word is cut, and no row loses its name.
"""

import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from fedmmf.cli.printable import printable
from fedmmf.progress import Report, bars

_BORDER = 3  # columns of the terminal that a column of a table takes beside its text
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
if TYPE_CHECKING:  # help is shown without them
    from fedmmf.reports.results import AuditResult, TrainResult
Columns = Mapping[str, Callable[[Any], str]]  # title -> how a row shows it
Stamped = TypeVar("Stamped", "TrainResult", "AuditResult")
results = Console()
errors = Console(stderr=True)


@dataclass(frozen=True)
class FittingTable:
    """A table whose first column is text and whose others are numbers.

    Where its words do not fit side by side, it is written as one block of lines for each row.
    """

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = _fitted(self._natural, self._least, options.max_width - 1)
        yield self._blocks() if widths is None else self._side_by_side(widths)
        if self.caption:
            yield plain(self.caption)

    def _cells(self, number: int) -> Iterable[str]:
        return chain((self.columns[number],), (row[number] for row in self.rows))

    @property
    def _natural(self) -> list[int]:
        return [max(map(_widest_line, self._cells(n))) for n in range(len(self.columns))]

    @property
    def _least(self) -> list[int]:
        return [max(map(_longest_word, self._cells(n))) for n in range(len(self.columns))]

    def _side_by_side(self, widths: list[int]) -> Table:
        made = Table(title=plain(self.title), title_justify="left", title_style="bold")
        for number, (column, width) in enumerate(zip(self.columns, widths, strict=True)):
            justify = "right" if number else "left"
            made.add_column(plain(column), justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
        for row in self.rows:
            made.add_row(*map(plain, row))
        return made

    def _blocks(self) -> Table:
        made = Table.grid(padding=(0, 2, 0, 0))
        made.title, made.title_justify, made.title_style = plain(self.title), "left", "bold"
        made.add_column(overflow="fold")
        for name, *values in self.rows:
            lines = [f"[bold]{plain(name)}[/]"]
            named = zip(self.columns[1:], values, strict=True)
            lines += [f"  {plain(f'{column}: {value}')}" for column, value in named]
            made.add_row("\n".join(lines))
        return made


def _fitted(natural: list[int], least: list[int], space: int) -> list[int] | None:
    """Widths of columns: the widest are made narrower until all fit; None: words would be cut."""
    space -= _BORDER * len(natural)
    if sum(least) > space:
        return None
    widths = list(natural)
    while sum(widths) > space:
        loose = [n for n in range(len(widths)) if widths[n] > least[n]]
        widths[max(loose, key=lambda n: widths[n])] -= 1
    return widths


def _widest_line(text: str) -> int:
    return max((cell_len(line) for line in text.splitlines()), default=0)


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)


def plain(text: object) -> str:
    """A text that may be anybody's, such as a title: no markup in it, and no control characters."""
    return escape(printable(str(text)))


def size(n_bytes: float) -> str:
    """A number of bytes as people read it, such as 3.2 MB."""
    for unit, name in _UNITS:
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.1f} {name}"
    return f"{n_bytes:,.0f} bytes"


def duration(seconds: float) -> str:
    """A time as people read it, such as 0.31 s, 42 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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


def lead(found: "TrainResult") -> None:
    """Print whether a run was simulated, and its verdict, before any figure."""
    for line in (found.run_kind, found.verdict):
        results.print(f"[bold]{plain(line)}[/]", highlight=False)


def say(line: str) -> None:
    """Print one line on standard error."""
    errors.print(plain(line), soft_wrap=True, highlight=False)


def table(title: str, columns: list[str], rows: list[list[str]]) -> FittingTable:
    """A table whose first column is text and whose others are numbers."""
    return FittingTable(title, columns, rows)


def shown(value: float | None, form: str = ".4f") -> str:
    """A figure as tables show it; a dash where there is none."""
    return "-" if value is None or not math.isfinite(value) else format(value, form)


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
