"""Files that commands write: checked before the work, written atomically, confirmed after it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from fedmmf.cli.output import errors, plain
from fedmmf.errors import DataError, FedMMFError
from fedmmf.storage.atomic import OWNER_ONLY, SHARED, create, unguessable, writing

Files = Mapping[str, Path | None]  # flag -> what was given
PRIVATE = "it holds private parts of all users, and is for its owner alone"


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


def require_outputs(outputs: Files, inputs: Files) -> None:
    """Refuse, before any work, outputs that could not be written after it, or that are in use.

    Args:
        outputs: by their flags; none may be one of the others, or an input.
        inputs: by their flags; what is not there, such as the name of a data set, does not count.
    """
    taken = {flag: path for flag, path in inputs.items() if path is not None and path.exists()}
    for flag, path in outputs.items():
        if path is None:
            continue
        for other, used in taken.items():
            if _is_same(path, used):
                raise DataError(
                    f"{flag} must be a file of its own; {path} is that of {other} too. "
                    "Name another file"
                )
        taken[flag] = path
    for flag, path in outputs.items():
        require_file(path, flag)


def _is_same(one: Path, other: Path) -> bool:
    with suppress(OSError):  # one of them is not there
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = unguessable(folder / "probe")
        os.close(create(probe, OWNER_ONLY))
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(
            f"{what} cannot be written: {reason}. Name a place where you may write"
        ) from None


@contextmanager
def written(path: Path, rights: int = SHARED) -> Iterator[Path]:
    """Make a file to write to, which takes the place of `path` once it is whole."""
    try:
        with writing(path, rights) as partial:
            yield partial
    except OSError as error:
        raise _unwritten(path, error.strerror or str(error)) from None
    except FedMMFError as error:
        raise _unwritten(path, str(error).replace(str(partial), str(path))) from None


def _unwritten(path: Path, reason: str) -> DataError:
    return DataError(f"{path} cannot be written: {reason}. Free some space, or name another file")


def confirm(path: Path, *, is_private: bool = False) -> None:
    """Say on standard error that something is where it was asked for, and whom it is for."""
    more = f"; {PRIVATE}" if is_private else ""
    errors.print(f"saved to {plain(path)}{more}", soft_wrap=True, highlight=False)


def confirm_folder(out: Path, names: str) -> None:
    """Say on standard error which files are in a folder."""
    errors.print(f"written to {plain(out)}: {names}", soft_wrap=True, highlight=False)
