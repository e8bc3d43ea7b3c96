"""A server that tells parties different things gets no sum of those who were told the same.

Each attack is run with the binding taken out as well, and then reads the victim's update: so the
tests can fail.
"""

from dataclasses import replace

import numpy as np
import pytest
from federations import federation_of, settings_of

from fedmmf.errors import DataError, WireError
from fedmmf.secagg import client, keys, recovery
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.sums.secure import party as secure_party
from fedmmf.sums.secure import server as secure_server
from fedmmf.wire import name_of

VICTIM = "000003"


def without(monkeypatch, *, binding):
    """Take one half of the binding out, on both sides."""
    if binding == "what is published":
        honest = keys.pair_seed

        def pair_seed(secret, context, one, other, about=b""):
            return honest(secret, context, one, other)

        for module in (client.keys, recovery.keys):
            monkeypatch.setattr(module, "pair_seed", pair_seed)
        return
    agreed = secure_party.agreed_setup

    def agreed_setup(message, codec, invitation):
        return replace(agreed(message, codec, invitation), binding=b"")

    for module in (secure_party, secure_server):
        monkeypatch.setattr(module, "agreed_setup", agreed_setup)


def attacked(tiny, monkeypatch, lie):
    """The sum that a server gets which tells everybody but the victim something else."""
    federation = federation_of(tiny, settings_of("secure", held_out=0.0, min_raters=1))
    federation.server.invite()
    side, roster = federation.server.side, federation.server.roster
    honest = roster.ask

    def ask(stage, questions, expected, known=None, publication=b""):
        others, lied = lie(stage, questions, publication)
        if others is None:
            return honest(stage, questions, expected, known, publication)
        victims = {VICTIM: questions[VICTIM]}
        replies = honest(stage, victims, expected, known, publication)
        return replies | honest(stage, others, expected, known, lied)

    monkeypatch.setattr(roster, "ask", ask)
    return side.sums(federation.server.coordinator.next_round())


def victims_update(tiny):
    """What the server would like to have. (n_items, k)."""
    run = prepare(tiny, settings_of("plain", held_out=0.0))
    mine, public = run.lists.of(int(VICTIM)), run.coordinator().next_round().public
    items, masked = run.lists.items[mine], run.masks.masked_ratings[mine]
    rows = np.zeros_like(public.item_rows)
    rows[items], _ = SOLVERS["sgd"].party(public.rank).update(masked, public.take(items), 1)
    return rows


def other_factors(tiny):
    """Factors at which the others have nothing to say: no step, and rows that vanish."""
    run = prepare(tiny, settings_of("secure", held_out=0.0, min_raters=1))
    round_ = run.coordinator().next_round()
    parameters = round_.parameters.copy()
    parameters[1:3] = 1e-30, 0.0  # no learning rate, no regularisation: p_u stays (1, 0, ...)
    rows = np.zeros_like(round_.item_rows)
    return replace(round_, parameters=parameters, item_rows=rows).encode()


def publish_two_rounds(tiny):
    frame = other_factors(tiny)

    def lie(stage, questions, publication):
        if not stage.startswith("trip"):
            return None, b""
        about = name_of(frame)
        others = {n: replace(q, about=about) for n, q in questions.items() if n != VICTIM}
        return others, frame if publication else b""

    return lie


def leave_everything_out(tiny):
    everything = np.arange(tiny.n_items, dtype=np.int32)

    def lie(stage, questions, publication):
        if stage != "set-up":
            return None, b""
        others = {n: replace(q, left_out=everything) for n, q in questions.items() if n != VICTIM}
        return others, b""

    return lie


def told_apart(tiny, monkeypatch, lie):
    """The rows that the server reads beside the victim's; None: no sum."""
    try:
        return attacked(tiny, monkeypatch, lie).rows
    except (WireError, DataError):
        return None


def test_different_factors_for_different_parties_make_noise(tiny, monkeypatch):
    """Pasquini et al. 2022."""
    rows = told_apart(tiny, monkeypatch, publish_two_rounds(tiny))
    assert rows is None or np.abs(rows - victims_update(tiny)).max() > 1.0


def test_without_the_binding_of_what_is_published_the_masks_cancel(tiny, monkeypatch):
    without(monkeypatch, binding="what is published")
    rows = told_apart(tiny, monkeypatch, publish_two_rounds(tiny))
    others = _rows_of_the_others(tiny)
    np.testing.assert_allclose(rows - others, victims_update(tiny), atol=1e-3)


def _rows_of_the_others(tiny):
    """What the others add at factors of the server's choice: -e' p_u, e' their masked rating."""
    run = prepare(tiny, settings_of("plain", held_out=0.0))
    is_other = run.lists.users != int(VICTIM)
    rows = np.zeros((tiny.n_items, 3))
    np.add.at(rows[:, 0], run.lists.items[is_other], -run.masks.masked_ratings[is_other])
    return rows


def test_different_items_left_out_for_different_parties_give_no_sum(tiny, monkeypatch):
    assert told_apart(tiny, monkeypatch, leave_everything_out(tiny)) is None


def test_without_the_binding_of_the_set_up_the_sum_is_the_victims_update(tiny, monkeypatch):
    without(monkeypatch, binding="the set-up")
    rows = told_apart(tiny, monkeypatch, leave_everything_out(tiny))
    np.testing.assert_allclose(rows, victims_update(tiny), atol=1e-4)


@pytest.mark.parametrize("variant", ["secure", "secure signed"])
def test_parties_that_are_told_the_same_are_summed(tiny, variant):
    federation = federation_of(tiny, settings_of(variant, rounds=2))
    federation.run()
    assert len(federation.server.side.survivors) == tiny.n_users
