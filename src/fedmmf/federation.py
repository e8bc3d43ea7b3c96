"""Real parties and real messages, in one process: the reference, and what protocols cost."""

import os
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fedmmf import coordinator, simulation
from fedmmf.aggregation.adaptive import Adaptive
from fedmmf.aggregation.dp import least_survivors
from fedmmf.aggregation.homomorphic import Homomorphic, hand_out
from fedmmf.aggregation.plain import Plain
from fedmmf.aggregation.schemes import generate
from fedmmf.aggregation.secure import Secure
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import Participants, Server, Transport
from fedmmf.data import Ratings
from fedmmf.errors import SettingsError
from fedmmf.groups import guarantee_of
from fedmmf.masks import FittedMasks
from fedmmf.party import Party
from fedmmf.secagg import least_cohort, parameters, public_identity
from fedmmf.sharing import who_shares_in_clear
from fedmmf.traffic import CORRUPT, DROPOUT, SCHEMES, Traffic
from fedmmf.training import Member, Progress, Trained, no_progress
from fedmmf.transport import InProcess


def make_parties(
    ratings: Ratings,
    settings: Settings,
    held_out: Array | None = None,
    features: Array | None = None,
) -> dict[str, Party]:
    """One party per user, with its own ratings alone; names sort like the users.

    Args:
        ratings: of everybody.
        settings: of the run.
        held_out: which ratings are kept for early stopping. (n,) bool
        features: what masks see of the items; None: as in a simulation. (n_items, d)
    """
    training = ratings if held_out is None else ratings.select(~held_out)
    if features is None:
        features = simulation.feature_matrix(training, settings)
    guarantee = guarantee_of(settings) if settings.aggregation == "dp" else None
    may_share = _self_audited(training, settings, features)
    secrets = [os.urandom(32) for _ in range(ratings.n_users)] if settings.signed else []
    trusted = frozenset(map(public_identity, secrets))
    parties = {}
    for user, (begin, end) in enumerate(pairwise(ratings.by_user)):
        mine = slice(begin, end)
        parties[f"{user:06}"] = Party(
            ratings.item_codes[mine],
            ratings.values[mine],
            ratings.scale,
            features,
            mask=settings.mask,
            mask_strength=settings.mask_strength,
            cross_fit=settings.cross_fit,
            folds=settings.folds,
            held_out=None if held_out is None else held_out[mine],
            sharing=settings.sharing,
            threshold_j=settings.threshold_j,
            may_share=None if may_share is None else bool(may_share[user]),
            guarantee=guarantee,
            identity=secrets[user] if secrets else None,
            trusted=trusted,
            stream=simulation.mask_stream(settings.seed, ratings.user_ids[user]),
        )
    return parties


def _self_audited(ratings: Ratings, settings: Settings, features: Array) -> Array | None:
    """What each party's own audit says; None where none is asked for. (n_users,) bool."""
    if settings.sharing != "adaptive" or settings.grouping != "audit":
        return None
    masks = simulation.fit_all_masks(ratings, features, settings)
    return who_shares_in_clear(ratings, settings, masks)


def make_participants(
    parties: Mapping[str, Party], transport: Transport, settings: Settings, span: float
) -> Participants:
    """The parties behind the sums that the settings ask for, ready for the first round."""
    names, n_items = sorted(parties), next(iter(parties.values())).n_items
    if settings.sharing == "plain":
        return _plain(transport, names, settings)
    if settings.sharing == "adaptive":
        adaptive = Adaptive(
            Plain(transport, names),
            lambda others: make_secure(parties, others, transport, settings, span),
            least=least_cohort(active=settings.signed),
            collect_masked=settings.collect_masked,
        )
        adaptive.survey(n_items)
        return adaptive
    if settings.aggregation == "dp":
        if settings.dp_noise == "local":
            return Plain(transport, names)
        return make_secure(parties, names, transport, settings, span)
    hidden = make_hidden(parties, transport, settings, span)
    hidden.survey(n_items, with_ratings=False)
    return hidden


def make_hidden(
    parties: Mapping[str, Party], transport: Transport, settings: Settings, span: float
) -> Secure | Homomorphic:
    """Sums over everybody that hide their summands."""
    names = sorted(parties)
    if settings.aggregation == "secure":
        return make_secure(parties, names, transport, settings, span)
    secret = generate(SCHEMES[settings.aggregation])
    sums = Homomorphic(transport, names, span, secret, min_raters=settings.min_raters)
    hand_out(parties, sums.key)
    return sums


def make_secure(
    parties: Mapping[str, Party],
    names: list[str],
    transport: Transport,
    settings: Settings,
    span: float,
) -> Secure:
    """Secure sums over the named parties, on a graph as sparse as safety allows."""
    n = len(names)
    neighbours, threshold = parameters(n, CORRUPT, DROPOUT, active=settings.signed)
    known = (parties[name].public_identity for name in names)
    noisy: dict[str, Any] = {}
    if settings.aggregation == "dp":
        noisy = {"bounds": guarantee_of(settings).bounds(n), "minimum": least_survivors(n)}
    return Secure(
        transport,
        names,
        span,
        neighbours=None if neighbours == n - 1 else neighbours,
        threshold=threshold,
        min_raters=settings.min_raters,
        identities=tuple(key for key in known if key is not None),
        **noisy,
    )


def _plain(transport: Transport, names: list[str], settings: Settings) -> Plain:
    if settings.solver == "vb":
        raise SettingsError(
            "solver 'vb' is always summed where real messages are sent, since one update holds "
            "masked ratings; use sharing 'strict'"
        )
    return Plain(transport, names)


def survey_features(ratings: Ratings, settings: Settings, held_out: Array) -> Array:
    """Item features of a run, with statistics from a survey among real parties. (n_items, d)."""
    content = simulation.content_features(ratings)
    if not settings.item_statistics:
        return content
    parties = make_parties(ratings, settings.changed(mask="none"), held_out, content)
    transport: Transport = InProcess(parties)
    sums: Plain | Secure | Homomorphic = Plain(transport, sorted(parties))
    if settings.sharing != "plain":
        sums = make_hidden(parties, transport, settings, ratings.scale.span)
    found = sums.survey(ratings.n_items, with_ratings=True)
    return np.hstack((content, simulation.statistics_features(found)))


def train(ratings: Ratings, settings: Settings, *, progress: Progress = no_progress) -> Trained:
    """`training.train` with a party per user, and every message that the protocols send."""
    began = time.perf_counter()
    held_out = simulation.choose_held_out(ratings, settings)
    features = survey_features(ratings, settings, held_out)
    parties = make_parties(ratings, settings, held_out, features)
    masked = time.perf_counter()
    transport, members = InProcess(parties), []
    for number in range(settings.ensemble):
        participants = make_participants(parties, transport, settings, ratings.scale.span)
        server = simulation.make_server(ratings, settings, number)
        coordinator.run(server, participants, lambda s: progress("rounds", s.round, s.rounds))
        members.append(_member(server, parties))
    times = (masked - began, time.perf_counter() - masked)
    masks = FittedMasks.together([party.mask for party in parties.values()])
    rounds = len(parties) * sum(len(member.history) for member in members)
    traffic = Traffic(transport.bytes_up / rounds, transport.bytes_down / rounds)
    in_clear = np.array([party.in_clear for party in parties.values()])
    return Trained(masks, features, in_clear, members, *times, traffic)


def _member(server: Server, parties: Mapping[str, Party]) -> Member:
    factors = np.stack([party.user_factors for party in parties.values()])
    best_round = server.best_round or server.round
    return Member(server.result, factors, np.array(server.history), best_round)
