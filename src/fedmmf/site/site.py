"""A site: its parties, and what it answers to the server."""

import logging
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines import ENGINES, Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import WireError
from fedmmf.federation.catalogue import ItemList
from fedmmf.federation.charter import Charter
from fedmmf.federation.hello import ErrorSums
from fedmmf.party import Party, Policy
from fedmmf.party.run import check_agreement, check_line
from fedmmf.simulation.prepared import mask_plan
from fedmmf.site.ratings import SiteRatings, choose_held_out
from fedmmf.site.store import SiteStore, rows_by_user
from fedmmf.solvers import SOLVERS
from fedmmf.sums.contract import round_sizes, survey_sizes
from fedmmf.transports.bundles import pack, unpack
from fedmmf.wire import (
    Finish,
    Invitation,
    Layout,
    Refused,
    Round,
    name_of,
    read,
    split_parcel,
)

_FEWEST_TESTED = 3  # users whose errors may leave as a sum
_BEFORE_MODEL = 2  # an invitation and a layout
log = logging.getLogger("fedmmf.site")


@dataclass(frozen=True, eq=False)
class SitePlan:
    """What a site is made of."""

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
        self._plan, self._store = plan, store
        self._lock = Lock()  # one bundle at a time: what is answered is written before it leaves
        self._unsaved: set[str] = set()  # parties that have moved on since they were written
        store.ratings_print = plan.holdings.fingerprint
        self.parties = make_parties(plan)
        self.n_users = len(plan.holdings.training.user_ids)
        self.model_name = b""  # of the finished model; empty: there is none
        parcel = store.model
        if parcel:
            self._take_late(parcel)
        elif n_restored := store.restore(self.parties):
            log.info("%d parties go on where they were", n_restored)

    def answer(self, data: bytes) -> bytes:
        """Answer a bundle; what it changed is on disk before the answer leaves."""
        messages = unpack(data)
        with self._lock:
            known = [name for name in messages if name in self.parties]
            before = {name: self.parties[name].mark for name in known}
            replies = {name: self._answer_one(name, parcel) for name, parcel in messages.items()}
            self._unsaved |= {name for name in known if self.parties[name].mark != before[name]}
            self._store.save(self.parties, self._unsaved)
            self._unsaved = set()
        return pack(replies)

    def _answer_one(self, name: str, parcel: bytes) -> bytes:
        party = self.parties.get(name)
        if party is None:
            return Refused("there is no such party at this site").encode()
        if self.model_name:  # what it has said before must not be asked for again
            return Refused("this site's training is done; its owner can let it begin anew").encode()
        return party.answer(parcel)

    # The end of training

    def take_model(self, parcel: bytes) -> None:
        """Take the final factors, once, and find p_u for everybody who had no part in them.

        Raises:
            WireError: it is not the result of the run that this site had a part in.
        """
        with self._lock:
            model = read_model(parcel, self._plan)
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
            self.model_name = name_of(parcel)
        log.info("the model is here")

    def _require_own(self, invitation: Invitation) -> None:
        """A server that could choose models could read test ratings from their errors."""
        if self.model_name:
            raise WireError("this site has a model, and takes another only if its owner says so")
        runs = {party.invitation for party in self.parties.values()} - {None}
        if runs and runs != {invitation}:
            raise WireError("the model is not of the run that this site had a part in")

    def _take_late(self, parcel: bytes) -> None:
        """Start with a finished model: everybody, newcomers too, finds p_u for it."""
        model = read_model(parcel, self._plan)
        for party in self.parties.values():
            model.let_join(party)
        self._keep_result(model)
        self.model_name = name_of(parcel)

    def _keep_result(self, model: "SentModel") -> None:
        parties = self.parties.values()
        users = {
            "user_ids": self._plan.holdings.training.user_ids,
            "user_factors": rows_by_user(party.user_factors for party in parties),
            "theta": rows_by_user(party.masks.theta for party in parties),
            "line": next(iter(parties)).masks.population.line,
        }
        self._store.save_result(model.last.public, model.about, users)

    def evaluate(self, wanted: bytes) -> ErrorSums:
        """Errors on the site's own test ratings, summed over its users."""
        if self.model_name != wanted:
            return ErrorSums.none("it has no model yet, or another one")
        test = self._plan.holdings.test
        n_tested = int((test.lists.lengths > 0).sum())
        if n_tested < _FEWEST_TESTED:
            return ErrorSums.none(
                f"{n_tested} users have test ratings; {_FEWEST_TESTED} are the fewest"
            )
        with self._lock:
            errors = test.values - self._predicted()
        squared, absolute = float(np.square(errors).sum()), float(np.abs(errors).sum())
        return ErrorSums(n_ratings=len(errors), squared=squared, absolute=absolute)

    def _predicted(self) -> Array:
        """Of all test ratings. (n,)."""
        test, parts, place = self._plan.holdings.test, [], 0
        for party in self.parties.values():
            for user in range(party.n_users):
                start, end = test.lists.indptr[place : place + 2]
                if end > start:
                    parts.append(party.predict(test.lists.items[start:end], user))
                place += 1
        return np.concatenate(parts).astype(np.float64)


def make_parties(plan: SitePlan) -> dict[str, Party]:
    """One party, or one for each user; names sort like the users."""
    holdings, settings = plan.holdings, plan.charter.training
    held_out = choose_held_out(holdings.training, settings.held_out_share, plan.seed)
    masks, n_users = mask_plan(settings), len(holdings.training.user_ids)

    def made(users: range, engine: Engine) -> Party:
        data = holdings.party_data(plan.items, users, plan.seed, held_out)
        return Party(data, masks, plan.policy, engine)

    if plan.charter.party == "site":
        return {plan.name: made(range(n_users), ENGINES["numba"])}
    return {f"{plan.name}/{user:06}": made(range(user, user + 1), NUMPY) for user in range(n_users)}


@dataclass(frozen=True, eq=False)
class SentModel:
    """What the server sends in the end."""

    invitation: Invitation
    layout: Layout
    last: Round

    @property
    def about(self) -> dict[str, Any]:
        """What has to be known to compute with it."""
        said = self.invitation
        return {"solver": said.solver, "variant": said.variant}

    def let_join(self, party: Party) -> None:
        """Let a party find p_u for it, without any round."""
        said = self.invitation
        party.join_late(said.solver, said.variant, self.last.public, self.layout.population)


def read_model(parcel: bytes, plan: SitePlan) -> SentModel:
    """Invitation, layout and final factors, checked as a party would check them."""
    before, frame = split_parcel(parcel, _BEFORE_MODEL)
    if len(before) != _BEFORE_MODEL:
        raise WireError("a model has an invitation, a layout and the final factors")
    invitation, n_items = read(before[0], (Invitation,)), plan.items.catalogue.n_items
    check_agreement(invitation, plan.items.catalogue)
    settings, solver = plan.charter.training, SOLVERS[invitation.solver]
    if (invitation.solver, invitation.rank) != (settings.solver, solver.rank(settings)):
        raise WireError("the model is not what this federation trains")
    form = solver.form(invitation.rank, invitation.variant)
    layout = read(before[1], (Layout,), survey_sizes(n_items, invitation.columns))
    check_line(layout, invitation)
    last = read(frame, (Round,), round_sizes(n_items, layout, form))
    solver.check(form, last.public)
    if not last.is_last:
        raise WireError("this is no finished model")
    return SentModel(invitation, layout, last)
