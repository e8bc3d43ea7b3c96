"""Make a federation: certificates by NVFlare's provisioning, identities, and who gets what."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedmmf.errors import SettingsError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.folder import Folder, private_folder
from fedmmf.federation.needs import import_extra
from fedmmf.identity import TrustList, enrol
from fedmmf.identity.files import OWNER_ONLY, PUBLIC, create
from fedmmf.identity.key_files import Identity

_VALID_DAYS = 825  # accepted by browsers and OpenSSL without a warning
_ORGANISATION = "fedmmf"


@dataclass(frozen=True)
class Handout:
    """The files that one machine needs, as paths in the federation's folder."""

    machine: str
    files: tuple[str, ...]


def provision(folder: Folder, charter: Charter, items: ItemList) -> list[Handout]:
    """Write everything that machines need; nothing that is there is overwritten."""
    if folder.charter_file.exists():
        raise SettingsError(
            f"{folder.root} has a federation already; choose another folder, or add a site to it "
            "with `fedmmf federation init --add SITE`"
        )
    try:
        folder.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"{folder.root} cannot be made: {error.strerror}") from None
    private_folder(folder.keeper)
    authority = Authority.new(folder, charter.name)
    for machine in ("server", *charter.sites):
        authority.issue(machine, charter)
    if charter.training.signed:
        _identities(folder, charter)
    items.save(folder.catalogue_file)
    create(folder.charter_file, charter.text().encode(), PUBLIC)
    return handouts(charter, ("server", *charter.sites))


def add_site(folder: Folder, site: str) -> list[Handout]:
    """Let one more site take part: its certificate, its identity, and the next list."""
    old = folder.charter()
    charter = Charter.checked(**{**dict(old), "sites": (*old.sites, site)})
    Authority.read(folder, old.name).issue(site, charter)
    if charter.training.signed:
        issuer = Identity.read(folder.keeper / "issuer.key")
        card = enrol(folder.root / "sites" / site / "identity.key", site, site)
        known = TrustList.read(folder.trust_file, issuer=issuer.public)
        known.adding([card], issuer).save(folder.trust_file)
    folder.charter_file.write_text(charter.text())
    return handouts(charter, (site,))


def handouts(charter: Charter, machines: Iterable[str]) -> list[Handout]:
    """List which machine gets which files."""
    common = ["federation.toml", "catalogue.npz", "authority.pem"]
    if charter.training.signed:
        common += ["trust.json", "issuer.pub"]
    return [
        Handout(name, (*common, "server/" if name == "server" else f"sites/{name}/"))
        for name in machines
    ]


def _identities(folder: Folder, charter: Charter) -> None:
    issuer = Identity.new()
    issuer.save(folder.keeper / "issuer.key")
    create(folder.issuer_file, issuer.public.hex().encode() + b"\n", PUBLIC)
    cards = [
        enrol(folder.root / "sites" / site / "identity.key", site, site) for site in charter.sites
    ]
    TrustList.first(charter.name, cards, issuer).save(folder.trust_file)


class Authority:
    """Signs certificates, with NVFlare's own provisioning."""

    def __init__(self, folder: Folder, name: str, key: Any) -> None:
        self._folder, self._key = folder, key
        self._lighter = import_extra("nvflare.lighter.utils")
        self._subject = self._lighter.Identity(f"{name} authority", _ORGANISATION)

    @classmethod
    def new(cls, folder: Folder, name: str) -> "Authority":
        """Make a new authority, whose key stays with the keeper."""
        lighter = import_extra("nvflare.lighter.utils")
        key, public = lighter.generate_keys()
        made = cls(folder, name, key)
        certificate = lighter.generate_cert(
            made._subject, made._subject, key, public, ca=True, **_validity()
        )
        create(folder.authority_file, lighter.serialize_cert(certificate), PUBLIC)
        secret = lighter.serialize_pri_key(key)
        create(folder.keeper / "authority.key", secret, OWNER_ONLY)
        return made

    @classmethod
    def read(cls, folder: Folder, name: str) -> "Authority":
        """Read the authority that made this federation."""
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        path = folder.keeper / "authority.key"
        if not path.exists():
            raise SettingsError(f"only the federation's keeper can do that: {path} is not here")
        return cls(folder, name, load_pem_private_key(path.read_bytes(), None))

    def issue(self, machine: str, charter: Charter) -> None:
        """Issue a key and a certificate for one machine."""
        is_server = machine == "server"
        place = self._folder.root / ("server" if is_server else Path("sites") / machine)
        private_folder(place)
        key, public = self._lighter.generate_keys()
        certificate = self._lighter.generate_cert(
            self._lighter.Identity(server_name(charter) if is_server else machine, _ORGANISATION),
            self._subject,
            self._key,
            public,
            **_validity(),
            server_default_host=charter.network.host if is_server else None,
        )
        create(place / "tls.key", self._lighter.serialize_pri_key(key), OWNER_ONLY)
        create(place / "tls.crt", self._lighter.serialize_cert(certificate), PUBLIC)


def _validity() -> dict[str, datetime]:
    """Since yesterday, for machines whose clocks are behind."""
    since = datetime.now(UTC) - timedelta(days=1)
    return {"not_valid_before": since, "not_valid_after": since + timedelta(days=_VALID_DAYS)}


def server_name(charter: Charter) -> str:
    """The name in the server's certificate, which no site's can have."""
    return f"{charter.name}.server"
