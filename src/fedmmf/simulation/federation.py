"""Real parties and real messages in one process: the reference for simulations and costs."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmmf.aggregation.costs import Cost
from fedmmf.aggregation.server_side import ServerSide
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Engine
from fedmmf.engines.reference import NUMPY
from fedmmf.errors import NotFittedError, SettingsError
from fedmmf.masks import FittedMasks
from fedmmf.masks.feature_maps import expand
from fedmmf.party import Expectation, Party, PartyData, Policy
from fedmmf.secagg import public_identity
from fedmmf.server import FederationServer, ServerPlan
from fedmmf.settings import Settings
from fedmmf.simulation.features import (
    content_features,
    profile_values,
    settled,
    statistics_features,
)
from fedmmf.simulation.prepared import (
    Prepared,
    Progress,
    choose_held_out,
    mask_plan,
    mask_stream,
    no_progress,
    policy_of,
)
from fedmmf.simulation.training import Member, Trained
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import design_of
from fedmmf.transports.contract import Transport
from fedmmf.transports.in_process import InProcess
from fedmmf.transports.wrappers import Metered
from fedmmf.wire import Catalogue

ROUND_STAGES = ("round", "trip 1", "trip 2", "trip 3")  # the others are set-up, survey and end


@dataclass(frozen=True, eq=False)
class LocalFederation:
    """Parties in this process, and a server that knows their names."""

    plan: ServerPlan
    parties: Mapping[str, Party]
    transport: Metered
    server: FederationServer

    @classmethod
    def of(cls, run: Prepared) -> "LocalFederation":
        """Make one party per user of a prepared run."""
        parties = make_parties(run.ratings, run.settings, run.is_held_out, run.statistics)
        return cls.among(run.plan, parties)

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

    def run(self, progress: Progress = no_progress) -> Member:
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


def make_parties(
    ratings: Ratings,
    settings: Settings,
    held_out: Array | None = None,
    statistics: Array | None = None,
) -> dict[str, Party]:
    """Make one party per user, with its own ratings alone; names sort like the users.

    Args:
        ratings: of everybody.
        settings: of the run.
        held_out: which ratings are kept for early stopping. (n,) bool
        statistics: what masks see of the items beside their content, if anything. (n_items, d)
    """
    cuts = np.arange(ratings.n_users + 1)
    return make_silos(Holdings(ratings, settings, held_out, statistics), cuts, NUMPY)


@dataclass(frozen=True, eq=False)
class Holdings:
    """The data that parties are made from."""

    ratings: Ratings
    settings: Settings
    held_out: Array | None = None  # (n,) bool
    statistics: Array | None = None  # of items, beside their content (n_items, d)


def make_silos(holdings: Holdings, cuts: Array, engine: Engine) -> dict[str, Party]:
    """Make parties of several users each.

    Args:
        holdings: everything.
        cuts: party i has the users cuts[i] to cuts[i + 1] - 1. (n_parties + 1,)
        engine: what computes its users' halves.
    """
    ratings, settings = holdings.ratings, settled(holdings.settings, holdings.ratings)
    content = content_features(ratings)
    more = np.zeros((len(content), 0)) if holdings.statistics is None else holdings.statistics
    features = np.hstack((content, more))
    seen = np.hstack((expand(settings.mask, content), more))
    catalogue = Catalogue.of(ratings.item_ids, ratings.scale, content)
    policies = _policies(settings, len(cuts) - 1)
    each = 1 if (np.diff(cuts) == 1).all() else None
    parties = {}
    for number, policy in enumerate(policies):
        users = range(cuts[number], cuts[number + 1])
        data = replace(_data_of(holdings, catalogue, features, users), seen=seen)
        expected = Expectation.of(settings, data, each)
        parties[f"{number:06}"] = Party(data, mask_plan(settings), policy, expected, engine)
    return parties


def _data_of(holdings: Holdings, catalogue: Catalogue, features: Array, users: range) -> PartyData:
    ratings, seed = holdings.ratings, holdings.settings.seed
    indptr = ratings.by_user[users.start : users.stop + 1]
    mine = slice(int(indptr[0]), int(indptr[-1]))
    return PartyData(
        catalogue=catalogue,
        features=features,
        lists=RatedItems(indptr - indptr[0], ratings.item_codes[mine]),
        ratings=ratings.values[mine],
        held_out=None if holdings.held_out is None else holdings.held_out[mine],
        streams=[mask_stream(seed, ratings.user_ids[user]) for user in users],
        profiles=profile_values(ratings)[users.start : users.stop],
        content=content_features(ratings),
    )


def _policies(settings: Settings, n_parties: int) -> Sequence[Policy]:
    """Make each party's policy from the settings; all parties know all identities."""
    policy = policy_of(settings)
    if settings.aggregation == "dp":
        from fedmmf.aggregation.dp.guarantee import guarantee_of

        policy = replace(policy, noise=guarantee_of(settings))
    if not settings.signed:
        return [policy] * n_parties
    secrets = [os.urandom(32) for _ in range(n_parties)]
    trusted = frozenset(map(public_identity, secrets))
    return [replace(policy, identity=secret, trusted=trusted) for secret in secrets]


