"""Where a public set's files are: how to find, download and read them.

A download resumes where it broke off and is checked before it counts. It is written on urllib,
because the usual helper, pooch, cannot resume, and one of the sets is 65 MB.
"""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import platformdirs

from fedmmf.data.files import read_bytes
from fedmmf.errors import DataError, DownloadError

Progress = Callable[[int, int | None], None]
"""Called with the bytes present so far and the total, if the server tells it."""
_CHUNK = 1 << 16
_ATTEMPTS = 3
_TIMEOUT_S = 30.0
_PAUSE_S = 0.5


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


def fetch(url: str, sha256: str, target: Path, progress: Progress | None = None) -> Path:
    """Download `url` to `target`, resuming a part left by an earlier attempt.

    Raises:
        DownloadError: The server refuses, the connection keeps breaking (what came is kept and the
            next call resumes), or the content does not have the given checksum (it is removed).
    """
    part = target.with_name(target.name + ".part")
    _make_folder(target.parent)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _download(url, part, progress)
            break
        except urllib.error.HTTPError as error:
            raise DownloadError(f"{url} answered {error.code} {error.reason}.") from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == _ATTEMPTS:
                raise DownloadError(_broken(url, part, error)) from error
            time.sleep(_PAUSE_S * attempt)
    _check(part, sha256, url)
    return part.replace(target)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DownloadError(f"Downloads go to {folder}, which cannot be made: {error}.") from error


def _broken(url: str, part: Path, error: Exception) -> str:
    size = part.stat().st_size if part.exists() else 0
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    return (
        f"The download of {url} broke off after {size:,} bytes ({_ATTEMPTS} attempts): {reason}. "
        "The part is kept: the same command resumes it."
    )


def _download(url: str, part: Path, progress: Progress | None) -> None:
    """Append to `part` what is missing of `url`, or start over where the server cannot resume."""
    present = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={present}-"} if present else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - registry addresses only
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not present:
            raise
        part.unlink()  # the part is as long as the file or longer, so it cannot be its beginning
        return _download(url, part, progress)
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        with part.open("ab" if resumed else "wb") as file:
            _copy(response, file, present if resumed else 0, progress)
    return None


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, present: int, progress: Progress | None
) -> None:
    # `length` is what the server still owes; it becomes None or shrinks as the body is read.
    total = None if response.length is None else present + response.length
    while chunk := response.read1(_CHUNK):
        file.write(chunk)
        present += len(chunk)
        if progress is not None:
            progress(present, total)
    if total is not None and present < total:
        raise http.client.IncompleteRead(b"", total - present)


def _check(part: Path, sha256: str, url: str) -> None:
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        part.unlink()
        raise DownloadError(
            f"{url} must have the SHA-256 {sha256}; got {found}. The file was removed; "
            "try again, and if it happens twice do not trust the source."
        )
