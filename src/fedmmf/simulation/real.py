"""Trains with a real party per user and every message: simulations are compared with it."""

import time
from collections.abc import Sequence

import numpy as np

from fedmmf.aggregation.simulated import Cost
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.errors import SettingsError
from fedmmf.federation.local import LocalFederation, Member, make_parties, server_plan
from fedmmf.masks import FittedMasks
from fedmmf.masks.fitting import resolve_mask
from fedmmf.progress import Report, quiet
from fedmmf.settings import Settings
from fedmmf.simulation.prepared import Prepared, choose_held_out
from fedmmf.simulation.surveys import statistics_features
from fedmmf.simulation.training import Trained
from fedmmf.solvers import SOLVERS

ROUND_STAGES = ("round", "trip 1", "trip 2", "trip 3")  # not set-up, survey and end


def real_federation(run: Prepared) -> LocalFederation:
    """Make a federation with one party per user of a prepared run."""
    statistics = run.features.statistics
    parties = make_parties(run.ratings, run.settings, run.is_held_out, statistics)
    return LocalFederation.among(run.plan, parties)


def surveyed_statistics(ratings: Ratings, settings: Settings, held_out: Array) -> Array:
    """Statistics of items from a survey among real parties, where asked for. (n_items, 2 or 0)."""
    if not settings.item_statistics:
        return np.zeros((ratings.n_items, 0))
    survey_settings = settings.changed(mask="none", held_out=0.0)
    if survey_settings.scheme.in_clear == "some":
        survey_settings = survey_settings.changed(sharing="strict", collect_masked=False)
    training = ratings.select(~held_out) if held_out.any() else ratings
    parties = make_parties(training, survey_settings)
    federation = LocalFederation.among(server_plan(training, survey_settings), parties)
    federation.prepare_sums()
    found = federation.server.side.survey_ratings()
    return statistics_features(found)


def train_real(ratings: Ratings, settings: Settings, progress: Report = quiet) -> Trained:
    """Train as `training.train` does, with a party per user and every message of the protocols."""
    settings = resolve_mask(settings, has_features=ratings.has_features)
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
    features = next(iter(parties.values())).features.seen
    found = (masks, features, layout, plan.variant, in_clear, members)
    return Trained(*found, *times, cost, n_left_out)


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
    scheme = settings.scheme
    if scheme.is_secagg(settings) and not scheme.has_budget and n_users <= rank:
        raise SettingsError(
            f"real parties refuse sums over no more users than there are factors, which can be "
            f"taken apart; got {n_users} users and {rank} factors. Use fewer factors or more users"
        )
    if scheme.in_clear == "everybody" and not SOLVERS[settings.solver].may_be_clear:
        raise SettingsError(
            f"solver {settings.solver!r} is always summed where real messages are sent, since one "
            "update holds masked ratings; use sharing 'strict'"
        )
