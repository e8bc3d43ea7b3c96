"""The server process: admits sites, trains when ordered to, and shows its progress."""

import logging
import math
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from fedmmf import __version__
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.errors import FedMMFError, SettingsError, WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import UNUSED, Charter
from fedmmf.federation.evaluation import ErrorSession, SummedErrors
from fedmmf.federation.folder import Folder
from fedmmf.federation.hello import Welcome, shown
from fedmmf.federation.limits import too_large_messages
from fedmmf.federation.needs import needs_nvflare
from fedmmf.federation.page import StatusPage
from fedmmf.federation.provision import server_name
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.status import STRANGER, Board, Evaluated, FederationStatus, now
from fedmmf.federation.store import RunStore
from fedmmf.federation.training import StoppedError, Training
from fedmmf.identity import TrustList
from fedmmf.identity.files import OWNER_ONLY, create, read
from fedmmf.masks.feature_maps import expand
from fedmmf.reports.applied import in_use
from fedmmf.server.federation import ServerPlan
from fedmmf.solvers.contract import design_of
from fedmmf.storage.atomic import remove_leftovers
from fedmmf.wire import name_of

TOKEN_FILE = "token"  # noqa: S105
_KEPT = {"round", "rounds", "attempts", "held_out", "evaluation", "incidents"}  # by a new server
_WHO = {  # what "users" means in what follows
    "site": "Each site sums its own users, who trust it. What follows is said of sites.",
    "user": "Every user is a party of the sums; the site has the ratings that it was given.",
}
_DONE = "training is done; sites fetch the model by themselves"
_MODEL_PAUSE = 10.0  # seconds before a site is sent the model again: it may not read it
_STRANGER_PAUSE = 1.0  # seconds between refused connections that are shown
_REFRESH = 1.0  # seconds between statuses where nothing happens
_FETCHING = 3  # heartbeats after the end of a training within which sites fetch the model
_LOOK = 0.1  # seconds between checks whether they have
_LAST_SECONDS = 5.0  # that a training may still take where the server ends with an error
_MAX_TOKEN = 200
log = logging.getLogger("fedmmf.server")


