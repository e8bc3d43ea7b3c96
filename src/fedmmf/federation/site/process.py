"""The site process: connects, says hello every few seconds, answers, and fetches the model."""

import logging
import secrets
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from fedmmf import __version__
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.folder import Folder, Machine
from fedmmf.federation.hello import PROTOCOL, Hello, Welcome
from fedmmf.federation.limits import beyond_limits, too_large_messages
from fedmmf.federation.needs import import_extra
from fedmmf.federation.provision import server_name
from fedmmf.federation.server import issuer_of
from fedmmf.federation.site.ratings import Outside, SiteRatings, UserRatings, read_ratings, split
from fedmmf.federation.site.site import Site, SitePlan, expectation_of
from fedmmf.federation.site.store import SiteStore
from fedmmf.federation.site.warming import compile_kernels
from fedmmf.identity import Identity, take_part
from fedmmf.party import Policy
from fedmmf.solvers import SOLVERS
from fedmmf.transports.tls import RefusedError, knock, require_own
from fedmmf.wire import name_of

log = logging.getLogger("fedmmf.federation.site")
_ANSWER = 10.0  # seconds that a hello may take
_REMIND = 30  # a warning that comes again and again is logged every so many times


class SiteProcess:
    """The process of one site on this machine.

    Args:
        folder: the federation's, as this site has it.
        name: of the site.
        ratings: of its users; None: those that it was started with before.
        test: share of each user's ratings that `federation evaluate` is made on.
    """

    def __init__(
        self, folder: Folder, name: str, ratings: Path | None = None, test: float = 0.1
    ) -> None:
        self._charter, self.name = folder.charter(), name
        if name not in self._charter.sites:
            known = ", ".join(self._charter.sites)
            raise SettingsError(f"this federation has no site {name!r}; its sites are {known}")
        machine = folder.machine(name)
        require_own(machine.credentials.certificate, name)
        self.store, self.items = SiteStore(machine.state()), ItemList.load(folder.catalogue_file)
        self.outside: Outside | None = None
        holdings = self._holdings(ratings, test)
        policy = policy_for(folder, self._charter, machine)
        plan = SitePlan(name, self._charter, self.items, holdings, policy, self._seed)
        _require_within_limits(plan)
        self.site = Site(plan, self.store)
        holdings.save(self.store.holdings)  # only once it is sure that they may be used
        self.store.keep_test_seed()
        self._policy, self._machine = policy, machine
        self._instance, self._stop = secrets.token_hex(8), Event()
        self.is_welcome = False
        self._warned, self._n_repeats = "", 0  # the last warning, and how often it came again

    @property
    def _seed(self) -> int:
        is_public = self._charter.reproducible
        return self._charter.training.seed if is_public else self.store.seed

    def _holdings(self, path: Path | None, test: float) -> SiteRatings:
        if path is None:
            if not self.store.holdings.exists():
                raise SettingsError("give the site its ratings with --ratings FILE the first time")
            return SiteRatings.load(self.store.holdings)
        self._require_same_share(test)
        ratings, self.outside = read_ratings(path, self.items)
        self._tell_of(ratings, self.outside)
        is_public = self._charter.reproducible
        seed = self._charter.training.seed if is_public else self.store.test_seed
        return split(ratings, test, seed, self.items.ids)

    def _require_same_share(self, test: float) -> None:
        """Refuse another share of test ratings once this site has had a part in a training.

        A larger one would test on ratings that were trained on.
        """
        if not self.store.has_answered or not self.store.holdings.exists():
            return
        share = SiteRatings.load(self.store.holdings).share
        if test != share:
            raise SettingsError(
                f"this site's training began with --test {share:g}; got {test:g}. No rating "
                f"may move to the other part now. Start it with --test {share:g}"
            )

    def _tell_of(self, ratings: UserRatings, outside: Outside) -> None:
        if outside.n_ratings:
            words = "%d ratings of %d items are not in the catalogue and are left aside"
            log.warning(words, outside.n_ratings, outside.n_items)
        log.info("%d users, %d ratings", len(ratings.user_ids), len(ratings.values))

    @property
    def held(self) -> dict[str, int]:
        """Number of users, and of ratings and items outside the catalogue."""
        outside = self.outside or Outside(0, 0, 0)
        return {
            "users": self.site.n_users,
            "ratings_outside": outside.n_ratings,
            "items_outside": outside.n_items,
        }

    def serve(self) -> None:
        """Take part until `stop` is called, whatever happens to the server."""
        if self._charter.party == "site":  # users that are parties compute without kernels
            compile_kernels(self._charter.training)
        log.info("looking for the server at %s", self._charter.url)
        while not self._stop.is_set():
            if self._may_connect():
                self._stay()
            else:
                self._stop.wait(self._charter.deadlines.heartbeat)

    def _may_connect(self) -> bool:
        """Ask first whether the site's place is free: joining would disconnect another process."""
        names = (self.name, server_name(self._charter))
        question = self._instance.encode()
        try:
            said = knock(self._charter.url, self._machine.credentials, names, question)
            welcome = Welcome.decode(said) if said else Welcome(is_welcome=True)
        except (RefusedError, WireError) as error:
            self._warn(f"no way in: {error}; trying again")
            return False
        if not welcome.is_welcome:
            self._warn(f"not let in yet: {welcome.reason}")
        return welcome.is_welcome

    def _warn(self, text: str) -> None:
        """Log a warning when it is new, and now and then while it comes again."""
        self._n_repeats = self._n_repeats + 1 if text == self._warned else 0
        if self._n_repeats % _REMIND == 0:
            log.warning("%s", text)
        self._warned = text

    def _stay(self) -> None:
        """Stay connected until this process is stopped or must wait outside."""
        nvflare = import_extra("fedmmf.transports.nvflare")
        name = server_name(self._charter)
        link = nvflare.CellLink(self.name, self._charter.url, self._machine.credentials, name)
        try:
            link.answer("ask", self.answer)
            link.answer("evaluate", self.evaluate)
            while not self._stop.is_set() and self._is_heard(link):
                self._stop.wait(self._charter.deadlines.heartbeat)
        finally:
            link.close()

    def _is_heard(self, link: Any) -> bool:
        """Say hello; return False where this process must disconnect and ask again."""
        try:
            return self._say_hello(link)
        except WireError as error:  # whatever a server says, a site stays
            self._warn(f"what the server said is of no use: {error}")
            return True

    def stop(self) -> None:
        """Ask `serve` to return soon."""
        self._stop.set()

    def answer(self, who: str, data: bytes) -> bytes:
        """Answer a bundle, once the server has let this site in."""
        if not self.is_welcome:
            raise WireError("this site was not let in yet")
        return self.site.answer(data)

    def evaluate(self, who: str, data: bytes) -> bytes:
        """Answer a question about errors on the site's own test ratings."""
        return self.site.evaluate(data)

    def _say_hello(self, link: Any) -> bool:
        """Say hello; return whether this process stays in the network.

        Where the server does not answer, it stays if the server lets it in when it knocks.
        """
        said = link.ask("hello", {"server": self.hello().encode()}, _ANSWER).get("server")
        if said is None:
            self.is_welcome = False
            return self._may_connect()
        welcome = Welcome.decode(said)
        if welcome.may_retry:
            self.is_welcome = False
            self._warn(f"not let in yet: {welcome.reason}")
            return False
        if not welcome.is_welcome:
            raise SettingsError(f"the server does not let {self.name} in: {welcome.reason}")
        if not self.is_welcome:
            log.info("connected to the server of %s", self._charter.name)
        self.is_welcome, self._warned = True, ""
        if welcome.model and not self.site.model_name:
            self._fetch_model(link, welcome.model)
        return True

    def _fetch_model(self, link: Any, name: str) -> None:
        parcel = link.ask("model", {"server": b""}, self._charter.deadlines.answer).get("server")
        if parcel is not None and name_of(parcel).hex() == name:
            self.site.take_model(parcel)

    def hello(self) -> Hello:
        """Return what the site tells the server every few seconds."""
        run, last_round = self.site.place
        return Hello(
            run=run.hex(),
            round=last_round,
            protocol=PROTOCOL,
            version=__version__,
            charter=self._charter.digest.hex(),
            catalogue=self.items.catalogue.digest.hex(),
            identity=self._policy.public_identity.hex(),
            instance=self._instance,
            parties=len(self.site.parties),
            users=self.site.n_users,
        )


