"""A federation in one process: real parties, a real server and every message between them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmmf.aggregation.server_side import ServerSide
from fedmmf.arrays import Array
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.data import Ratings
from fedmmf.data.features import content_features, profile_values
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import NotFittedError
from fedmmf.masks import MaskPlan
from fedmmf.masks.fitting import resolve_mask
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.progress import Report, quiet
from fedmmf.secagg import public_identity
from fedmmf.server import Coordinator, FederationServer, ServerPlan
from fedmmf.settings import Settings
from fedmmf.solvers.contract import Broadcast
from fedmmf.transports.contract import Transport
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Metered
from fedmmf.wire import Catalogue


@dataclass(frozen=True, eq=False)
class Member:
    """One run of an ensemble: the server's result and, in one process, the parties'."""

    broadcast: Broadcast
    user_factors: Array  # (n_users, k)
    history: Array  # (rounds,) held-out RMSE
    best_round: int  # the last, where nothing was held out

    @classmethod
    def of(cls, coordinator: Coordinator, user_factors: Array) -> "Member":
        """Join the server's result with the parties' factors."""
        best_round = coordinator.best_round or coordinator.round
        return cls(coordinator.result, user_factors, np.array(coordinator.history), best_round)


@dataclass(frozen=True, eq=False)
class LocalFederation:
    """Parties in this process, and a server that knows their names."""

    plan: ServerPlan
    parties: Mapping[str, Party]
    transport: Metered
    server: FederationServer

    @classmethod
    def among(
        cls,
        plan: ServerPlan,
        parties: Mapping[str, Party],
        transport: Transport | None = None,
        member: int = 0,
    ) -> "LocalFederation":
        """Make a federation of these parties; over another transport, if one is given."""
        metered = Metered(transport or InProcess(parties))
        trusted = frozenset[bytes]().union(*(party.policy.trusted for party in parties.values()))
        known = (lambda name, identity: identity in trusted) if trusted else None
        server = FederationServer(plan, metered, sorted(parties), member, known)
        return cls(plan, parties, metered, server)

    def invite(self) -> ServerSide:
        """Invite all parties, and hand out the secret that the server may not know."""
        side = self.server.invite()
        secret = side.handout()
        if secret:
            for party in self.parties.values():
                party.hold(secret)
        return side

    def prepare_sums(self) -> None:
        """Invite all parties and run the surveys before the first round."""
        self.invite().prepare()

    def one_round(self) -> None:
        """Run one round of training."""
        self.server.one_round()

    def run(self, progress: Report = quiet) -> Member:
        """Train to the end; return the results of both sides, which one process can join."""
        self.prepare_sums()
        self.server.run(lambda server: progress("rounds", server.n_done, server.rounds))
        n_own = self.plan.update_shape.n_own
        factors = [_factors_of(party, n_own) for party in self.parties.values()]
        return Member.of(self.server.coordinator, np.concatenate(factors))


def _factors_of(party: Party, n_own: int) -> Array:
    """p_u of a party's users; zeros where it has joined no such run. (n_users, n_own)."""
    try:
        factors = party.user_factors
    except NotFittedError:
        factors = np.zeros((0, 0))
    is_same = factors.shape == (party.n_users, n_own)
    return factors if is_same else np.zeros((party.n_users, n_own), np.float32)


@dataclass(frozen=True, eq=False)
class Holdings:
    """The data that parties are made from.

    Attributes:
        ratings: of everybody.
        settings: of the run.
        held_out: which ratings are kept for early stopping. (n,) bool
        statistics: what masks see of the items beside their content. (n_items, d)
    """

    ratings: Ratings
    settings: Settings
    held_out: Array | None = None
    statistics: Array | None = None


def make_parties(
    ratings: Ratings,
    settings: Settings,
    held_out: Array | None = None,
    statistics: Array | None = None,
) -> dict[str, Party]:
    """Make one party per user, with its own ratings alone; names sort like the users.

    Args: see `Holdings`.
    """
    cuts = np.arange(ratings.n_users + 1)
    return make_silos(Holdings(ratings, settings, held_out, statistics), cuts, NUMPY)


def make_silos(holdings: Holdings, cuts: Array, engine: Engine) -> dict[str, Party]:
    """Make parties of several users each; all share one copy of what is public.

    Args:
        holdings: everything.
        cuts: party i has the users cuts[i] to cuts[i + 1] - 1. (n_parties + 1,)
        engine: what computes its users' halves.
    """
    has_features = holdings.ratings.has_features
    settings = resolve_mask(holdings.settings, has_features=has_features)
    mask = MaskPlan.of(settings)
    everybody = everybodys_data(holdings, mask)
    policies = _policies(settings, len(cuts) - 1)
    each = 1 if (np.diff(cuts) == 1).all() else None
    expected = Expectation.of(settings, everybody, each)
    parties = {}
    for number, policy in enumerate(policies):
        data = _data_of(everybody, range(cuts[number], cuts[number + 1]))
        parties[f"{number:06}"] = Party(data, mask, policy, expected, engine)
    return parties


def everybodys_data(holdings: Holdings, mask: MaskPlan) -> PartyData:
    """Return everybody's data, as one party would hold them."""
    ratings, content = holdings.ratings, content_features(holdings.ratings)
    return PartyData(
        catalogue=Catalogue.of(ratings.item_ids, ratings.scale, content),
        features=mask.views(content, holdings.statistics),
        lists=ratings.rated_items,
        ratings=ratings.values,
        held_out=holdings.held_out,
        profiles=profile_values(ratings),
    )


def _data_of(everybody: PartyData, users: range) -> PartyData:
    """Return the data of some users."""
    indptr = everybody.lists.indptr[users.start : users.stop + 1]
    mine = slice(int(indptr[0]), int(indptr[-1]))
    return replace(
        everybody,
        lists=RatedItems(indptr - indptr[0], everybody.lists.items[mine]),
        ratings=everybody.ratings[mine],
        held_out=None if everybody.held_out is None else everybody.held_out[mine],
        profiles=everybody.profiles[users.start : users.stop],
    )


def _policies(settings: Settings, n_parties: int) -> Sequence[Policy]:
    """Make each party's policy from the settings; all parties know all identities."""
    policy = Policy.of(settings, AttackAudit.of(settings))
    if settings.scheme.guarantee is not None:
        policy = replace(policy, noise=settings.scheme.guarantee(settings, 0))
    if not settings.signed:
        return [policy] * n_parties
    secrets = [os.urandom(32) for _ in range(n_parties)]
    trusted = frozenset(map(public_identity, secrets))
    return [replace(policy, identity=secret, trusted=trusted) for secret in secrets]


def server_plan(ratings: Ratings, settings: Settings) -> ServerPlan:
    """Make the plan of a server of real parties; it computes with numpy alone."""
    settings = resolve_mask(settings, has_features=ratings.has_features)
    mask, content = MaskPlan.of(settings), content_features(ratings)
    return ServerPlan(
        settings=settings,
        catalogue=Catalogue.of(ratings.item_ids, ratings.scale, content),
        is_centred=mask.family.is_centred,
        ratings_per_user=ratings.n_ratings / ratings.n_users,
        features=mask.views(content),
        n_profile=profile_values(ratings).shape[1],
    )
