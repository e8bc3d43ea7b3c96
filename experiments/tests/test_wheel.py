"""The wheel has all files that the package reads, and asks for the library of its own version."""

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import fedmmf
import fedmmf_experiments

HERE = Path(__file__).parents[1]


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_wheel_brings_settings_and_nothing_of_the_library(tmp_path):
    if pip("download", "--no-deps", "--dest", tmp_path / "tools", "hatchling>=1.27,<2").returncode:
        pytest.skip("hatchling, which builds the wheel, cannot be had: there is no package index")
    built = pip("wheel", "--no-deps", "--wheel-dir", tmp_path, HERE)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("fedmmf_experiments-*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    for name in ("ml-100k.json", "ml-1m.json", "lastfm.json"):
        assert f"fedmmf_experiments/paper/hyperparameters/{name}" in names
    assert "fedmmf_experiments/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "fedmmf/"))]


def test_it_needs_the_library_of_its_own_version():
    assert fedmmf_experiments.__version__ == fedmmf.__version__
    assert f"fedmmf=={fedmmf.__version__}" in metadata.requires("fedmmf-experiments")
