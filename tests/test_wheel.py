"""The wheel, away from the source tree: in an environment of its own, run from another folder."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WHERE = """
import fedmmf, importlib.resources as r
print(fedmmf.__file__)
for package, names in {
    "fedmmf.reports": ["page.html", "page.css", "slider.js"],
    "fedmmf.federation.page": ["page.html", "page.css", "page.js", "icon.svg"],
    "fedmmf": ["py.typed"],
}.items():
    for name in names:
        assert r.files(package).joinpath(name).is_file(), (package, name)
"""


def pip(*words):
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The programs of an environment with the wheel and, for all else, what is installed here."""
    folder = tmp_path_factory.mktemp("wheel")
    if pip("download", "--no-deps", "--dest", folder / "tools", "hatchling>=1.27,<2").returncode:
        pytest.skip("hatchling, which builds the wheel, cannot be had: there is no package index")
    built = pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("fedmmf-*.whl")
    venv.create(folder / "env", symlinks=True)
    library = sysconfig.get_path("purelib", vars={"base": str(folder / "env")})
    put = pip("install", "--no-deps", "--quiet", "--target", library, wheel)
    assert put.returncode == 0, put.stderr
    Path(library, "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "env" / "bin" / "python"


def run(python, folder, *words):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_the_wheel_brings_all_files_that_the_package_reads(installed, tmp_path):
    done = run(installed, tmp_path, "-c", WHERE)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(installed.parents[1])


def test_the_wheel_trains_saves_recommends_and_reports(installed, tmp_path):
    # numpy: kernels would be compiled anew for another place, which takes minutes
    quick = ["--data", "synthetic", "--mask", "mean", "--rounds", "3", "--engine", "numpy"]
    outputs = ["--save", "model", "--report", "page.html", "--json"]
    done = run(installed, tmp_path, "-m", "fedmmf", "train", *quick, *outputs)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 3
    assert "<svg" in (tmp_path / "page.html").read_text()
    words = ["recommend", "--model", "model", "--user", "1", "--json"]
    done = run(installed, tmp_path, "-m", "fedmmf", *words)
    assert len(json.loads(done.stdout)["recommendations"]) == 10