def _require_within_limits(plan: SitePlan) -> None:
    """Refuse what the server would refuse, before masks are fitted or anything is sent."""
    expected, party = expectation_of(plan), plan.charter.party
    update_shape = SOLVERS[expected.solver].update_shape(expected.rank, expected.variant)
    n_users = len(plan.holdings.training.user_ids)
    reason = beyond_limits(1 if party == "site" else n_users, n_users)
    reason = reason or too_large_messages(update_shape, plan.items.catalogue.n_items, party)
    if reason:
        raise SettingsError(f"{plan.name} cannot take part. {reason}")


def policy_for(folder: Folder, charter: Charter, machine: Machine) -> Policy:
    """Return what this site's owner allows: what the charter says, and nothing more."""
    settings = charter.training
    corrupt = charter.corrupt_parties
    most = charter.most_parties * len(charter.sites)
    policy = Policy.of(settings, AttackAudit.of(settings))
    policy = replace(policy, max_parties=most, corrupt=corrupt)
    if settings.scheme.guarantee is not None:
        policy = replace(policy, noise=settings.scheme.guarantee(settings, corrupt))
    if not settings.signed:
        return policy
    member = take_part(
        Identity.read(machine.identity_file),
        folder.trust_file,
        issuer=issuer_of(folder),
        kept=machine.place / "trust.kept.json",
    )
    return replace(policy, identity=member.identity, trusted=member.trusted)
