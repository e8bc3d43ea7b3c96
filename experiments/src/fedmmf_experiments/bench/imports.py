"""What it takes until something can begin: imports, in fresh interpreters, beside that of numpy."""

import subprocess
import sys
from dataclasses import dataclass
from functools import partial

from fedmmf_experiments.bench.measuring import Progress, median, quiet, timed

_HELP = """
import sys
sys.argv = ["fedmmf", "--help"]
from fedmmf.cli import main
main()
"""
BESIDE = "import numpy"
TRIED = {
    BESIDE: BESIDE,
    "import fedmmf": "import fedmmf",
    "from fedmmf import FedMMF": "from fedmmf import FedMMF",
    "a party": "import fedmmf.party",
    "fedmmf --help": _HELP,
}


@dataclass(frozen=True)
class ImportTime:
    """How long something takes to load."""

    what: str
    seconds: float  # median, without the start of the interpreter
    over_numpy: float  # times `import numpy`


def measure(repeats: int, progress: Progress = quiet) -> list[ImportTime]:
    """Load each in turn, and all of them again; a first time is not counted."""
    codes = {"": "pass", **TRIED}
    seconds: dict[str, list[float]] = {what: [] for what in codes}
    for number in range(repeats + 1):
        for what, code in codes.items():
            took = timed(partial(run, code))
            if number:  # the first time, files are read from the disk
                seconds[what].append(took)
        progress("repeats", number, repeats)
    start = median(seconds[""])
    found = {what: median(seconds[what]) - start for what in TRIED}
    return [ImportTime(what, took, took / found[BESIDE]) for what, took in found.items()]


def run(code: str) -> None:
    """Run code in a fresh interpreter."""
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own code
