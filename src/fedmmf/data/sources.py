"""Where a public set's files are, and how to read one out of a zip or a folder."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from fedmmf.data.files import read_bytes
from fedmmf.errors import DataError


def download_folder() -> Path:
    """Return the folder downloads are kept in."""
    return Path(platformdirs.user_data_dir("fedmmf", appauthor=False))


def find(archive: str, folder: str, markers: Sequence[str]) -> Path | None:
    """Return a set's zip or folder: first in FEDMMF_DATA, then among the downloads.

    Args:
        archive: The zip's file name.
        folder: The name of the unzipped folder.
        markers: Files that, all present, show that FEDMMF_DATA is the unzipped folder itself.
    """
    given = os.environ.get("FEDMMF_DATA")
    if given and not Path(given).is_dir():
        raise DataError(f"FEDMMF_DATA must name a folder; {given} is none. Correct or unset it.")
    for root in ([Path(given)] if given else []) + [download_folder()]:
        for candidate in (root / archive, root / folder, root):
            if candidate.is_file() or all((candidate / name).is_file() for name in markers):
                return candidate.resolve()
    return None


def read_member(source: Path, name: str) -> bytes:
    """Return the content of one file of a set, straight from its zip or from its folder."""
    if source.is_dir():
        return read_bytes(source / name)
    try:
        with zipfile.ZipFile(source) as archive:
            return archive.read(_member(archive, name, source))
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, OSError) as error:
        raise DataError(
            f"{source} cannot be read as a zip: {error}. Delete it and get it again."
        ) from error


def _member(archive: zipfile.ZipFile, name: str, source: Path) -> str:
    # The folder inside differs between the publishers' zips and people's own, so only names count.
    found = next((path for path in archive.namelist() if path.rsplit("/", 1)[-1] == name), None)
    if found is None:
        holds = ", ".join(archive.namelist()[:8]) or "nothing"
        raise DataError(f"{source} must contain {name}; it holds {holds}. Get the original zip.")
    return found
