"""A site: its parties, and its answers to the server."""

import logging
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import Shapes
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES, Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import SettingsError, WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.site.evaluation import ErrorAnswers, JudgedOn
from fedmmf.federation.site.guards import SITE, GuardStore, behind, missing
from fedmmf.federation.site.ratings import SiteRatings, choose_held_out
from fedmmf.federation.site.store import SiteStore, rows_by_user
from fedmmf.masks import MaskPlan
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.party.expectation import check_agreement
from fedmmf.party.guards import Guards
from fedmmf.party.run import check_line
from fedmmf.solvers import SOLVERS
from fedmmf.transports.bundles import pack, unpack
from fedmmf.wire import (
    Finish,
    Invitation,
    Layout,
    Newcomers,
    Refused,
    Round,
    name_of,
    read,
    split_parcel,
)

_BEFORE_MODEL = (2, 3)  # an invitation, a layout and, where there are any, newcomers' totals
_NO_LISTS = RatedItems(np.zeros(1, np.int64), np.zeros(0, np.int32))
log = logging.getLogger("fedmmf.federation.site")


@dataclass(frozen=True, eq=False)
class SitePlan:
    """The inputs that a site is made from."""

    name: str
    charter: Charter
    items: ItemList
    holdings: SiteRatings
    policy: Policy
    seed: int


class Site:
    """All parties of one site.

    Args:
        plan: what it is made of.
        store: where it is kept.
    """

    def __init__(self, plan: SitePlan, store: SiteStore) -> None:
        self.plan, self._store = plan, store
        self._lock = Lock()  # one bundle at a time: the state is on disk before an answer leaves
        self._unsaved: set[str] = set()  # parties whose state has changed since it was written
        store.ratings_print = plan.holdings.fingerprint
        self.parties = make_parties(plan)
        self.n_users = len(plan.holdings.training.user_ids)
        self.model_name = b""  # of the finished model; empty: there is none
        self._guards = GuardStore(store.guards_folder)
        self.errors = ErrorAnswers(plan.name, plan.charter, plan.policy, self._guards)
        self._owners = self._guarded_names()
        store.clean_up()
        self._go_on()

    def _guarded_names(self) -> dict[str, str]:
        """Name of each party in the guards: of the site, or of a user wherever its ratings are."""
        if self.plan.charter.party == "site":
            return dict.fromkeys(self.parties, SITE)
        users = self.plan.holdings.training.user_ids
        return {
            name: self._guards.name_of(str(user))
            for name, user in zip(self.parties, users, strict=True)
        }

    def _go_on(self) -> None:
        """Restore the site's state, unless it is older than what the guards have counted."""
        store, guards = self._store, self._guards
        if store.has_started and not guards.exists:
            raise missing(guards.folder, store.folder)
        parcel = store.model
        if parcel:
            self._take_late(parcel)
        else:
            self._restore()
        otherwise = guards.spent_as(site=self.plan.charter.party != "site")
        for name, party in self.parties.items():
            party.keep_to(otherwise.raised(guards.of(self._owners[name]) or Guards()))
        # Before the first answer: a state without counters is one whose counters are lost.
        guards.raise_to({self._owners[name]: party.guards for name, party in self.parties.items()})

    def _restore(self) -> None:
        """Restore parties; those without a state sit out the run that they lost it in."""
        self._forget_erased()
        restored = self._store.restore(self.parties)
        for name in restored:
            counted = self._guards.of(self._owners[name])
            if counted is None:
                raise missing(self._guards.folder, self._store.folder)
            if lead := counted.lead_over(self.parties[name].guards):
                raise behind(self._store.folder, lead)
        if restored:
            log.info("%d parties go on where they were", len(restored))

    def _forget_erased(self) -> None:
        """Where users were taken out in the middle of a training, delete what it has of them."""
        path, now = self._store.holdings, self.plan.holdings
        if not path.exists() or not self._store.has_answered:
            return
        if now.is_without_some_of(SiteRatings.load(path)):
            self._store.forget_parties()
            log.warning(
                "users were taken out: what this training has of them here is deleted. This site "
                "sits out the rest of it, and takes the finished model"
            )

    @property
    def place(self) -> tuple[bytes, int]:
        """The run that its parties have joined, and the last round that one of them answered."""
        marks = [party.mark for party in self.parties.values() if party.invitation is not None]
        if not marks:
            return b"", 0
        run = marks[0][1]
        return run, max(mark[-1][0] for mark in marks if mark[1] == run)

    def answer(self, data: bytes) -> bytes:
        """Answer a bundle; what it changed is on disk before the answer leaves."""
        messages = unpack(data)
        with self._lock:
            replies = {name: self._answer_one(name, parcel) for name, parcel in messages.items()}
            self._store.save(self.parties, self._unsaved)
            # After the state, so that a site that is killed in between is not behind its guards.
            self._guards.raise_to(
                {self._owners[name]: self.parties[name].guards for name in self._unsaved}
            )
            self._unsaved = set()
        return pack(replies)

    def _answer_one(self, name: str, parcel: bytes) -> bytes:
        party = self.parties.get(name)
        if party is None:
            return Refused("there is no such party at this site").encode()
        if self.model_name:  # what it has said before must not be asked for again
            return Refused("this site's training is done; its owner can let it begin anew").encode()
        before = party.mark
        reply = party.answer(parcel)
        if party.mark != before:  # noted at once: the next party's answer may fail
            self._unsaved.add(name)
        return reply

    # The end of training

    def take_model(self, parcel: bytes) -> None:
        """Take the final factors once, and solve p_u for users who had no part in them.

        Raises:
            WireError: it is not the result of the run that this site had a part in.
        """
        with self._lock:
            model = read_model(parcel, self.plan)
            self._require_own(model.invitation)
            frame = model.last.encode()
            finish = frame + Finish(name_of(frame)).encode()
            for party in self.parties.values():
                if party.invitation == model.invitation:
                    party.answer(finish)
                if not party.is_finished:
                    model.let_join(party)
            self._keep_result(model)
            self._store.save_model(parcel)
            self._store.forget_parties()  # nothing reads them any more
            self.model_name = name_of(parcel)
        log.info("the model is here")

    def _require_own(self, invitation: Invitation) -> None:
        """Refuse another model: a server that could choose one could infer test ratings."""
        if self.model_name:
            raise WireError("this site has a model, and takes another only if its owner says so")
        runs = {party.invitation for party in self.parties.values()} - {None}
        if runs and runs != {invitation}:
            raise WireError("the model is not of the run that this site had a part in")

    def _take_late(self, parcel: bytes) -> None:
        """Start with a finished model: solve p_u for all users, newcomers included."""
        model = read_model(parcel, self.plan)
        for party in self.parties.values():
            model.let_join(party)
        self._keep_result(model)
        self._store.forget_parties()
        self.model_name = name_of(parcel)

    def _keep_result(self, model: "SentModel") -> None:
        parties = self.parties.values()
        users = {
            "user_ids": self.plan.holdings.training.user_ids,
            "user_factors": rows_by_user(party.user_factors for party in parties),
            "theta": rows_by_user(party.masks.theta for party in parties),
            "line": next(iter(parties)).masks.population.line,
        }
        self._store.save_result(model.last.broadcast, model.about, users)

    def evaluate(self, data: bytes) -> bytes:
        """Answer a question about errors on the site's own test ratings."""
        plan = self.plan
        tested = JudgedOn(plan.holdings.test, plan.items.ids, self.predicted)
        with self._lock:
            return self.errors.answer(data, self.model_name, tested)

    def predicted(self) -> Array:
        """Predict all test ratings of the site. (n,)."""
        test, parts, place = self.plan.holdings.test.lists, [], 0
        for party in self.parties.values():
            indptr = test.indptr[place : place + party.n_users + 1]
            items = test.items[indptr[0] : indptr[-1]]
            parts.append(party.predict_all(RatedItems(indptr - indptr[0], items)))
            place += party.n_users
        return np.concatenate([*parts, np.zeros(0)]).astype(np.float64)


