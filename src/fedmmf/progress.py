"""Who watches long work: nobody, a function, or bars on a terminal or in a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedmmf.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Report = Callable[[str, int, int], None]  # told (stage, done, total)
Watching = Report | bool | None  # what an argument `progress` may be
_shown: list["Progress"] = []


def quiet(stage: str, done: int, total: int) -> None:
    """Ignore progress: a callback that shows nothing."""


@contextmanager
def watched(progress: Watching, label: str) -> Iterator[Report]:
    """What to tell how far the work is, from an argument `progress`: True gives bars.

    Args:
        progress: True: bars; False or None: nobody watches; or a function of (stage, done, total).
        label: what bars are called.
    """
    if progress is True:
        from rich.console import Console

        with bars(label, Console(stderr=True)) as report:
            yield report
    elif progress is None or progress is False:
        yield quiet
    elif callable(progress):
        yield progress
    else:
        raise SettingsError(
            f"progress must be True, False or a function of (stage, done, total); got {progress!r}"
        )


@contextmanager
def bars(label: str, console: "Console", *, is_one: bool = False) -> Iterator[Report]:
    """A bar per stage, on a terminal or in a notebook; nothing where there is neither.

    Args:
        label: what they are called.
        console: where they are shown.
        is_one: whether all stages share one bar.
    """
    # Imported here: whoever does not watch does not wait for it.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("[bold]{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_seen = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            task, text = "" if is_one else stage, f"{label}: {stage}"
            if task not in tasks:
                tasks[task] = bar.add_task(text, total=total)
            bar.update(tasks[task], description=text, completed=done, total=total)

        _shown.append(bar)
        try:
            yield report
        finally:
            _shown.remove(bar)


def stop_bars() -> None:
    """Leave the terminal as it was, before a process ends without another word."""
    for bar in _shown:
        bar.stop()
