"""A federation's folder: which files it has, on which machine, and who may read them.

Everybody has the charter, the catalogue and, where parties sign, the list of identities. Each
machine has a folder of its own, with its certificate and its state; nobody else needs that.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedmmf.errors import SettingsError
from fedmmf.federation.charter import NAME, Charter
from fedmmf.identity.files import OWNER_ONLY, create, read
from fedmmf.storage.atomic import make_folder
from fedmmf.transports.contract import Credentials

_PRIVATE = 0o700
_MAX_KEY = 100_000  # bytes
_MAX_TOKEN = 200


@dataclass(frozen=True)
class Folder:
    """Paths of the files of a federation."""

    root: Path

    @property
    def charter_file(self) -> Path:
        """Path of the charter, a commented TOML file."""
        return self.root / "federation.toml"

    @property
    def catalogue_file(self) -> Path:
        """Path of the items, their public features and the scale."""
        return self.root / "catalogue.npz"

    @property
    def trust_file(self) -> Path:
        """Path of the list of identities that may sign."""
        return self.root / "trust.json"

    @property
    def authority_file(self) -> Path:
        """Path of the certificate that signed all others."""
        return self.root / "authority.pem"

    @property
    def issuer_file(self) -> Path:
        """Path of the public key that signs the trust list."""
        return self.root / "issuer.pub"

    @property
    def keeper(self) -> Path:
        """Folder of the keeper's secrets; it exists on no other machine."""
        return self.root / "keeper"

    def charter(self) -> Charter:
        """Read the charter; raises `SettingsError` where the folder has none."""
        if not self.charter_file.exists():
            raise SettingsError(
                f"{self.root} is no federation: {self.charter_file.name} is not in it. Make one "
                "with `fedmmf federation init`, or copy what its keeper handed out"
            )
        return Charter.read(self.charter_file)

    def machine(self, name: str) -> "Machine":
        """The folder of one machine: `server`, or a site's name."""
        if not NAME.fullmatch(name):
            raise SettingsError(f"names are a-z, 0-9 and -; got {name!r}")
        place = self.root / "server" if name == "server" else self.root / "sites" / name
        machine = Machine(name, place, self.authority_file)
        given = machine.credentials
        for path in (given.authority, given.certificate, given.key):
            if not path.exists():
                raise SettingsError(
                    f"{name!r} needs {path}, which is not there. The federation's keeper has to "
                    "hand it out, with all other files of that machine"
                )
        read(given.key, _MAX_KEY, secret=True)
        return machine


@dataclass(frozen=True)
class Machine:
    """One machine's own folder, for its owner alone."""

    name: str
    place: Path
    authority: Path

    @property
    def credentials(self) -> Credentials:
        """Certificates and key that identify the machine in the network."""
        return Credentials(self.authority, self.place / "tls.crt", self.place / "tls.key")

    @property
    def identity_file(self) -> Path:
        """Path of the key that the machine signs with."""
        return self.place / "identity.key"

    def state(self) -> Path:
        """Folder of the machine's state; it is created if it is missing."""
        folder = self.place / "state"
        private_folder(folder)
        return folder


@contextmanager
def only_process(state: Path) -> Iterator[None]:
    """Lock the state against other processes."""
    with (state / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SettingsError(
                f"another process of this machine uses {state}; end it before you start one more"
            ) from None
        yield


def token_in(state: Path) -> str:
    """Return the token of the operator's commands; it is created if it is missing."""
    path = state / "token"
    if not path.exists():
        create(path, secrets.token_urlsafe(32).encode(), OWNER_ONLY)
    return read(path, _MAX_TOKEN, secret=True).decode()


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter, so that it outlasts a loss of power."""
    try:
        make_folder(path, _PRIVATE)
        os.chmod(path, _PRIVATE)  # noqa: PTH101
    except OSError as error:
        raise SettingsError(f"{path} cannot be made: {error.strerror}") from None
