"""The server process: admits sites, trains when ordered to, and shows its progress."""

import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

from fedmmf import __version__
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.errors import FedMMFError, SettingsError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter, unused_settings
from fedmmf.federation.finished import FinishedModel
from fedmmf.federation.folder import Folder, token_in
from fedmmf.federation.hello import shown
from fedmmf.federation.limits import too_large_messages
from fedmmf.federation.needs import import_extra
from fedmmf.federation.provision import server_name
from fedmmf.federation.sites import Admission, Sites
from fedmmf.federation.status import (
    STRANGER,
    Board,
    FederationStatus,
    SiteStatus,
    State,
    now,
    who_is_here,
)
from fedmmf.federation.store import RunStore
from fedmmf.federation.training import StoppedError, Training
from fedmmf.identity import TrustList
from fedmmf.identity.files import read
from fedmmf.masks.feature_maps import FeatureViews
from fedmmf.server.federation import ServerPlan
from fedmmf.settings.groups import in_use
from fedmmf.storage.atomic import remove_leftovers

_KEPT = {"round", "rounds", "attempts", "held_out", "evaluation", "incidents", "n_incidents"}
_WHO = {  # what "users" means in what follows
    "site": "Each site sums its own users, who trust it. What follows is said of sites.",
    "user": "Every user is a party of the sums; the site has the ratings that it was given.",
}
_STRANGER_PAUSE = 1.0  # seconds between refused connections that are shown
_REFRESH = 1.0  # seconds between statuses where nothing happens
_LAST_SECONDS = 5.0  # that a training may still take where the server ends with an error
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
        self._model = FinishedModel(self._charter, self._store, self._sites, self._link, self._stop)
        self._training: Training | None = None
        self._thread: Thread | None = None
        self._stranger_told = -_STRANGER_PAUSE  # when the last refused connection was shown

    def _make_plan(self, is_centred: bool, sees_features: bool) -> ServerPlan:
        mask, content = self._charter.training.mask, self._items.features
        plan = ServerPlan(
            settings=self._charter.training,
            catalogue=self._items.catalogue,
            is_centred=is_centred,
            ratings_per_user=None,  # known after the survey
            features=FeatureViews(content, mask, sees_features),
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
            smallest_cohort=settings.smallest_cohort,
            settings=settings_shown(self._charter),
            protection=(
                _WHO[self._charter.party],
                *AGGREGATIONS[settings.scheme_name].disclosure(settings),
            ),
            started=now(),
        )

    def _open_link(self) -> Any:
        network = self._charter.network
        require_free_port(network.host, network.port, "sites", "network.port")
        nvflare = import_extra("fedmmf.transports.nvflare")
        name = server_name(self._charter)
        return nvflare.CellLink("server", self._charter.url, self._machine.credentials, name)

    def _make_page(self) -> Any:
        network = self._charter.network
        actions: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "run": self.run_training,
            "evaluate": self.evaluate,
        }
        token, host, port = token_in(self._state), network.page_host, network.page_port
        page = import_extra("fedmmf.federation.page")
        return page.StatusPage(self._board, host=host, port=port, token=token, actions=actions)

    @property
    def page_url(self) -> str:
        """Address of the status page, for a browser on this machine."""
        return str(self._page.url)

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
        self._link.answer("model", self._model.hand_out)
        self._board.show(rounds=self._charter.training.max_rounds)
        if self._store.model:
            self._model.offer(self._store.model)
            self._board.show(state="finished")
        elif self._marker.exists():
            self._begin()
        self._show_sites()
        while not self._stop.wait(_REFRESH):
            self._show_sites()

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
            self._model.offer(parcel)
            self._marker.unlink(missing_ok=True)
            words = self._idle_words("finished", self._sites.pictures)
            self._board.show(state="finished", **words)
            log.info("training is done")

    def evaluate(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Sum the sites' errors on their own test ratings, securely, and once for a model."""
        found = self._model.evaluate()
        self._board.show(evaluation=found)
        return found.model_dump()

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
        sites = self._sites.pictures
        if sites != self._board.status.sites:
            self._board.change(lambda s: s.but(sites=sites, **self._idle_words(s.state, sites)))

    def _idle_words(self, state: State, sites: Sequence[SiteStatus]) -> dict[str, str]:
        """Return the detail to show where no training is going on; nothing where one is."""
        here = who_is_here(sites)
        if state == "finished":
            return {"detail": f"training is done, and sites fetch the model by themselves; {here}"}
        if state == "waiting" and self._training is None:
            return {"detail": f"{here}; `fedmmf federation run` begins the training"}
        return {}


def settings_shown(charter: Charter) -> dict[str, Any]:
    """Settings that affect this federation; the page shows no others."""
    chosen = in_use(charter.training.to_dict())
    shown_ones = {name: value for name, value in chosen.items() if name not in unused_settings()}
    return {**shown_ones, "party": charter.party}


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
