"""The site process: connects, says hello every few seconds, answers, and fetches the model."""

import logging
import secrets
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from fedmmf import __version__
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.folder import Folder, Machine
from fedmmf.federation.hello import PROTOCOL, Hello, Welcome
from fedmmf.federation.needs import needs_nvflare
from fedmmf.federation.provision import server_name
from fedmmf.federation.server import issuer_of
from fedmmf.identity import Identity, take_part
from fedmmf.party import Policy
from fedmmf.simulation.prepared import policy_of
from fedmmf.site.ratings import Outside, SiteRatings, UserRatings, read_ratings, split
from fedmmf.site.site import Site, SitePlan
from fedmmf.site.store import SiteStore
from fedmmf.wire import name_of

log = logging.getLogger("fedmmf.site")
_ANSWER = 10.0  # seconds that a hello may take
_REMIND = 30  # hellos without an answer after which it is said again


class SiteProcess:
    """One site on this machine.

    Args:
        folder: the federation's, as this site has it.
        name: of the site.
        ratings: of its users; None: those that it was started with before.
        test: share of each user's ratings that `federation evaluate` is made on.
    """

    def __init__(
        self, folder: Folder, name: str, ratings: Path | None = None, test: float = 0.1
    ) -> None:
        self._charter, self._name = folder.charter(), name
        if name not in self._charter.sites:
            known = ", ".join(self._charter.sites)
            raise SettingsError(f"this federation has no site {name!r}; its sites are {known}")
        machine = folder.machine(name)
        self._store, self._items = SiteStore(machine.state()), ItemList.load(folder.catalogue_file)
        self.outside: Outside | None = None
        holdings = self._holdings(ratings, test)
        policy = policy_for(folder, self._charter, machine)
        plan = SitePlan(name, self._charter, self._items, holdings, policy, self._seed)
        self.site = Site(plan, self._store)
        holdings.save(self._store.holdings)  # only once it is sure that they may be used
        self._policy, self._machine = policy, machine
        self._instance, self._stop = secrets.token_hex(8), Event()
        self._is_welcome = False
        self._n_unheard = 0  # hellos in a row

    @property
    def _seed(self) -> int:
        is_public = self._charter.reproducible
        return self._charter.training.seed if is_public else self._store.seed

    def _holdings(self, path: Path | None, test: float) -> SiteRatings:
        if path is None:
            if not self._store.holdings.exists():
                raise SettingsError("give the site its ratings with --ratings FILE the first time")
            return SiteRatings.load(self._store.holdings)
        ratings, self.outside = read_ratings(path, self._items)
        self._tell_of(ratings, self.outside)
        return split(ratings, test, self._seed)

    def _tell_of(self, ratings: UserRatings, outside: Outside) -> None:
        if outside.n_ratings:
            words = "%d ratings of %d items are not in the catalogue and are left aside"
            log.warning(words, outside.n_ratings, outside.n_items)
        log.info("%d users, %d ratings", len(ratings.user_ids), len(ratings.values))

    @property
    def held(self) -> dict[str, int]:
        """What this site holds, for its own eyes."""
        outside = self.outside or Outside(0, 0, 0)
        return {
            "users": self.site.n_users,
            "ratings_outside": outside.n_ratings,
            "items_outside": outside.n_items,
        }

    def serve(self) -> None:
        """Take part until `stop` is called, whatever happens to the server."""
        nvflare = needs_nvflare("fedmmf.transports.nvflare")
        name = server_name(self._charter)
        link = nvflare.CellLink(self._name, self._charter.url, self._machine.credentials, name)
        log.info("looking for the server at %s", self._charter.url)
        try:
            link.answer("ask", self._answer)
            link.answer("evaluate", self._evaluate)
            while not self._stop.is_set():
                try:
                    self._say_hello(link)
                except WireError as error:  # whatever a server says, a site stays
                    log.warning("what the server said is of no use: %s", error)
                self._stop.wait(self._charter.deadlines.heartbeat)
        finally:
            link.close()

    def stop(self) -> None:
        """End `serve`."""
        self._stop.set()

    def _answer(self, who: str, data: bytes) -> bytes:
        if not self._is_welcome:
            raise WireError("this site was not let in yet")
        return self.site.answer(data)

    def _evaluate(self, who: str, data: bytes) -> bytes:
        return self.site.evaluate(data).encode()

    def _say_hello(self, link: Any) -> None:
        said = link.ask("hello", {"server": self._hello().encode()}, _ANSWER).get("server")
        if said is None:
            if self._is_welcome or self._n_unheard % _REMIND == 0:
                log.warning("the server at %s does not answer; trying again", self._charter.url)
            self._is_welcome, self._n_unheard = False, self._n_unheard + 1
            return
        self._n_unheard = 0
        welcome = Welcome.decode(said)
        if welcome.may_retry:
            log.warning("not let in yet: %s", welcome.reason)
            return
        if not welcome.is_welcome:
            raise SettingsError(f"the server does not let {self._name} in: {welcome.reason}")
        if not self._is_welcome:
            log.info("connected to the server of %s", self._charter.name)
        self._is_welcome = True
        if welcome.model and not self.site.model_name:
            self._fetch_model(link, welcome.model)

    def _fetch_model(self, link: Any, name: str) -> None:
        parcel = link.ask("model", {"server": b""}, self._charter.deadlines.answer).get("server")
        if parcel is not None and name_of(parcel).hex() == name:
            self.site.take_model(parcel)

    def _hello(self) -> Hello:
        return Hello(
            protocol=PROTOCOL,
            version=__version__,
            charter=self._charter.digest.hex(),
            catalogue=self._items.catalogue.digest.hex(),
            identity=self._policy.public_identity.hex(),
            instance=self._instance,
            parties=len(self.site.parties),
            users=self.site.n_users,
        )


def policy_for(folder: Folder, charter: Charter, machine: Machine) -> Policy:
    """What this site's owner allows: what the charter says, and nothing more."""
    settings = charter.training
    policy = policy_of(settings)
    if settings.aggregation == "dp":
        from fedmmf.sums.dp.guarantee import guarantee_of

        policy = replace(policy, noise=guarantee_of(settings))
    if not settings.signed:
        return policy
    member = take_part(
        Identity.read(machine.identity_file),
        folder.trust_file,
        issuer=issuer_of(folder),
        kept=machine.place / "trust.kept.json",
    )
    return replace(policy, identity=member.identity, trusted=member.trusted)
