"""Who watches long work: nobody, a function, or bars on a terminal or in a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedmmf.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import Console

Report = Callable[[str, int, int], None]  # told (stage, done, total)
Watching = Report | bool | None  # what an argument `progress` may be


def _nobody(stage: str, done: int, total: int) -> None:
    """Told, and silent."""


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
        yield _nobody
    elif callable(progress):
        yield progress
    else:
        raise SettingsError(
            f"progress must be True, False or a function of (stage, done, total); got {progress!r}"
        )


@contextmanager
def bars(label: str, console: "Console") -> Iterator[Report]:
    """A bar per stage, on a terminal or in a notebook; nothing where there is neither."""
    # Imported here: whoever does not watch does not wait for it.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("[bold]{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_seen = console.is_terminal or console.is_jupyter
    with Progress(*columns, console=console, transient=True, disable=not is_seen) as bar:
        stages: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages[stage] = bar.add_task(f"{label}: {stage}", total=total)
            bar.update(stages[stage], completed=done, total=total)

        yield report
