"""What measurements have in common: clocks, memory, and processes of their own."""

import os
import pickle
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from fedmmf import errors

T = TypeVar("T")
Progress = Callable[[str, int, int], None]  # called with (stage, done, total)


def quiet(stage: str, done: int, total: int) -> None:
    """Ignore progress: a callback that shows nothing."""


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def spent(function: Callable[[], T]) -> tuple[T, tuple[float, float]]:
    """Return what a call returns, and the seconds that it takes: by the clock, of the processor.

    Seconds of the processor are those of all threads together. They grow less than the clock's
    where other work wants the same cores.
    """
    began, began_cpu = time.perf_counter(), time.process_time()
    found = function()
    seconds = (time.perf_counter() - began, time.process_time() - began_cpu)
    return found, (round(seconds[0], 2), round(seconds[1], 2))


def median(values: Iterable[Any]) -> float:
    """The middle of some measurements."""
    return float(statistics.median(float(value) for value in values))


def peak_gigabytes() -> float:
    """Return the peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_own_process(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """Call a function in a fresh interpreter, so that peaks of memory and caches are its own.

    Its arguments and its answer are pickled. The variables of the environment are added.

    Raises:
        FedMMFError: what the function raised, or that the process died.
    """
    done = subprocess.run(
        [sys.executable, "-m", "fedmmf_experiments.bench.measuring"],
        input=pickle.dumps((function, arguments)),
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
    )
    if done.returncode != 0:
        last = (done.stderr.decode().strip().splitlines() or ["it said nothing"])[-1]
        raise errors.FedMMFError(f"the process that measures ended with {done.returncode}: {last}")
    found, kind, text = pickle.loads(done.stdout)  # noqa: S301 - from our own process
    if kind:
        raise getattr(errors, kind, errors.FedMMFError)(text)
    return found


def each_alone(
    measure: Callable[..., Any], stage: str, plans: Sequence[Sequence[Any]], progress: Progress
) -> list[Any]:
    """Measure every plan in a process of its own."""
    found = []
    for number, plan in enumerate(plans, start=1):
        found.append(in_own_process(measure, *plan))
        progress(stage, number, len(plans))
    return found


def main() -> None:
    """Run as such a process: one call, one answer on standard output."""
    function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    try:
        answer = (function(*arguments), "", "")
    except errors.FedMMFError as error:
        answer = (None, type(error).__name__, str(error))
    sys.stdout.buffer.write(pickle.dumps(answer))


if __name__ == "__main__":
    main()
