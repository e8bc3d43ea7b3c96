"""Tables that fit the terminal: no word is cut, and no row loses its name."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table

from fedmmf.cli.printable import printable

_BORDER = 3  # columns of the terminal that a column of a table takes beside its text
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


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
