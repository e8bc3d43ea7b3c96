"""Files are written atomically, under names that nobody knows, and outlast a loss of power."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from fedmmf.federation.folder import private_folder
from fedmmf.federation.store import RunStore
from fedmmf.identity import files
from fedmmf.storage import atomic, checkpoints

ROOT = Path(__file__).parents[2] / "src" / "fedmmf"


class Disk:
    """What is brought to the disk and what is moved, in order."""

    def __init__(self, patch):
        self.events = []
        sync, move = os.fsync, os.replace

        def fsync(descriptor):
            sync(descriptor)
            self.events.append(("sync", Path(f"/proc/self/fd/{descriptor}").readlink()))

        def replace(source, target):
            move(source, target)
            self.events.append(("move", Path(source), Path(target)))

        patch.setattr(os, "fsync", fsync)
        patch.setattr(os, "replace", replace)


@pytest.fixture
def disk(monkeypatch):
    return Disk(monkeypatch)


@pytest.fixture
def folder(tmp_path):
    return tmp_path.resolve()


WRITERS = {
    "write": lambda path: atomic.write(path, b"new", 0o600),
    "checkpoint": lambda path: checkpoints.save(path, {"x": np.zeros(3)}, {"kind": "run"}),
    "identity": lambda path: files.replace(path, b"new"),
    "attempt": lambda path: RunStore(path.parent, {}).begin_attempt(3),
    "model": lambda path: RunStore(path.parent, {}).save_model(b"new"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_the_file_then_its_name_then_the_folder_are_on_the_disk(folder, disk, writer):
    WRITERS[writer](folder / "file")
    (first, partial), (second, source, target), (third, synced) = disk.events
    assert (first, second, third) == ("sync", "move", "sync")
    assert partial == source
    assert source.parent == target.parent == synced == folder


def test_a_new_file_and_a_line_of_a_new_log_are_on_the_disk_with_their_folder(folder, disk):
    files.create(folder / "key", b"secret", 0o600)
    RunStore(folder, {}).note_round({"round": 1})
    RunStore(folder, {}).note_round({"round": 2})
    log = folder / "rounds.jsonl"
    assert [event[1] for event in disk.events] == [folder / "key", folder, log, folder, log]


def test_folders_that_are_made_on_the_way_are_on_the_disk(folder, disk):
    checkpoints.save(folder / "a" / "b" / "file", {}, {"kind": "run"})
    synced = [event[1] for event in disk.events if event[0] == "sync"]
    assert synced[:2] == [folder / "a", folder]
    assert synced[-1] == folder / "a" / "b"


def test_folders_of_states_and_guards_are_on_the_disk(folder, disk):
    """A site whose folder of guards is lost together with its state would answer again."""
    private_folder(folder / "site" / "guards")
    assert [event[1] for event in disk.events] == [folder / "site", folder]
    assert stat.S_IMODE((folder / "site" / "guards").stat().st_mode) == 0o700


def test_what_need_not_last_is_not_waited_for(folder, disk):
    atomic.write(folder / "status", b"x", atomic.SHARED, is_synced=False)
    assert [event[0] for event in disk.events] == ["move"]


@pytest.mark.parametrize("writer", WRITERS)
def test_nobody_can_lay_a_link_where_a_file_will_be_written(folder, writer, monkeypatch):
    """Names of files that are being written are random, and links are not followed."""
    other = folder / "other"
    other.mkdir()
    for name in ("file", "attempt", "model.bin"):
        (folder / f"{name}.part").symlink_to(other / "victim")
    WRITERS[writer](folder / "file")
    assert list(other.iterdir()) == []
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: "known")
    (folder / ".fedmmf-known.part").symlink_to(other / "victim")
    with pytest.raises(FileExistsError):
        atomic.write(folder / "file", b"x", 0o600)
    assert list(other.iterdir()) == []


@pytest.mark.parametrize("is_exact", [False, True])
def test_rights_are_those_that_were_asked_for(folder, is_exact):
    before = os.umask(0o077)
    try:
        atomic.write(folder / "file", b"x", 0o644, is_exact=is_exact)
    finally:
        os.umask(before)
    mode = stat.S_IMODE((folder / "file").stat().st_mode)
    assert mode == (0o644 if is_exact else 0o600)


def test_what_a_run_is_recovered_from_is_for_its_owner_alone(folder):
    store = RunStore(folder, {})
    store.begin_attempt(1)
    store.save_model(b"x")
    for name in ("attempt", "model.bin"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(folder, monkeypatch, at):
    (folder / "file").write_bytes(b"old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, at, full)
    with pytest.raises(OSError, match="No space"):
        atomic.write(folder / "file", b"new", 0o600)
    assert [path.name for path in folder.iterdir()] == ["file"]
    assert (folder / "file").read_bytes() == b"old"


def test_there_is_one_place_where_files_are_moved_and_synced():
    """A download keeps its part under a known name, so that the next attempt finds it.

    A log is added to, not replaced.
    """
    known = {"storage/atomic.py", "data/sources.py", "federation/store.py"}
    words = ("os.fsync", "os.replace", "os.rename", '".part"')
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(word in path.read_text() for word in words)
    }
    assert found == known
