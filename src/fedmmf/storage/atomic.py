"""Write files atomically: a reader sees the old file or the new one, never half of one.

A file is written under a random name, brought to the disk and moved to its place; then its folder
is brought to the disk too. Without the last step a loss of power can bring the old file back after
somebody has acted on the new one.

In a folder that others may write to, a link with a name that is known beforehand would lead a
writer to another file. So names are random, and a file is made only where there is none.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OWNER_ONLY, SHARED = 0o600, 0o666  # permissions of new files, before the umask
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PREFIX, _SUFFIX = ".fedmmf-", ".part"  # of the names of files that are being written
_partial: set[Path] = set()  # files that are being written


def create(path: Path, rights: int) -> int:
    """Make a file where there is none, nor a link. Returns its descriptor."""
    return os.open(path, _NEW, rights)


def unguessable(path: Path) -> Path:
    """Return a random name in the same folder, for a temporary file."""
    return path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")


@contextmanager
def writing(path: Path, rights: int, *, is_synced: bool = True) -> Iterator[Path]:
    """Create a new, empty file that replaces `path` atomically at the end.

    Whatever is raised before that leaves `path` as it was, and nothing beside it.

    Args:
        path: the file to replace, or to make.
        rights: of the new file, before the umask takes some.
        is_synced: whether it outlasts a loss of power, and not only the end of the process.
    """
    with _opened(path, rights, is_synced=is_synced) as (partial, _):
        yield partial


def write(
    path: Path, data: bytes, rights: int, *, is_synced: bool = True, is_exact: bool = False
) -> None:
    """Write a file atomically in place of an older one; see `writing`.

    Args:
        path: the file to replace, or to make.
        data: what is in it.
        rights: of the new file.
        is_synced: whether it outlasts a loss of power.
        is_exact: whether it has these very rights, whatever the umask.
    """
    with _opened(path, rights, is_synced=is_synced) as (_, descriptor):
        if is_exact:
            os.fchmod(descriptor, rights)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)


@contextmanager
def _opened(path: Path, rights: int, *, is_synced: bool) -> Iterator[tuple[Path, int]]:
    """Create the temporary file that will replace a file; yields its name and descriptor."""
    partial = unguessable(path)
    _partial.add(partial)
    try:
        descriptor = create(partial, rights)
        try:
            yield partial, descriptor
            if is_synced:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
    except BaseException:
        _unlink(partial)
        raise
    finally:
        _partial.discard(partial)
    if is_synced:
        sync_folder(path.parent)


def write_new(path: Path, data: bytes, rights: int) -> None:
    """Write a file that must not exist, with exactly these rights; a partial one is removed.

    Raises:
        FileExistsError: it is there; it stays as it was.
    """
    descriptor = create(path, rights)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, rights)  # whatever the umask took; never more than was asked
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException:  # ours, since it did not exist before; remove the partial file
        _unlink(path)
        raise
    sync_folder(path.parent)


def make_folder(folder: Path, rights: int = 0o777) -> None:
    """Make a folder and its parents, synced to disk so that they survive a loss of power.

    Args:
        folder: that may be there already.
        rights: of the folder alone, before the umask takes some.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=rights, parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system without this
            raise
    finally:
        os.close(descriptor)


def remove_partial() -> None:
    """Delete partly written files before the process ends."""
    for path in list(_partial):
        _unlink(path)


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files of a killed process; nobody may write there now."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        _unlink(path)


def _unlink(path: Path) -> None:
    with suppress(OSError):  # it may be in its place already
        path.unlink()
