"""The charter: settings that all machines of a federation agree on, in one commented file."""

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from fedmmf.aggregation.contract import CORRUPT
from fedmmf.data.scales import RatingScale
from fedmmf.errors import FedMMFError, SettingsError
from fedmmf.settings import Settings
from fedmmf.settings.explaining import rule_of
from fedmmf.settings.groups import AUTO, Scope, marked, registry_of

MIN_SITES = 3
_MAX_PARTIES = 1000  # of one site where each user is a party
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")  # fits a certificate, a folder and NVFlare
_RESERVED = ("server",)
_Port = Annotated[int, Field(ge=1, le=65535)]
_Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Network(_Part):
    """Addresses and ports of the server and of its status page."""

    host: str = Field("127.0.0.1", description="name or address of the server, for the sites")
    port: _Port = Field(8102, description="where the server listens for sites")
    page_host: str = Field("127.0.0.1", description="where the page and the metrics are shown")
    page_port: _Port = Field(8103, description="their port; the operator's commands use it too")


class Deadlines(_Part):
    """Time limits of the server in seconds, and its number of attempts."""

    answer: _Seconds = Field(60.0, description="for an answer; who is later has dropped out")
    heartbeat: _Seconds = Field(2.0, description="between signs of life of a site")
    gathering: _Seconds = Field(10.0, description="for sites that are still away, before a start")
    patience: _Seconds = Field(600.0, description="for enough sites to be here at once")
    retries: Annotated[int, Field(ge=1, le=1000)] = Field(
        5, description="attempts in a row that may give no sum before training stops"
    )


def _with_mask(training: Settings) -> Settings:
    """A charter names its mask; unchecked, since a server does not load masks."""
    return training.model_copy(update={"mask": "lr"}) if training.mask == AUTO else training


