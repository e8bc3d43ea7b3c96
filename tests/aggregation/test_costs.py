"""The cost model against measured rounds, and reported bytes against counted ones."""

import numpy as np
import pytest

from fedmmf import FedMMF, simulation
from fedmmf.aggregation import costs
from fedmmf.config import Settings
from fedmmf.federation import make_participants, make_parties
from fedmmf.secagg import RING32, RING64
from fedmmf.transport import InProcess


@pytest.mark.parametrize(("ring", "signed"), [(RING32, False), (RING64, False), (RING32, True)])
@pytest.mark.parametrize(("n", "neighbours", "length"), [(12, 4, 50), (9, 8, 7), (40, 6, 333)])
def test_bytes_are_those_of_a_real_round(n, neighbours, length, ring, signed):
    size = costs.Size(n, neighbours, length, ring, signed)
    real, model = costs.measure(size), costs.secure_cost(size)
    assert model.up_bytes == real.up_bytes
    assert model.down_bytes == real.down_bytes


def test_the_fit_finds_the_coefficients_that_made_the_figures():
    sizes = [
        costs.Size(n, k, length, signed=signed)
        for signed in (False, True)
        for n in (10, 50)
        for k in (4, 8)
        for length in (10**3, 10**5, 10**6)
    ]
    party, server = np.array([1e-3, 2e-4, 3e-3, 1e-4, 5e-4]), np.array([2e-4, 1e-5, 4e-3, 3e-5])
    measured = [
        (
            size,
            costs.Cost(party @ size.party_features(), server @ size.server_features(), 0.0, 0.0),
        )
        for size in sizes
    ]
    found = costs.fit(measured)
    np.testing.assert_allclose(found["party_s"], party, rtol=1e-6)
    np.testing.assert_allclose(found["server_s"], server, rtol=1e-6)


@pytest.mark.parametrize(
    ("sharing", "solver", "signed"),
    [
        ("plain", "sgd", False),
        ("adaptive", "sgd", False),
        ("strict", "sgd", False),
        ("strict", "vb", False),
        ("strict", "sgd", True),
    ],
)
def test_reported_traffic_is_what_crosses_the_wire(small, sharing, solver, signed):
    chosen = {"sharing": sharing, "solver": solver, "signed": signed}
    settings = Settings(mask="mean", rounds=1, factors=4, held_out=0.1, **chosen)
    parties = make_parties(small, settings, simulation.choose_held_out(small, settings))
    transport = InProcess(parties)
    server = simulation.make_server(small, settings)
    participants = make_participants(parties, transport, settings, small.scale.span)
    participants.sums(server.next_message())  # also sets a secure session up
    before = transport.bytes_up, transport.bytes_down
    participants.sums(server.next_message())
    up, down = transport.bytes_up - before[0], transport.bytes_down - before[1]
    traffic = FedMMF(**settings.model_dump()).fit(small).traffic()
    if sharing != "adaptive":  # there the mean party of both groups rates equally much
        assert traffic["up_bytes_per_user_round"] == pytest.approx(up / small.n_users, abs=0.1)
    assert traffic["up_bytes_per_user_round"] == pytest.approx(up / small.n_users, rel=0.05)
    assert traffic["down_bytes_per_user_round"] == pytest.approx(down / small.n_users, abs=0.1)
