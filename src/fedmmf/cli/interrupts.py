"""Ctrl-C and SIGTERM: the command ends at once, and the state of its work is saved.

Compiled code does not handle signals until it returns, which may take a minute. So a command runs
in a thread, and the main thread waits for it or for a signal. Only the standard library is imported
here before a command runs: this file is what answers while the others load.
"""

import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmmf.cli.printable import printable

if TYPE_CHECKING:
    from fedmmf.storage.checkpoints import Checkpoint

CODE = 130  # of a command that was interrupted
# Libraries such as polars have signals restart what they interrupt: a wait without an end would
# never return to Python, which alone handles signals.
_STEP = 0.1  # seconds
STACK_BYTES = 64 << 20  # compiling recurses deeply; a thread's own stack may be small
_SOON = "interrupted: nothing had begun. To start again, run the same command"
_PRIVATE = "What was kept holds private parts of all users; its file is for its owner alone"
_NOT_COMPARED = "interrupted: the result is complete but for the comparison without noise"
_ENDS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, and what schedulers and `kill` send
_under_way: list["UnderWay"] = []  # one at most


class UnderWay:
    """A training or an audit in progress, and where to save it when interrupted."""

    def __init__(self, kept: "Checkpoint", beside: Path | None) -> None:
        self._kept, self._beside = kept, beside
        self._give_result: Callable[[], None] | None = None

    @contextmanager
    def comparing(self, give_result: Callable[[], None]) -> Iterator[None]:
        """Within this only comparisons are missing: an interrupt gives the result without them."""
        self._give_result = give_result
        try:
            yield
        finally:
            self._give_result = None

    def was_given(self) -> bool:
        """Give the result that an interrupt found finished, if there is one, and say whether."""
        give_result = self._give_result
        if give_result is None:
            return False
        give_result()
        sys.stdout.flush()
        return True

    def keep(self) -> str | None:
        """Save the state to the first writable place; return the command that resumes from it."""
        if not self._kept.has_state:
            return None
        for place in self._places():
            try:
                self._kept.write(place)
            except Exception:  # noqa: S112 - full, not ours, gone: there is another place
                continue
            return again("--checkpoint", str(place))
        return None

    @property
    def reached(self) -> str:
        """Progress of the work, in words."""
        return self._kept.reached

    @property
    def is_finished(self) -> bool:
        """Whether all rounds or attacks are done, and only later steps are missing."""
        return self._kept.is_finished

    def _places(self) -> Iterator[Path]:
        """The file that was asked for; else new ones: beside the model, here, and elsewhere."""
        if self._kept.path is not None:
            yield self._kept.path
        if self._beside is not None:
            yield _unused(self._beside.with_name(f"{self._beside.name}.ckpt"))
        import platformdirs

        cache = Path(platformdirs.user_cache_dir("fedmmf", appauthor=False))
        for folder in (Path(), cache, Path(tempfile.gettempdir())):
            yield _unused(folder / "fedmmf-interrupted.ckpt")


def _unused(path: Path) -> Path:
    """This file, or one with a number if there is one already."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


def again(*more: str) -> str:
    """The command that was given, with some options more unless it has them."""
    given = sys.argv[1:]
    is_there = bool(more) and any(part.split("=")[0] == more[0] for part in given)
    return shlex.join(["fedmmf", *given, *(() if is_there else more)])


@contextmanager
def keeping(kept: "Checkpoint", beside: Path | None) -> Iterator[UnderWay]:
    """Keep a work, beside its model, if it is interrupted or if what follows it fails."""
    training = UnderWay(kept, beside)
    _under_way.append(training)
    try:
        yield training
    except Exception:
        if training.is_finished and (command := training.keep()):
            _say(f"the work is not lost. {_PRIVATE}. To go on: {command}")
        raise
    finally:
        _under_way.remove(training)


@contextmanager
def at_once() -> Iterator[None]:
    """Within this, Ctrl-C ends the process with a line: there is nothing to keep."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: _leave(_SOON)) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_thread(run: Callable[[], int]) -> int:
    """Run a command in a thread and give its exit code; Ctrl-C does not wait for the thread."""
    done = threading.Event()
    ended: list[tuple[int, BaseException | None]] = []

    def work() -> None:
        try:
            ended.append((run(), None))
        except BaseException as error:  # to be raised in the main thread
            ended.append((1, error))
        done.set()

    _on_end(_raise)
    threading.stack_size(STACK_BYTES)
    try:
        threading.Thread(target=work, name="fedmmf command", daemon=True).start()
        threading.stack_size(0)
        while not done.wait(_STEP):
            pass
        _on_end(lambda *_: os._exit(CODE))  # nothing is left to lose
    except KeyboardInterrupt:
        _interrupted()
    code, error = ended[0]
    if error is not None:
        raise error
    return int(code)


def _on_end(handler: Any) -> None:
    for number in _ENDS:
        signal.signal(number, handler)


def _raise(*_: Any) -> None:
    _on_end(signal.SIG_IGN)  # the first is enough
    raise KeyboardInterrupt


def _interrupted() -> None:
    """Keep what there is, say how to go on, and end; the thread may be in the middle of a round."""
    from fedmmf.progress import stop_bars
    from fedmmf.storage.atomic import remove_partial

    stop_bars()
    training = _under_way[0] if _under_way else None
    if training and _gives_result(training):
        remove_partial()
        _leave(f"{_NOT_COMPARED}. To measure it, start again: {again()}")
    command = training.keep() if training else None
    remove_partial()
    if training and command:
        _leave(f"interrupted after {training.reached}. {_PRIVATE}. To go on: {command}")
    _leave(f"interrupted: nothing was kept. To start again: {again()}")


def _gives_result(training: UnderWay) -> bool:
    """Whether the finished result was given; where that fails, its state is still to be kept."""
    try:
        return training.was_given()
    except Exception as error:
        _say(f"the result could not be given: {error}")
        return False


def _leave(text: str) -> None:
    _say(text)
    os._exit(CODE)


def _say(text: str) -> None:
    os.write(2, f"{printable(text)}\n".encode())
