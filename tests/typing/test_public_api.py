"""The program that `make lint` checks the types of also runs, and stays in what is checked."""

import runpy
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = HERE / "public_api.py"


def test_the_program_runs(tmp_path):
    runpy.run_path(str(SCRIPT))["main"](tmp_path)


def test_its_types_are_checked_strictly():
    checking = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["tool"]["mypy"]
    assert checking["strict"]
    assert SCRIPT.relative_to(HERE.parents[1]).as_posix() in checking["files"]
