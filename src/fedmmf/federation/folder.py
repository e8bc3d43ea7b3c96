"""A federation's folder: what is in it, on which machine, and for whose eyes.

Everybody has the charter, the catalogue and, where parties sign, the list of identities. Each
machine has a folder of its own, with its certificate and its state; nobody else needs that.
"""

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fedmmf.errors import SettingsError
from fedmmf.federation.charter import NAME, Charter
from fedmmf.transports.contract import Credentials

_PRIVATE = 0o700


@dataclass(frozen=True)
class Folder:
    """Where things are."""

    root: Path

    @property
    def charter_file(self) -> Path:
        """Commented settings."""
        return self.root / "federation.toml"

    @property
    def catalogue_file(self) -> Path:
        """Items, their public features and the scale."""
        return self.root / "catalogue.npz"

    @property
    def trust_file(self) -> Path:
        """Identities that may sign."""
        return self.root / "trust.json"

    @property
    def authority_file(self) -> Path:
        """The certificate that signed all others."""
        return self.root / "authority.pem"

    @property
    def issuer_file(self) -> Path:
        """Public key of whoever keeps the list of identities."""
        return self.root / "issuer.pub"

    @property
    def keeper(self) -> Path:
        """Secrets of whoever keeps the federation; on no other machine."""
        return self.root / "keeper"

    def charter(self) -> Charter:
        """What was agreed on."""
        if not self.charter_file.exists():
            raise SettingsError(
                f"{self.root} is no federation: {self.charter_file.name} is not in it. Make one "
                "with `fedmmf federation init`, or copy what its keeper handed out"
            )
        return Charter.read(self.charter_file)

    def machine(self, name: str) -> "Machine":
        """What belongs to one machine: `server`, or a site's name."""
        if not NAME.fullmatch(name):
            raise SettingsError(f"names are a-z, 0-9 and -; got {name!r}")
        place = self.root / "server" if name == "server" else self.root / "sites" / name
        machine = Machine(name, place, self.authority_file)
        if not machine.credentials.certificate.exists():
            raise SettingsError(
                f"{place} has no certificate of {name!r}. Its keeper has to hand that folder out, "
                "with all files in it"
            )
        return machine


@dataclass(frozen=True)
class Machine:
    """One machine's own folder, for its owner alone."""

    name: str
    place: Path
    authority: Path

    @property
    def credentials(self) -> Credentials:
        """Who it is, in the network."""
        return Credentials(self.authority, self.place / "tls.crt", self.place / "tls.key")

    @property
    def identity_file(self) -> Path:
        """What it signs with."""
        return self.place / "identity.key"

    def state(self) -> Path:
        """Where its state is; made if it is not there."""
        folder = self.place / "state"
        private_folder(folder)
        return folder


def only_process(state: Path) -> IO[bytes]:
    """Keep other processes from this state for as long as the returned file is open."""
    lock = (state / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise SettingsError(
            f"another process of this machine uses {state}; end it before you start one more"
        ) from None
    return lock


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can enter."""
    try:
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        os.chmod(path, _PRIVATE)  # noqa: PTH101
    except OSError as error:
        raise SettingsError(f"{path} cannot be made: {error.strerror}") from None