def surveyed_statistics(ratings: Ratings, settings: Settings, held_out: Array) -> Array:
    """Statistics of items from a survey among real parties, where asked for. (n_items, 2 or 0)."""
    if not settings.item_statistics:
        return np.zeros((ratings.n_items, 0))
    asking = settings.changed(mask="none", held_out=0.0)
    if asking.sharing == "adaptive":
        asking = asking.changed(sharing="strict", collect_masked=False)
    training = ratings.select(~held_out) if held_out.any() else ratings
    parties = make_parties(training, asking)
    federation = LocalFederation.among(server_plan(training, asking), parties)
    federation.prepare_sums()
    found = federation.server.side.survey_ratings()
    return statistics_features(found)


def train_real(ratings: Ratings, settings: Settings, progress: Progress = no_progress) -> Trained:
    """`training.train` with a party per user, and every message that the protocols send."""
    settings = settled(settings, ratings)
    _require_summed(settings, ratings.n_users)
    began = time.perf_counter()
    held_out = choose_held_out(ratings, settings)
    statistics = surveyed_statistics(ratings, settings, held_out)
    parties = make_parties(ratings, settings, held_out, statistics)
    masked = time.perf_counter()
    plan = server_plan(ratings, settings)
    federations = [
        LocalFederation.among(plan, parties, member=number) for number in range(settings.ensemble)
    ]
    members = [federation.run(progress) for federation in federations]
    times = (masked - began, time.perf_counter() - masked)
    masks = FittedMasks.together([party.masks for party in parties.values()])
    in_clear = np.array([party.in_clear for party in parties.values()])
    cost = counted_cost(federations, members, len(parties))
    layout = federations[0].server.side.require_layout()
    n_left_out = ratings.n_items - len(layout.items)
    features = np.hstack((expand(settings.mask, content_features(ratings)), statistics))
    found = (masks, features, layout, plan.variant, in_clear, members)
    return Trained(*found, *times, cost, n_left_out, False)


def server_plan(ratings: Ratings, settings: Settings) -> ServerPlan:
    """Make the plan of a server of real parties; it computes with numpy alone."""
    settings = settled(settings, ratings)
    content, family = content_features(ratings), mask_plan(settings).family
    seen = expand(settings.mask, content)
    return ServerPlan(
        settings=settings,
        catalogue=Catalogue.of(ratings.item_ids, ratings.scale, content),
        is_centred=family.is_centred,
        ratings_per_user=ratings.n_ratings / ratings.n_users,
        regressors=content,
        design=design_of(seen, sees_features=family.needs_features),
        n_profile=profile_values(ratings).shape[1],
    )


def counted_cost(
    federations: Sequence[LocalFederation], members: Sequence[Member], n_users: int
) -> Cost:
    """Bytes and seconds of a mean user's round, as they were counted."""
    rounds = sum(len(member.history) for member in members)
    counted = [federation.transport.of(*ROUND_STAGES) for federation in federations]
    return Cost(
        sum(part.up_bytes for part in counted) / (n_users * rounds),
        sum(part.down_bytes for part in counted) / (n_users * rounds),
        sum(part.inside_s for part in counted) / (n_users * rounds),
        sum(part.outside_s for part in counted) / rounds,
        "counted among real parties, with all that either side does in a round",
    )


def _require_summed(settings: Settings, n_users: int) -> None:
    rank = SOLVERS[settings.solver].rank(settings)
    is_hidden = settings.sharing != "plain" and settings.sums in ("secure", "adaptive")
    if is_hidden and n_users <= rank:
        raise SettingsError(
            f"real parties refuse sums over no more users than there are factors, which can be "
            f"taken apart; got {n_users} users and {rank} factors. Use fewer factors or more users"
        )
    if settings.sharing == "plain" and not SOLVERS[settings.solver].may_be_clear:
        raise SettingsError(
            f"solver {settings.solver!r} is always summed where real messages are sent, since one "
            "update holds masked ratings; use sharing 'strict'"
        )
