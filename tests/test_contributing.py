"""The walk in CONTRIBUTING.md, in a copy of this tree: its change applies, and its tests pass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
WALK = PAGE[PAGE.index("## From a clone") : PAGE.index("## Commands")]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", WALK, re.DOTALL | re.MULTILINE)
(PATCH,) = (text for language, text in BLOCKS if language == "diff")
COMMANDS = [line for language, text in BLOCKS if not language for line in text.splitlines()]


@pytest.fixture
def copy(tmp_path):
    for name in ("src", "tests/masks", "conftest.py", "pyproject.toml"):
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path


def run(folder, *command, given=""):
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    return subprocess.run(
        command, cwd=folder, env=environment, input=given, text=True, capture_output=True
    )


def test_the_change_of_the_walk_applies_and_its_commands_work(copy):
    done = run(copy, "git", "apply", "-", given=PATCH)
    assert done.returncode == 0, done.stderr
    ran = [line.removeprefix(".venv/bin/").split() for line in COMMANDS if ".venv/bin/" in line]
    assert [words[0] for words in ran] == ["python", "fedmmf"]
    for words in ran:
        start = ["-m", "fedmmf"] if words[0] == "fedmmf" else []
        done = run(copy, sys.executable, *start, *words[1:])
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "-k middle" in " ".join(ran[0])


def test_the_walk_names_targets_of_the_makefile():
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = [line.split()[1] for line in COMMANDS if line.startswith("make ")]
    assert wanted
    assert set(wanted) <= set(targets)