class Charter(_Part):
    """All settings that sites and server must have in common.

    Attributes:
        name: of the federation.
        sites: who may take part.
        party: site: each sums its users, who trust it; user: every user is a party of secure sums.
        max_parties_per_site: with party user, the most users that one site brings into the sums.
            None: 1 with party site; 1,000 with party user where updates leave in the clear.
        reproducible: masks start and ratings are held out as the seed says, not by chance.
        scale: of the ratings.
        network: where the server is.
        deadlines: how long it waits.
        training: what is trained, and how it is summed.
    """

    name: str
    sites: tuple[str, ...]
    party: Literal["site", "user"] = "site"
    max_parties_per_site: Annotated[int, Field(ge=1, le=100_000)] | None = None
    reproducible: bool = False
    scale: tuple[float, float, float] = (1.0, 5.0, 1.0)
    network: Network = Network()
    deadlines: Deadlines = Deadlines()
    training: Settings = _with_mask(Settings.checked(solver="vb", signed=True))

    @field_validator("training")
    @classmethod
    def _has_mask(cls, training: Settings) -> Settings:
        return _with_mask(training)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        misfit = next(self._misfits(), None)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    def _misfits(self) -> Iterator[str]:
        for name in (self.name, *self.sites):
            if not NAME.fullmatch(name) or name in _RESERVED:
                yield f"names are a-z, 0-9 and -, and not 'server'; got {name!r}"
        if len(set(self.sites)) != len(self.sites):
            yield f"each site has a name of its own; got {', '.join(self.sites)}"
        if len(self.sites) < MIN_SITES:
            yield f"a federation has at least {MIN_SITES} sites; got {len(self.sites)}"
        if self.party == "user" and self.training.signed:
            yield "signed sums need party 'site': users have no identities on the list"
        if self.party == "site" and self.training.smallest_cohort > len(self.sites):
            yield (
                f"smallest_cohort is at most the number of sites, {len(self.sites)}; got "
                f"{self.training.smallest_cohort}"
            )
        if not self.training.scheme.across_machines:
            known = registry_of("aggregation")
            able = [name for name in known.names() if known[name].across_machines]
            yield f"sums across machines are {', '.join(able)}; got {self.training.scheme_name}"
        yield from self._scale_misfits()
        yield from self._parties_misfits()
        yield from self._unused()

    def _scale_misfits(self) -> Iterator[str]:
        try:
            RatingScale(*self.scale)
        except SettingsError as error:
            yield f"scale: {error}"

    def _parties_misfits(self) -> Iterator[str]:
        most = self.max_parties_per_site
        if self.party == "site" and most not in (None, 1):
            yield f"a site is one party with party 'site'; got max_parties_per_site {most}"
        if self.party == "user" and most is None and self._hides_in_sums:
            yield (
                "party 'user' needs max_parties_per_site, the most users of one site: all of them "
                "may be corrupt, and the sums have to protect the others all the same. Set it to "
                "the number of users of the largest site, which is less than half of all"
            )

    @property
    def _hides_in_sums(self) -> bool:
        """Whether every update leaves in a secure sum alone."""
        scheme = self.training.scheme
        return bool(scheme.in_clear == "nobody" and scheme.is_secagg(self.training))

    def _unused(self) -> Iterator[str]:
        """Yield an error for equal ports, and for each setting without effect in a federation."""
        network = self.network
        if network.host == network.page_host and network.port == network.page_port:
            yield f"network.port and network.page_port differ; both are {network.port}"
        defaults = Settings()
        for name in sorted(unused_settings()):
            if getattr(self.training, name) != getattr(defaults, name):
                yield f"training.{name} has no meaning in a federation across machines"

    @property
    def most_parties(self) -> int:
        """Maximum number of parties that one site brings."""
        if self.party == "site":
            return 1
        return self.max_parties_per_site or _MAX_PARTIES

    @property
    def corrupt_parties(self) -> int:
        """Parties that corrupt sites may bring: 5 % of the sites, rounded up, with all of theirs.

        0 where a site is one party, so that 5 % of the parties is the same, and where updates
        leave in the clear.
        """
        if self.party == "site" or not self._hides_in_sums:
            return 0
        return math.ceil(CORRUPT * len(self.sites)) * self.most_parties

    @property
    def rating_scale(self) -> RatingScale:
        """Rating scale of the federation."""
        return RatingScale(*self.scale)

    @property
    def url(self) -> str:
        """Address at which sites reach the server."""
        return f"stcp://{self.network.host}:{self.network.port}"

    @property
    def digest(self) -> bytes:
        """A digest of 32 bytes over all that sites and server must agree on."""
        said = self.model_dump(mode="json", exclude={"network": {"page_host", "page_port"}})
        said["training"] = self.training.to_dict()
        text = json.dumps(said, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(b"fedmmf charter 1" + text.encode()).digest()

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build a charter; an invalid value raises `SettingsError`."""
        training = values.get("training")
        if isinstance(training, Mapping):
            values["training"] = Settings.checked(**training)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise SettingsError(_misfit(where, first)) from None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a charter file, which people may have edited."""
        try:
            values = tomllib.loads(path.read_text())
            return cls.checked(**values.pop("federation", {}), **values)
        except OSError as error:
            raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
            raise SettingsError(f"{path} must be as `federation init` writes it: {error}") from None
        except FedMMFError as error:
            raise SettingsError(f"{path}: {error}") from None

    def text(self) -> str:
        """Write the charter as TOML, with a comment for every setting."""
        return "\n".join([*_HEAD, *self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield "[federation]"
        yield f"name = {_toml(self.name)}"
        yield f"sites = {_toml(list(self.sites))}  # who may take part"
        yield f"party = {_toml(self.party)}  # site: each sums its users, who trust it"
        yield "# user: every user is a party of the secure sum, as in the paper"
        most = self.max_parties_per_site
        yield "# with party user: the most users of one site; all of them may be corrupt at once"
        yield "# max_parties_per_site =" if most is None else f"max_parties_per_site = {most}"
        yield f"reproducible = {_toml(self.reproducible)}  # start masks by the seed, not by chance"
        yield f"scale = {_toml(list(self.scale))}  # of the ratings: lowest, highest, step"
        for title, part in (("network", self.network), ("deadlines", self.deadlines)):
            yield from ("", f"[{title}]", *_fields(part, type(part).model_fields))
        used = [name for name in self.training.to_dict() if name not in unused_settings()]
        yield from ("", "[training]", *_fields(self.training, used))


def unused_settings() -> frozenset[str]:
    """Names of the settings that are of no use, or not done yet, where machines are real."""
    return marked(Scope.NOT_FEDERATED)


def _misfit(where: str, error: ErrorDetails) -> str:
    """Say what is wrong with one entry of a charter."""
    if not where:
        return rule_of(error)
    if error["type"] == "extra_forbidden":
        return f"there is no {where}; leave it out, or correct its name"
    got = "" if error["type"] == "missing" else f"; got {error['input']!r}"
    return f"{where}: {rule_of(error)}{got}"


_HEAD = (
    "# What all machines of this federation agree on. Every site has a copy; if one differs in",
    "# anything but the page's address, the server refuses it, and says so by name.",
    "",
)


def _fields(part: BaseModel, names: Any) -> Iterator[str]:
    for name in names:
        value, about = getattr(part, name), type(part).model_fields[name].description
        line = f"{name} = {_toml(value)}"
        yield f"# {about}"
        yield line if value is not None else f"# {name} ="


def _toml(value: Any) -> str:
    """A value as TOML writes it; JSON's texts, numbers, switches and lists are TOML's too."""
    return json.dumps(value)
