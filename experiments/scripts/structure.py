"""Print the size of this tree beside that of an old revision: what a reader has to carry.

Example: python experiments/scripts/structure.py --old fb0ad55

Files and packages crossed by a call are traced at run time: `crossing.py` says what counts. Lines
are those of *.py files, tests apart, and words are those of docs/*.md. Modules in the root are the
files src/fedmmf/*.py. Tests are the cases that pytest collects here; those of packages that are not
installed may be missing. Private uses are what tests/test_private_uses.py counts. Seconds are those
of the last `make test` of this tree, where build/tests has them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests", "experiments/tests")
Figures = dict[str, float | None]


def figures_of(tree: Path) -> Figures:
    """Measure one tree."""
    found: Figures = {}
    for call, files in json.loads(python(tree, ROOT / "experiments/scripts/crossing.py")).items():
        found[f"files crossed by {call}"] = len(files)
        found[f"packages crossed by {call}"] = len({Path(file).parent for file in files})
    experiments = [path for path in sources(tree, "experiments") if "tests" not in path.parts]
    tests = [path for folder in TESTS for path in sources(tree, folder)]
    return found | {
        "lines of src/fedmmf": lines(sources(tree, "src/fedmmf")),
        "lines of experiments": lines(experiments),
        "modules in the root": len(list((tree / "src/fedmmf").glob("*.py"))),
        "words of docs": sum(len(path.read_text().split()) for path in tree.glob("docs/**/*.md")),
        "tests": collected(tree),
        "lines of tests": lines(tests),
        "private uses in tests": private_uses(tests),
        "seconds of make test": seconds(tree),
    }


def sources(tree: Path, folder: str) -> list[Path]:
    """Return the Python files of a folder, by paths within the tree."""
    return sorted((tree / folder).rglob("*.py"))


def lines(paths: Iterable[Path]) -> int:
    """Count lines, as `wc -l` does."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def collected(tree: Path) -> int:
    """Count the test cases."""
    options = ("--collect-only", "-q", "-o", "addopts=--import-mode=importlib")
    there = [folder for folder in TESTS if (tree / folder).is_dir()]
    printed = python(tree, "-m", "pytest", *options, "-p", "no:cacheprovider", *there)
    found = re.findall(r"^(\d+) tests? collected", printed, re.MULTILINE)
    return int(found[-1])


def private_uses(paths: Iterable[Path]) -> int:
    """Count uses of private names, as the test of this tree does."""
    counted = runpy.run_path(str(ROOT / "tests/test_private_uses.py"))["private_uses"]
    return sum(1 for path in paths for _ in counted(path.read_text()))


def seconds(tree: Path) -> float | None:
    """Return how long the last `make test` took, without lint."""
    path = tree / "build/tests/test.xml"
    if not path.exists():
        return None
    suites = ElementTree.parse(path).getroot().iter("testsuite")  # noqa: S314 - our own file
    return sum(float(suite.attrib["time"]) for suite in suites)


def python(tree: Path, *arguments: Path | str) -> str:
    """Run this Python with the packages of a tree; return what it prints."""
    packages = [str(tree / folder) for folder in ("src", "experiments/src")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=tree, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def of_revision(revision: str) -> Figures:
    """Measure a revision in a worktree of its own."""
    with tempfile.TemporaryDirectory() as folder:
        tree = str(Path(folder, "old"))
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "--quiet", tree, revision], check=True)
        try:
            return figures_of(Path(tree))
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


def shown(value: float | None) -> str:
    """Return a figure as the table has it."""
    return "-" if value is None else f"{value:,.0f}"


def main() -> None:
    """Print the table, or JSON."""
    reading = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    reading.add_argument("--old", default="fb0ad55", help="the revision to compare with")
    reading.add_argument("--json", action="store_true", help="print one JSON object")
    given = reading.parse_args()
    old, new = of_revision(given.old), figures_of(ROOT)
    if given.json:
        print(json.dumps({"revision": given.old, "before": old, "after": new}))
        return
    print(f"{'':36} {given.old:>9} {'this tree':>9}")
    for name in new:
        print(f"{name:36} {shown(old[name]):>9} {shown(new[name]):>9}")


if __name__ == "__main__":
    main()
