"""All 943 people of ML-100K as real parties under the real protocol."""

import numpy as np
import pytest

from fedmmf import simulation, training, wire
from fedmmf.aggregation.layout import Bounds
from fedmmf.config import Settings
from fedmmf.coordinator import n_update_totals
from fedmmf.federation import make_participants, make_parties
from fedmmf.traffic import Shape
from fedmmf.transport import InProcess

ROUNDS = 3


def fixed_point_sum(parties, message, layout, codec, suppressed):
    """What the parties would add up to if anybody could see them all."""
    sizes = {"n_items": layout.n_items, "width": layout.width, "n_totals": layout.n_totals}
    total = np.zeros(layout.length, np.int64)
    for party in parties.values():
        update = wire.Update.decode(party.answer(message.encode()), **sizes)
        kept = ~np.isin(update.items, suppressed)
        vector = layout.pack(update.items[kept], update.rows[kept], update.totals)
        total += codec.quantize(vector)
    return layout.unpack(total / codec.scale)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_every_round_gives_the_exact_sum_and_the_simulations_factors(ml_100k, solver):
    factors = {"sgd": 20, "vb": 4}[solver]
    settings = Settings(mask="lr", solver=solver, factors=factors, rounds=ROUNDS)
    held_out = simulation.choose_held_out(ml_100k, settings)
    parties = make_parties(ml_100k, settings, held_out)
    twins = make_parties(ml_100k, settings.changed(sharing="plain"), held_out)
    assert len(parties) == 943
    participants = make_participants(parties, InProcess(parties), settings, ml_100k.scale.span)
    server = simulation.make_server(ml_100k, settings)
    layout = Shape(settings, server.result, 943, 0.0, ml_100k.scale.span).layout
    assert layout.n_totals == n_update_totals(solver, server.result)
    codec = Bounds.of(solver, ml_100k.scale.span).codec(layout, solver, 943)
    counts = np.bincount(ml_100k.item_codes[~held_out], minlength=ml_100k.n_items)
    rare = np.flatnonzero((counts > 0) & (counts < settings.min_raters))
    for _ in range(ROUNDS):
        message = server.next_message()
        sums = participants.sums(message)
        expected = fixed_point_sum(twins, message, layout, codec, rare)
        assert np.array_equal(sums.rows, expected.rows)
        assert np.array_equal(sums.n_raters, expected.n_raters)
        assert np.array_equal(sums.totals, expected.totals)
        server.advance(message, sums)
    assert len(rare) > 100
    assert len(participants.survivors) == 943
    (member,) = training.train(ml_100k, settings).members
    np.testing.assert_allclose(server.result.item_factors, member.public.item_factors, atol=1e-4)
