"""Files of identities, written atomically; only its owner may read a secret.

Rights are asked of the open file and not of its path, so that nobody can swap it in between.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmmf.errors import IdentityError
from fedmmf.storage import atomic
from fedmmf.storage.atomic import OWNER_ONLY as OWNER_ONLY

PUBLIC = 0o644
_OTHERS, _ALL = 0o077, 0o777


def create(path: Path, data: bytes, rights: int) -> None:
    """Write a file that is not there yet; one that is there is never touched."""
    try:
        atomic.write_new(path, data, rights)
    except FileExistsError:
        raise IdentityError(
            f"{path} is there already and is never overwritten; choose another name"
        ) from None
    except OSError as error:
        raise IdentityError(f"{path} cannot be written: {error.strerror}") from None


def replace(path: Path, data: bytes) -> None:
    """Write a public file in the place of an older one; a failure leaves that as it was."""
    target = _target(path)
    try:
        rights = target.stat().st_mode & _ALL if target.exists() else PUBLIC
        atomic.write(target, data, rights, is_exact=True)
    except OSError as error:
        raise IdentityError(f"{path} cannot be written: {error.strerror}") from None


def read(path: Path, most: int, *, secret: bool = False) -> bytes:
    """Return what is in a file of at most some bytes; a secret one must be its owner's alone."""
    try:
        # A pipe without a writer would be waited for; whether it is a file is asked below.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise IdentityError(f"{path} must be a file; it is a folder, a pipe or a device")
            if secret:
                _require_owner_only(path, mode)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise IdentityError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:  # a null byte in the path
        raise IdentityError(f"{str(path)!a} cannot be the name of a file") from None
    if len(data) > most:
        raise IdentityError(f"{path} must have at most {most:,} bytes; it has more")
    return data


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others who take the same lock from changing a file meanwhile.

    The lock is a file of its own, since the one that it guards is replaced. It stays; an unlocked
    one is of no consequence.
    """
    target = _target(path)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(target.with_name(f".{target.name}.lock"), flags, OWNER_ONLY)
    except OSError as error:
        raise IdentityError(f"{path} cannot be changed: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _target(path: Path) -> Path:
    """The file behind a link, so that the link stays one."""
    try:
        target = path.resolve()
        if target.is_dir():
            raise IdentityError(f"{path} must be a file; it is a folder")
    except (OSError, RuntimeError, ValueError):  # too long, links in a circle, a null byte
        raise IdentityError(f"{str(path)!a} cannot be the name of a file") from None
    return target


def _require_owner_only(path: Path, mode: int) -> None:
    if mode & _OTHERS:
        raise IdentityError(
            f"{path} must be for its owner alone; its rights are {stat.S_IMODE(mode):03o}, so "
            f"that others may read or change it. If nobody has, run: chmod 600 {path}"
        )
