"""Files that are there whole or not at all, under names that nobody can guess until they are.

In a folder that others may write to, a link with a name that is known beforehand would lead a
writer to another file. So names are random, and a file is made only where there is none.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OWNER_ONLY, SHARED = 0o600, 0o666  # rights of new files, before the umask takes some
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_partial: set[Path] = set()  # files that are being written


def create(path: Path, rights: int) -> int:
    """Make a file where there is none, nor a link. Returns its descriptor."""
    return os.open(path, _NEW, rights)


def unguessable(path: Path) -> Path:
    """A name in the same folder, for what is to take the place of a file."""
    return path.with_name(f".fedmmf-{secrets.token_hex(8)}.part")


@contextmanager
def replacing(path: Path, rights: int) -> Iterator[Path]:
    """A new, empty file to write to. At the end it is on the disk and takes the place of `path`.

    Whatever is raised before that leaves `path` as it was, and nothing beside it.
    """
    partial = unguessable(path)
    _partial.add(partial)
    try:
        descriptor = create(partial, rights)
        try:
            yield partial
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        partial.replace(path)
    except BaseException:
        _unlink(partial)
        raise
    finally:
        _partial.discard(partial)


def remove_partial() -> None:
    """Delete what is half written, before a process ends without another word."""
    for path in list(_partial):
        _unlink(path)


def _unlink(path: Path) -> None:
    with suppress(OSError):  # it may be in its place already
        path.unlink()
