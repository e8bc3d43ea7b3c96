"""Which skips continuous integration accepts: a test is tried somewhere, or has a good reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = Path(__file__).parents[1] / ".ci" / "skips.py"
TESTS = {
    "test_whole.py": """
import os, pytest
if "PEER" not in os.environ:
    pytest.skip("needs peer: 'peer[it]'", allow_module_level=True)
class TestIt:
    def test_it(self): pass
""",
    "test_some.py": """
import os, pytest
@pytest.mark.parametrize("engine", ["a", "ray"])
def test_an_engine(engine):
    if engine == "ray" and "RAY" not in os.environ: pytest.skip("ray is not installed")
def test_a_card(): pytest.skip("there is no card")
""",
}


@pytest.fixture
def ran(tmp_path):
    """Run the small suite above with some variables set; returns the junit file."""
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text)

    def ran(*variables):
        file = tmp_path / f"{len(variables)}-{'-'.join(variables)}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, tmp_path]
        environment = {**os.environ, **dict.fromkeys(variables, "1")}
        done = subprocess.run(
            [*command, f"--junitxml={file}"], env=environment, cwd=tmp_path, capture_output=True
        )
        assert done.returncode == 0, done.stdout
        return file

    return ran


def listed(*files):
    return subprocess.run([sys.executable, SKIPS, *files], capture_output=True, text=True)


def test_what_no_run_has_tried_is_an_error(ran):
    done = listed(ran(), ran("PEER"))
    assert done.returncode == 1
    assert "     1  ray is not installed\n" in done.stdout
    assert "needs peer: 'peer[it]'" not in done.stdout
    assert (
        done.stderr == "error: nothing tries test_some.test_an_engine[ray]: ray is not installed\n"
    )


def test_a_file_that_no_run_has_tried_is_an_error(ran):
    done = listed(ran("RAY"))
    assert done.returncode == 1
    assert done.stderr == "error: nothing tries test_whole: needs peer: 'peer[it]'\n"


def test_what_needs_a_card_may_be_skipped(ran):
    done = listed(ran(), ran("PEER"), ran("RAY"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Skipped in every environment:\n     1  there is no card\n"


def test_no_results_are_an_error(tmp_path):
    done = listed(tmp_path / "*.xml")
    assert done.returncode == 1
