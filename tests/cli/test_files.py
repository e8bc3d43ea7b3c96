"""Files that commands write: refused before the work, and whole or not there after it."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fedmmf.cli.files import require_file, require_folder, written
from fedmmf.errors import DataError


def names(folder):
    return [path.name for path in folder.iterdir()]


def fedmmf(*arguments, cwd, limit=None, **environment):
    def restrict():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [sys.executable, "-m", "fedmmf", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **environment},
        preexec_fn=restrict,
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (".", "must be a file; . is a folder"),
        ("/dev/null", "is a device"),
        ("/proc/no/model", "cannot be written"),
        ("there.txt/model", "cannot be written"),
    ],
)
def test_what_cannot_be_a_file_is_refused_and_nothing_is_changed(
    place, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.txt").write_text("mine")
    with pytest.raises(DataError, match=message):
        require_file(Path(place), "--save")
    assert (tmp_path / "there.txt").read_text() == "mine"
    assert names(tmp_path) == ["there.txt"]


def test_a_file_that_is_there_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    require_file(path, "--report")
    assert path.read_text() == "old"
    with pytest.raises(DataError, match=r"page.html cannot be written: No space"), written(path):
        raise OSError(28, "No space left on device")
    assert path.read_text() == "old"
    with written(path) as partial:
        partial.write_text("new")
    assert path.read_text() == "new"
    assert names(tmp_path) == ["page.html"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(DataError, match="--out must be a folder"):
        require_folder(tmp_path / "out", "--out")
    require_folder(tmp_path / "a" / "b", "--out")
    assert (tmp_path / "a" / "b").is_dir()


def test_a_full_disk_is_a_message_and_leaves_no_half_file(small, tmp_path):
    """A process that may write 8 kB a file: less than a model, more than nothing."""
    small.to_frame().write_csv(tmp_path / "r.csv")
    quick = ["--data", "r.csv", "--mask", "mean", "--rounds", "2", "--save", "model"]
    (tmp_path / "model").write_text("old")
    limits = {"limit": 8192, "FEDMMF_CACHE": str(tmp_path / "cache")}
    done = fedmmf("train", *quick, cwd=tmp_path, **limits)
    assert done.returncode == 1
    assert "model cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "model").read_text() == "old"
    assert not [name for name in names(tmp_path) if "part" in name]


def test_a_reader_that_has_seen_enough(tmp_path):
    for words in ("data list", "data list --json"):
        command = f"{sys.executable} -m fedmmf {words} | true"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        assert "BrokenPipe" not in done.stderr


def test_completion_knows_the_names_of_masks():
    code = "import sys; sys.argv = ['fedmmf']; from fedmmf.cli import main; main()"
    words = {"COMP_WORDS": "fedmmf train --mask ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "_FEDMMF_COMPLETE": "complete_bash", **words},
    )
    assert done.stdout.split() == ["none", "mean", "lr", "fm", "nn"]
