"""A server that lies, among real parties, and what it would like to read."""

from dataclasses import replace

import numpy as np
from federations import federation_of, settings_of

from fedmmf.errors import FedMMFError
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import UserData
from fedmmf.wire import name_of

VICTIM = "000003"
BARE = {"held_out": 0.0, "min_raters": 1}


def lying_federation(ratings, lie, **changes):
    """A federation whose server tells everybody but the victim what `lie` says."""
    federation = federation_of(ratings, settings_of("secure", **BARE, **changes))
    federation.invite()
    roster = federation.server.roster
    honest = roster.ask

    def ask(stage, questions, expected, known=None, broadcast=b""):
        others, lied = lie(stage, questions, broadcast)
        if others is None:
            return honest(stage, questions, expected, known, broadcast)
        victims = {name: question for name, question in questions.items() if name == VICTIM}
        replies = honest(stage, victims, expected, known, broadcast)
        return replies | honest(stage, others, expected, known, lied)

    roster.ask = ask
    return federation


def rows_read(federation):
    """The rows of round 1 as the server gets them, of all items; None: no sum. (n_items, k)."""
    side = federation.server.side
    try:
        if side.layout is None:
            side.prepare()
        found = side.sums(federation.server.coordinator.next_round()).rows
    except FedMMFError:
        return None
    rows = np.zeros((side.context.catalogue.n_items, found.shape[1]))
    rows[side.layout.items] = found
    return rows


def is_victims(rows, ratings, atol=1e-3):
    """Whether these rows are the victim's update."""
    return rows is not None and np.allclose(rows, victims_update(ratings), atol=atol)


def victims_update(ratings, layout=None):
    """What the server would like to have, by the usual layout or another. (n_items, k)."""
    run = prepare(ratings, settings_of("secure", **BARE))
    if layout is not None:
        run = replace(run.refitted(run.settings, population=layout.population), layout=layout)
    given, broadcast = run.training_input, run.coordinator().next_round().broadcast
    mine, none = given.lists.of(int(VICTIM)), np.zeros(0)
    items, solver = given.lists.items[mine], SOLVERS["sgd"]
    own = UserData(items, given.masked_ratings[mine], none, none)
    reading = solver.reading(given.update_shape, broadcast, given.design)
    rows = np.zeros((ratings.n_items, broadcast.rank))
    rows[run.layout.items[items]], _ = solver.party(given.update_shape).update(own, reading, 1)
    return rows


def other_factors(ratings):
    """A lie: factors at which the others say what the server knows already, and the victim's."""
    run = prepare(ratings, settings_of("secure", **BARE))
    round_ = run.coordinator().next_round()
    parameters = round_.parameters.copy()
    parameters[1:3] = 1e-30, 0.0  # no learning rate, no regularisation: p_u stays (1, 0, ...)
    rows = np.zeros_like(round_.item_rows)
    frame = replace(round_, parameters=parameters, item_rows=rows).encode()
    about = name_of(frame)

    def lie(stage, questions, broadcast):
        if not stage.startswith("trip"):
            return None, b""
        others = {n: replace(q, about=about) for n, q in questions.items() if n != VICTIM}
        return others, frame if broadcast else b""

    return lie


def rows_of_the_others(ratings):
    """What the others add at these factors: -e' p_u, e' their masked rating. (n_items, k)."""
    run = prepare(ratings, settings_of("plain", held_out=0.0))
    is_other = run.lists.users != int(VICTIM)
    rows = np.zeros((ratings.n_items, 3))
    np.add.at(rows[:, 0], run.lists.items[is_other], -run.masks.masked_ratings[is_other])
    return rows


def everything_left_out(ratings):
    """A lie: all items are left out, for all but the victim."""
    everything = np.arange(ratings.n_items, dtype=np.int32)

    def lie(stage, questions, broadcast):
        if stage != "set-up" or next(iter(questions.values())).for_survey:
            return None, b""
        others = {n: replace(q, left_out=everything) for n, q in questions.items() if n != VICTIM}
        return others, b""

    return lie
