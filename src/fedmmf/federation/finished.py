"""The finished model at the server: it is offered to sites, handed out and evaluated once."""

import math
import time
from threading import Event, Lock

from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.charter import Charter
from fedmmf.federation.evaluation import ErrorSession, SummedErrors
from fedmmf.federation.hello import Welcome
from fedmmf.federation.sites import Link, Sites
from fedmmf.federation.status import Evaluated
from fedmmf.federation.store import RunStore
from fedmmf.wire import name_of

_PAUSE = 10.0  # seconds before a site is sent the model again: it may not read it
_FETCHING = 3  # heartbeats after the end of a training within which sites fetch the model
_LOOK = 0.1  # seconds between checks whether they have


class FinishedModel:
    """Offers the finished model to sites, hands it out, and evaluates it once.

    Args:
        charter: of the federation.
        store: where the model and its evaluation are kept.
        sites: that are let in.
        link: reaches them.
        stop: set when the server ends.
    """

    def __init__(
        self, charter: Charter, store: RunStore, sites: Sites, link: Link, stop: Event
    ) -> None:
        self._charter, self._store = charter, store
        self._sites, self._link, self._stop = sites, link, stop
        self._sent: dict[str, float] = {}  # when each site was sent the model
        self._offered = 0.0  # when the model was first offered to sites
        self._evaluating = Lock()  # a site is in one sum of errors at a time

    def offer(self, parcel: bytes) -> None:
        """Tell sites from now on that there is a model."""
        self._offered = time.monotonic()
        self._sites.welcome = Welcome(is_welcome=True, model=name_of(parcel).hex())

    def hand_out(self, site: str, data: bytes = b"") -> bytes:
        """Return the model for an admitted site; limits how often a site gets it."""
        now_s = time.monotonic()
        is_early = now_s - self._sent.get(site, -_PAUSE) < _PAUSE
        if site not in self._sites.here() or is_early:
            raise WireError("only a site that was let in is sent the model, and not at once again")
        self._sent[site] = now_s
        return self._store.model

    def evaluate(self) -> Evaluated:
        """Sum the sites' errors on their own test ratings, securely, and once for a model."""
        parcel = self._store.model
        if not parcel:
            raise SettingsError("there is nothing to evaluate before training is done")
        _require_errors(self._charter)
        model = name_of(parcel)
        with self._evaluating:
            return self._store.evaluation(model) or self._evaluated(model)

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
        span = self._charter.rating_scale.span
        found = evaluated_of(session.run(here), self._charter, span)
        self._store.save_evaluation(model, found)
        return found


def _require_errors(charter: Charter) -> None:
    """Refuse where there are no errors, or none that may leave the sites."""
    if charter.training.scheme.has_budget:
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
