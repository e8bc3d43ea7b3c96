"""A prepared run as a case for the engine on torch, and the same run by another engine."""

import time

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.settings import Settings
from fedmmf.simulation.prepared import Prepared, lists_of, prepare
from fedmmf.simulation.training import Member, Trained
from fedmmf.simulation.training import train as trained_by
from fedmmf.solvers.vb.server import VbServer
from fedmmf_experiments.bench.engine_cases import EngineCase, TestedPairs, scored


def case_of(train: Ratings, test: Ratings, settings: Settings) -> EngineCase:
    """Make the case of a run: masks are fitted, and servers are before their first rounds."""
    run = prepare(train, settings)
    halves = [_half(run, number) for number in range(run.settings.ensemble)]
    group, rounds = run.groups[0], run.settings.max_rounds
    tested = tested_pairs(run, test)
    return EngineCase(train.name, run.crowd_input, halves, group.counts, rounds, tested)


def _half(run: Prepared, number: int) -> VbServer:
    half = run.coordinator(number).half
    if not isinstance(half, VbServer):
        raise TypeError("cases are of vb")
    return half


def tested_pairs(run: Prepared, test: Ratings) -> TestedPairs:
    """The tested ratings of items that are summed."""
    lists = lists_of(test)
    places, is_summed = lists.within(run.layout.items, test.n_items)
    mask = run.masks.predict(lists, run.features, run.engine.mask_runner())
    scale = np.array((test.scale.min, test.scale.max))
    ratings = test.values[is_summed]
    return TestedPairs(places.users, places.items, ratings, mask[is_summed], scale)


def trained_beside(train: Ratings, settings: Settings, case: EngineCase) -> dict[str, float]:
    """Seconds of a whole fit with the settings' engine, warm, preparation included.

    And how good it is on the same tested ratings: those of items that are summed.
    """
    trained_by(train, settings)
    began = time.perf_counter()
    found = trained_by(train, settings)
    seconds = time.perf_counter() - began
    runs = [run_of(member, found, case) for member in found.members]
    if case.tested is None:
        return {"seconds": seconds}
    name, value = scored(case, case.tested, runs)
    return {"seconds": seconds, name: value}


def run_of(member: Member, found: Trained, case: EngineCase) -> tuple[Array, Array]:
    """q_i of the items that are summed, with what is known of them, and p_u."""
    q = member.public.item_factors[found.layout.items]
    return np.hstack(
        (q, case.given.design[:, : case.given.update_shape.n_joint])
    ), member.user_factors
