"""Files that commands write: refused before the work, and whole or not there after it."""

import logging
import os
import resource
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.cli.federation import PrintableFormatter
from fedmmf.cli.files import (
    confirm,
    confirm_folder,
    require_file,
    require_folder,
    require_outputs,
    written,
)
from fedmmf.errors import DataError
from fedmmf.storage.checkpoints import save


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
    assert done.stdout.split() == ["auto", "none", "mean", "lr", "fm", "nn"]


def rights(path):
    return stat.S_IMODE(path.stat().st_mode)


def a_writer(path):
    with written(path) as partial:
        partial.write_text("new")


WRITERS = [
    lambda path: require_file(path, "--save"),
    a_writer,
    lambda path: save(path, {}, {}),
]


@pytest.mark.parametrize("write", WRITERS)
def test_links_that_somebody_has_put_there_lead_nowhere(write, tmp_path, monkeypatch):
    """Even one with the name that is going to be used, which nobody can know."""
    (tmp_path / "precious").write_text("mine")
    monkeypatch.setattr(secrets, "token_hex", lambda size: "known")
    (tmp_path / ".fedmmf-known.part").symlink_to(tmp_path / "precious")
    with pytest.raises(Exception, match="File exists"):
        write(tmp_path / "model")
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("write", WRITERS)
def test_temporary_names_are_never_the_same(write, tmp_path, monkeypatch):
    made, create = [], os.open

    def noted(path, *more):
        made.append(str(path))
        return create(path, *more)

    monkeypatch.setattr(os, "open", noted)
    for _ in range(2):
        write(tmp_path / "model")
    parts = [name for name in made if name.endswith(".part")]
    assert len(parts) == len(set(parts)) == 2


def test_pages_are_as_the_umask_has_them_and_private_files_are_not(tmp_path):
    before = os.umask(0o022)
    try:
        a_writer(tmp_path / "page.html")
        (tmp_path / "model").touch()  # one that everybody can read is replaced
        save(tmp_path / "model", {}, {})
        save(tmp_path / "catalogue", {}, {}, is_private=False)
    finally:
        os.umask(before)
    found = {path.name: rights(path) for path in tmp_path.iterdir()}
    assert found == {"page.html": 0o644, "model": 0o600, "catalogue": 0o644}


def test_no_output_is_an_input_or_another_output(tmp_path):
    data, model = tmp_path / "d.csv", tmp_path / "model"
    data.write_text("mine")
    (tmp_path / "link").symlink_to(data)
    (tmp_path / "hard").hardlink_to(data)
    for name in ("d.csv", "link", "hard", "no/../d.csv"):
        with pytest.raises(DataError, match=r"--save must be a file of its own.*--data too"):
            require_outputs({"--save": tmp_path / name}, {"--data": data})
    twice = {"--save": model, "--report": None, "--checkpoint": tmp_path / "x" / ".." / "model"}
    with pytest.raises(DataError, match=r"--checkpoint must be .* that of --save too"):
        require_outputs(twice, {})
    assert data.read_text() == "mine"
    assert not (tmp_path / "x").exists()
    # The name of a set is no file, and what is there may be replaced.
    require_outputs({"--save": model}, {"--data": model, "--features": None})


COMMANDS = [
    "train --data f.csv --save f.csv",
    "train --data f.csv --report f.csv",
    "train --data f.csv --checkpoint f.csv",
    "train --features f.csv --save f.csv",
    "train --profiles f.csv --save f.csv",
    "train --test-file f.csv --save f.csv",
    "train --save x --checkpoint x",
    "train --save x --report x",
    "export --model f.csv --out f.csv",
    "recommend --model f.csv --user 1 --out f.csv",
    "recommend --data f.csv --user 1 --out f.csv",
    "recommend --model m --users f.csv --out f.csv",
    "recommend --model m --ratings f.csv --out f.csv",
    "recommend --model m --user 1 --candidates f.csv --out f.csv",
    "recommend --model m --user 1 --exclude f.csv --out f.csv",
    "report f.csv --out f.csv",
    "report run --out run/train.json",
    "audit --data run/audit.json --out run",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_do_not_overwrite_what_they_are_given(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    for name in ("f.csv", "run/train.json", "run/audit.json"):
        Path(name).write_text("mine")
    done = CliRunner().invoke(app, words.split())
    assert isinstance(done.exception, DataError)
    assert "must be a file of its own" in str(done.exception)
    for name in ("f.csv", "run/train.json", "run/audit.json"):
        assert Path(name).read_text() == "mine"
    assert not Path("x").exists()


def test_a_run_that_is_not_there_is_what_a_report_complains_about(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["report", "nothere.json", "--out", "z.html"])
    assert str(done.exception).startswith("cannot read nothere.json")
    assert not names(tmp_path)


ODD = "a[/b]\x1b]0;title\x07[red]\udcff"


def test_names_reach_the_terminal_as_text(capsys):
    confirm(Path(ODD))
    confirm(Path(ODD), is_private=True)
    confirm_folder(Path(ODD), "audit.json")
    said = capsys.readouterr().err.splitlines()
    name = "a[/b]\ufffd]0;title\ufffd[red]\ufffd"
    assert said[0] == f"saved to {name}"
    assert said[1].startswith(f"saved to {name}; it holds private parts")
    assert said[2] == f"written to {name}: audit.json"


def test_logs_have_nothing_that_a_terminal_obeys():
    record = logging.LogRecord("fedmmf", logging.INFO, "", 0, "site %s left", (ODD,), None)
    assert PrintableFormatter().format(record).isprintable()


def test_a_file_with_an_odd_name_is_trained_on_and_reported(small, tmp_path):
    """From end to end: its name is in the table, the page, the errors and the lines."""
    name = ODD.replace("/", "")
    os.rename(_csv(small, tmp_path), tmp_path / name)  # noqa: PTH104
    quick = ["--mask", "mean", "--rounds", "2", "--save", f"{name}.m", "--report", f"{name}.html"]
    done = fedmmf("train", "--data", name, *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lost = fedmmf("train", "--data", f"{name}.no", cwd=tmp_path)
    assert lost.returncode == 1
    exported = fedmmf("export", "--model", f"{name}.m", "--out", f"{name}.npz", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    assert "holds private parts" in exported.stdout
    assert rights(tmp_path / f"{name}.m") == rights(tmp_path / f"{name}.npz") == 0o600
    said = "".join(run.stdout + run.stderr for run in (done, lost, exported))
    assert "\x1b" not in said
    assert "\x07" not in said
    assert "Traceback" not in said


def _csv(small, folder):
    small.to_frame().write_csv(folder / "r.csv")
    return folder / "r.csv"