class Server:
    """The server of a federation on this machine.

    Args:
        folder: the federation's.
        is_centred: whether the mask takes the mean away, so that an unknown rating is 0.
        sees_features: whether the mask depends on item features.
    """

    def __init__(self, folder: Folder, *, is_centred: bool, sees_features: bool) -> None:
        self._charter, self._items = folder.charter(), ItemList.load(folder.catalogue_file)
        _require_same_scale(self._charter, self._items)
        self._machine, self._state = folder.machine("server"), folder.machine("server").state()
        self._plan = self._make_plan(is_centred, sees_features)
        catalogue = self._items.catalogue
        digests = {
            "charter": self._charter.digest.hex(),
            "catalogue": catalogue.digest.hex(),
        }
        remove_leftovers(self._state)
        self._store = RunStore(self._state, digests)
        before = self._store.status()
        self._board = Board(self._first_picture(before), self._store.save_status)
        admission = Admission(self._charter, catalogue.digest, identities_of(folder))
        self._page = self._make_page()
        self._page.start()  # before the network, whose threads would outlive a failure here
        self._link = self._open_link()
        self._sites = Sites(self._link, admission, self._show_sites, self._tell_of_refusal)
        self._sites.remember(() if before is None else before.sites)
        self._stop = Event()
        self._training: Training | None = None
        self._thread: Thread | None = None
        self._sent: dict[str, float] = {}  # when each site was sent the model
        self._offered = 0.0  # when the model was first offered to sites
        self._evaluating = Lock()  # a site is in one sum of errors at a time
        self._stranger_told = -_STRANGER_PAUSE  # when the last refused connection was shown

    def _make_plan(self, is_centred: bool, sees_features: bool) -> ServerPlan:
        seen = expand(self._charter.training.mask, self._items.features)
        plan = ServerPlan(
            settings=self._charter.training,
            catalogue=self._items.catalogue,
            is_centred=is_centred,
            ratings_per_user=None,  # known after the survey
            regressors=self._items.features,
            design=design_of(seen, sees_features=sees_features),
        )
        n_items = self._items.catalogue.n_items
        if reason := too_large_messages(plan.update_shape, n_items, self._charter.party):
            raise SettingsError(reason)
        return plan

    def _first_picture(self, before: FederationStatus | None) -> FederationStatus:
        settings = self._charter.training
        kept = {} if before is None else before.model_dump(include=_KEPT)
        return FederationStatus(
            **kept,
            federation=self._charter.name,
            version=__version__,
            detail="waiting for sites; `fedmmf federation run` begins the training",
            smallest_cohort=settings.smallest_cohort,
            settings=settings_shown(self._charter),
            protection=(_WHO[self._charter.party], *AGGREGATIONS[settings.sums].words(settings)),
            started=now(),
        )

    def _open_link(self) -> Any:
        network = self._charter.network
        require_free_port(network.host, network.port, "sites", "network.port")
        nvflare = needs_nvflare("fedmmf.transports.nvflare")
        name = server_name(self._charter)
        return nvflare.CellLink("server", self._charter.url, self._machine.credentials, name)

    def _make_page(self) -> StatusPage:
        network = self._charter.network
        actions: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "run": self.run_training,
            "evaluate": self.evaluate,
        }
        token, host, port = token_in(self._state), network.page_host, network.page_port
        return StatusPage(self._board, host=host, port=port, token=token, actions=actions)

    @property
    def page_url(self) -> str:
        """Address of the status page, for a browser on this machine."""
        return self._page.url

    def serve(self) -> None:
        """Let sites in until `stop` is called; go on with a training that was going on.

        Whatever ends it, its threads end and its ports are free afterwards.
        """
        try:
            self._serve()
        except BaseException as error:
            self.stop()
            self._end(f"the server ended with an error: {error}", patience=_LAST_SECONDS)
            raise
        self._end("the server was stopped; start it to go on")

    def _serve(self) -> None:
        self._link.door.answer = self._sites.knock
        self._link.door.refused = self._tell_of_stranger
        self._link.answer("hello", self._sites.hello)
        self._link.answer("model", self._model_for)
        self._board.show(rounds=self._charter.training.max_rounds)
        if self._store.model:
            self._offer(self._store.model)
            self._board.show(state="finished", detail=_DONE)
        elif self._marker.exists():
            self._begin()
        while not self._stop.wait(_REFRESH):
            self._show_sites()

    def _model_for(self, site: str, data: bytes) -> bytes:
        """Return the model for an admitted site; limits how often a site gets it."""
        now_s = time.monotonic()
        is_early = now_s - self._sent.get(site, -_MODEL_PAUSE) < _MODEL_PAUSE
        if site not in self._sites.here() or is_early:
            raise WireError("only a site that was let in is sent the model, and not at once again")
        self._sent[site] = now_s
        return self._store.model

    def stop(self) -> None:
        """Make `serve` return, between two rounds."""
        self._stop.set()
        if self._training is not None:
            self._training.stop()

    def _end(self, detail: str, patience: float | None = None) -> None:
        """Close everything; `patience` is the seconds that a round may still take, None: any."""
        if self._thread is not None:
            self._thread.join(patience)
        self._board.show(state="stopped", detail=detail)
        self._page.stop()
        self._link.close()

    @property
    def _marker(self) -> Path:
        """There while a training is going on, whether a server runs or not."""
        return self._state / "training"

    # What an operator asks for

    def run_training(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Start training, or continue it."""
        if self._store.model:
            raise SettingsError(
                "training is done. To train anew, stop the server, move "
                f"{self._state} and the sites' state folders away, and start them again"
            )
        if self._thread is None or not self._thread.is_alive():
            self._board.show(state="waiting", detail="training begins")
            self._marker.touch()
            self._begin()
        return {"training": True}

    def _begin(self) -> None:
        parts = (self._plan, self._charter, self._sites, self._store, self._board)
        self._training = Training(*parts)
        for line in self._board.status.protection:  # adaptive sharing exposes, and says so here
            log.info("%s", line)
        self._thread = Thread(target=self._train, args=(self._training,), daemon=True)
        self._thread.start()

    def _train(self, training: Training) -> None:
        try:
            parcel = training.run()
        except StoppedError as error:
            log.info("%s", error)
        except FedMMFError as error:
            log.error("training stopped: %s", error)
            self._board.show(state="failed", detail=str(error))
            self._marker.unlink(missing_ok=True)
        except Exception as error:  # a fault of ours must not look like training
            log.exception("training stopped by a fault")
            self._board.show(state="failed", detail=f"{type(error).__name__}: {error}")
        else:
            self._offer(parcel)
            self._marker.unlink(missing_ok=True)
            self._board.show(state="finished", detail=_DONE)
            log.info("training is done")

    def _offer(self, parcel: bytes) -> None:
        self._offered = time.monotonic()
        self._sites.welcome = Welcome(is_welcome=True, model=name_of(parcel).hex())

    def evaluate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sum the sites' errors on their own test ratings, securely, and once for a model."""
        parcel = self._store.model
        if not parcel:
            raise SettingsError("there is nothing to evaluate before training is done")
        _require_errors(self._charter)
        model = name_of(parcel)
        with self._evaluating:
            found = self._store.evaluation(model) or self._evaluated(model)
        self._board.show(evaluation=found)
        return found.model_dump()

    def _wait_for_fetching(self) -> None:
        """Until sites have the model: a model is judged once, and without those who have it not."""
        until = self._offered + _FETCHING * self._charter.deadlines.heartbeat
        while time.monotonic() < until and not self._sent.keys() >= set(self._sites.here()):
            if self._stop.wait(_LOOK):
                return

    def _evaluated(self, model: bytes) -> Evaluated:
        self._wait_for_fetching()
        here, deadline = self._sites.here(), self._charter.deadlines.answer
        identities = {site: self._sites.identity_of(site) for site in here}
        session = ErrorSession(
            self._charter,
            model,
            identities,
            lambda questions: self._link.ask("evaluate", questions, deadline),
        )
        found = evaluated_of(session.run(here), self._charter, self._items.scale.span)
        self._store.save_evaluation(model, found)
        return found

    def _tell_of_refusal(self, site: str, reason: str) -> None:
        self._board.tell(site, "hello", f"was not let in: {reason}")

    def _tell_of_stranger(self, address: str, reason: str) -> None:
        """Note a machine that could not prove its identity; only its address is known.

        The log has everybody; a status is written for each incident, which has to have a limit.
        """
        if time.monotonic() - self._stranger_told > _STRANGER_PAUSE:
            self._stranger_told = time.monotonic()
            self._board.tell(shown(address), STRANGER, shown(reason))

    def _show_sites(self) -> None:
        if self._board.status.sites != (pictures := self._sites.pictures):
            self._board.show(sites=pictures)


def _require_errors(charter: Charter) -> None:
    """Refuse where there are no errors, or none that may leave the sites."""
    if charter.training.aggregation == "dp":
        raise SettingsError(
            "under differential privacy errors stay at the sites: without noise they would tell "
            "more than dp_epsilon allows. Hold ratings out at a site, and compare them there with "
            "what `fedmmf federation recommend` predicts"
        )
    if charter.training.objective == "ranking":
        raise SettingsError(
            "this federation ranks: its scores are no ratings, so that they have no error. "
            "Sites judge no lists yet; `fedmmf federation recommend` shows them"
        )


def settings_shown(charter: Charter) -> dict[str, Any]:
    """Settings that affect this federation; the page shows no others."""
    chosen = in_use(charter.training.model_dump())
    shown_ones = {name: value for name, value in chosen.items() if name not in UNUSED}
    return {**shown_ones, "party": charter.party}


def evaluated_of(summed: SummedErrors, charter: Charter, span: float) -> Evaluated:
    """Compute the errors over all sites that are in the sum."""
    sums, n = summed.sums, summed.sums.n_ratings
    if not n or not sums.is_possible(span):
        raise SettingsError(
            f"the sum over {', '.join(summed.sites)} cannot be of errors on this scale: one of "
            "them has added something else"
        )
    away = dict.fromkeys(charter.sites, "it is away")
    declined = {**away, **summed.declined}
    return Evaluated(
        rmse=math.sqrt(sums.squared / n),
        mae=sums.absolute / n,
        n_ratings=n,
        sites=summed.sites,
        declined={site: why for site, why in declined.items() if site not in summed.sites},
    )


def _require_same_scale(charter: Charter, items: ItemList) -> None:
    if charter.rating_scale != items.scale:
        raise SettingsError(
            f"federation.toml says that ratings are {charter.rating_scale}, the catalogue "
            f"{items.scale}. Make the federation anew with the right scale"
        )


def identities_of(folder: Folder) -> dict[bytes, str] | None:
    """Return the site of each key that may sign; None where nobody signs."""
    if not folder.charter().training.signed:
        return None
    known = TrustList.read(folder.trust_file, issuer=issuer_of(folder))
    return {key: known.site_of(key) for key in known.trusted}


def issuer_of(folder: Folder) -> bytes:
    """Return the public key that signs the trust list."""
    text = read(folder.issuer_file, 200).decode(errors="replace").strip()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise SettingsError(f"{folder.issuer_file} must hold a key in hex; got {text!r}") from None


def token_in(state: Path) -> str:
    """Return the token of the operator's commands; it is created if it is missing."""
    path = state / TOKEN_FILE
    if not path.exists():
        create(path, secrets.token_urlsafe(32).encode(), OWNER_ONLY)
    return read(path, _MAX_TOKEN, secret=True).decode()


def require_free_port(host: str, port: int, whom: str, setting: str) -> None:
    """Raise an error where another process listens on the port."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise SettingsError(
            f"the server cannot listen for {whom} on {host}:{port}: {error.strerror or error}. End "
            f"what uses it, or change {setting} in every copy of federation.toml"
        ) from None
