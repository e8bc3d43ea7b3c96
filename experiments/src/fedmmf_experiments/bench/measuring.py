"""What measurements have in common: clocks, memory, and processes of their own."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedmmf import errors
from fedmmf.registry import imported

Progress = Callable[[str, int, int], None]  # called with (stage, done, total)


def quiet(stage: str, done: int, total: int) -> None:
    """Ignore progress: a callback that shows nothing."""


def timed(function: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def median(values: Iterable[Any]) -> float:
    """The middle of some measurements."""
    return float(statistics.median(float(value) for value in values))


def peak_gigabytes() -> float:
    """Return the peak memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def in_own_process(home: str, arguments: list[Any], environment: Mapping[str, str]) -> Any:
    """Call a function in a fresh interpreter, so that peaks of memory and caches are its own.

    Args:
        home: import path of the function, as `module:attribute`.
        arguments: of the call; they and the answer are what JSON can hold.
        environment: variables to add.

    Raises:
        FedMMFError: what the function raised, or that the process died.
    """
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "fedmmf_experiments.bench.measuring", json.dumps([home, arguments])],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise errors.FedMMFError(f"the process that measures ended with {done.returncode}: {last}")
    answer = json.loads(done.stdout)
    if "error" in answer:
        raise getattr(errors, answer["error"], errors.FedMMFError)(answer["text"])
    return answer["found"]


def main() -> None:
    """Run as such a process: one call, one answer on standard output."""
    home, arguments = json.loads(sys.argv[1])
    try:
        answer = {"found": imported(home)(*arguments)}
    except errors.FedMMFError as error:
        answer = {"error": type(error).__name__, "text": str(error)}
    print(json.dumps(answer))  # noqa: T201 - the answer


if __name__ == "__main__":
    main()