def make_parties(plan: SitePlan) -> dict[str, Party]:
    """Make one party, or one per user; their names sort like the users."""
    holdings, settings = plan.holdings, plan.charter.training
    share, ids = settings.held_out_share, plan.items.ids
    held_out = choose_held_out(holdings.training, share, plan.seed, ids)
    mask, n_users = MaskPlan.of(settings), len(holdings.training.user_ids)
    expected, features = expectation_of(plan), mask.views(plan.items.features)

    def made(users: range, engine: Engine) -> Party:
        data = holdings.party_data(plan.items, features, users, held_out)
        return Party(data, mask, plan.policy, expected, engine)

    most = plan.charter.most_parties
    if plan.charter.party == "user" and n_users > most:
        raise SettingsError(
            f"{plan.name} has {n_users:,} users, and a site brings at most {most:,} parties. Ask "
            "the federation's keeper to raise max_parties_per_site in federation.toml"
        )
    if plan.charter.party == "site":
        return {plan.name: made(range(n_users), ENGINES["numba"])}
    return {f"{plan.name}/{user:06}": made(range(user, user + 1), NUMPY) for user in range(n_users)}


def expectation_of(plan: SitePlan) -> Expectation:
    """Return what the site's charter says of any run."""
    features = MaskPlan.of(plan.charter.training).views(plan.items.features)
    nobody = PartyData(plan.items.catalogue, features, _NO_LISTS, np.zeros(0))
    each = 1 if plan.charter.party == "user" else None
    return Expectation.of(plan.charter.training, nobody, each)


@dataclass(frozen=True, eq=False)
class SentModel:
    """The finished model, as the server sends it."""

    invitation: Invitation
    layout: Layout
    last: Round
    newcomers: Array | None = None  # (n_newcomer,) what the prior of newcomers is made from

    @property
    def about(self) -> dict[str, Any]:
        """What has to be known to compute with it."""
        said = self.invitation
        return {"solver": said.solver, "variant": said.variant}

    def let_join(self, party: Party) -> None:
        """Let a party solve p_u for the finished model, without any round."""
        said, broadcast = self.invitation, replace(self.last.broadcast, newcomers=self.newcomers)
        party.join_late(said.solver, said.variant, broadcast, self.layout.population)


def read_model(parcel: bytes, plan: SitePlan) -> SentModel:
    """Invitation, layout and final factors, checked as a party would check them."""
    before, frame = split_parcel(parcel, max(_BEFORE_MODEL))
    if len(before) not in _BEFORE_MODEL:
        raise WireError("a model has an invitation, a layout and the final factors")
    invitation, n_items = read(before[0], (Invitation,)), plan.items.catalogue.n_items
    check_agreement(invitation, plan.items.catalogue)
    expectation_of(plan).check(invitation)
    solver = SOLVERS[invitation.solver]
    update_shape = solver.update_shape(invitation.rank, invitation.variant)
    shapes = Shapes(n_items, invitation.columns, update_shape)
    layout = read(before[1], (Layout,), shapes.known(None))
    check_line(layout, invitation)
    last = read(frame, (Round,), shapes.known(layout))
    solver.check(update_shape, last.broadcast)
    if not last.is_last:
        raise WireError("this is no finished model")
    told = [read(more, (Newcomers,), shapes.known(layout)).totals for more in before[2:]]
    return SentModel(invitation, layout, last, *told)
