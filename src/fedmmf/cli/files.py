"""Files that commands write: looked at before the work, whole or not at all, confirmed after it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.output import errors
from fedmmf.errors import DataError, FedMMFError

_partial: set[Path] = set()  # files that are being written


def require_file(path: Path | None, flag: str) -> None:
    """Refuse, before any work, a file that could not be written after it.

    Nothing that is there is changed, except that folders on the way to it are made.
    """
    if path is None:
        return
    if path.is_dir():
        example = path / "NAME"
        raise DataError(f"{flag} must be a file; {path} is a folder. Name a file, as {example}")
    if path.exists() and not path.is_file():
        raise DataError(f"{flag} must be a file; {path} is a device. Name a file")
    if path.exists() and not os.access(path, os.W_OK):
        raise DataError(f"{flag}: {path} cannot be written: it is read-only. Name another file")
    _require_folder(path.parent, f"{flag}: {path}")


def require_folder(path: Path | None, flag: str) -> None:
    """Refuse, before any work, a folder that files could not be written to; it is made."""
    if path is None:
        return
    if path.exists() and not path.is_dir():
        raise DataError(f"{flag} must be a folder; {path} is a file. Name a folder")
    _require_folder(path, f"{flag}: {path}")


def _out_folder(context: typer.Context, path: Path | None) -> Path | None:
    """`require_folder`, as what an option does with its value."""
    if not context.resilient_parsing:  # somebody only completes a line
        require_folder(path, "--out")
    return path


FolderOption = Annotated[
    Path, typer.Option("--out", callback=_out_folder, help="Folder of results.")
]
GOING_ON = typer.Option(
    "--out", callback=_out_folder, help="Folder of results; a killed run continues."
)
GoingOnOption = Annotated[Path, GOING_ON]


def _require_folder(folder: Path, what: str) -> None:
    probe = folder / f".fedmmf-{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"{what} cannot be written: {reason}. Name a place where you may write"
        ) from None


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A file to write to, which takes the place of `path` once it is whole."""
    partial = path.with_name(f".{path.stem}-{os.getpid()}.part{path.suffix}")
    _partial.add(partial)
    try:
        yield partial
        partial.replace(path)
    except (OSError, FedMMFError) as error:
        _unlink(partial)
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        text = str(reason).replace(str(partial), str(path))
        raise DataError(
            f"{path} cannot be written: {text}. Free some space, or name another file"
        ) from None
    finally:
        _partial.discard(partial)


def remove_partial() -> None:
    """Delete what is half written, before a process ends without another word."""
    for path in list(_partial):
        _unlink(path)


def _unlink(path: Path) -> None:
    with suppress(OSError):  # it may never have been there
        path.unlink()


def confirm(path: Path) -> None:
    """Say on standard error that something is where it was asked for."""
    errors.print(f"saved to {path}", soft_wrap=True, markup=False, highlight=False)
