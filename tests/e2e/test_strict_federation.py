"""All 943 people of ML-100K as real parties under the real protocol."""

import numpy as np
import pytest

from fedmmf.aggregation.rare_items import are_rare
from fedmmf.masks import FittedMasks
from fedmmf.secagg import FixedPoint, ring_named
from fedmmf.secagg.ring import RING64
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train
from fedmmf.simulation.real import real_federation
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import UserData

ROUNDS = 3


class EverybodySeen:
    """What the parties would add up to if anybody could see them all."""

    def __init__(self, run, parties):
        self._solver, self._lists = SOLVERS[run.settings.solver], run.lists
        self._update_shape, self._items = run.plan.update_shape, run.layout.items
        self._profiles = run.data.profiles[:, : self._update_shape.n_profile]
        self._design = run.features.design[self._items, : self._update_shape.n_columns]
        together = FittedMasks.together([party.masks for party in parties.values()])
        self._masked = together.masked_ratings
        self._halves = [self._solver.party(self._update_shape) for _ in parties]
        self._bounds, ring = self._solver.bounds(4.0), ring_named(self._solver.ring)
        self._scales = [
            FixedPoint(len(parties), self._bounds.row, ring).scale,
            FixedPoint(len(parties), self._bounds.total, RING64).scale,
        ]

    def sums(self, broadcast, t):
        """Rows and totals, each user's in fixed point before they are added."""
        none = np.zeros(0)
        reading = self._solver.reading(self._update_shape, broadcast, self._design)
        rows = np.zeros((len(self._items), self._update_shape.width), np.int64)
        totals = np.zeros(self._update_shape.n_totals, np.int64)
        for user, half in enumerate(self._halves):
            mine = self._lists.of(user)
            items, masked = self._lists.items[mine], self._masked[mine]
            kept = np.isin(items, self._items)
            places = np.searchsorted(self._items, items[kept])
            own = UserData(places, masked[kept], self._profiles[user], none)
            sent, more = half.update(own, reading, t)
            rows[places] += self._steps(sent, self._bounds.row, self._scales[0])
            totals += self._steps(more, self._bounds.total, self._scales[1])
        return (rows / self._scales[0]).astype(np.float32), totals / self._scales[1]

    @staticmethod
    def _steps(values, bound, scale):
        return np.rint(np.clip(values.astype(np.float64), -bound, bound) * scale).astype(np.int64)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_every_round_gives_the_exact_sum_and_the_simulations_factors(ml_100k, solver):
    factors = {"sgd": 20, "vb": 4}[solver]
    settings = Settings(mask="lr", solver=solver, factors=factors, rounds=ROUNDS)
    run = prepare(ml_100k, settings)
    federation = real_federation(run)
    assert len(federation.parties) == 943
    federation.prepare_sums()
    counts = run.lists.counts(ml_100k.n_items)
    is_rare = are_rare(counts, settings.min_raters)
    assert is_rare.sum() > 100
    layout = federation.server.side.layout
    assert np.array_equal(layout.items, np.flatnonzero(~is_rare))
    np.testing.assert_allclose(layout.line, run.layout.line, atol=1e-6)
    assert layout.shrinkage == pytest.approx(run.layout.shrinkage, rel=1e-6)
    everybody = EverybodySeen(run, federation.parties)
    server = federation.server.coordinator
    held_out = run.users.held_out_of(run.layout)
    for t in range(1, ROUNDS + 1):
        round_ = server.next_round()
        sums = federation.server.side.sums(round_)
        rows, totals = everybody.sums(round_.broadcast, t)
        assert np.array_equal(sums.rows, rows)
        assert np.array_equal(sums.n_raters, counts[~is_rare])
        assert sums.totals[0] == (0 if held_out is None else len(held_out.ratings))
        assert np.array_equal(sums.totals[2:], totals)
        server.advance(round_, sums)
    assert len(federation.server.side.survivors) == 943
    assert not federation.server.roster.incidents
    (member,) = train(ml_100k, settings).members
    np.testing.assert_allclose(server.result.item_factors, member.broadcast.item_factors, atol=1e-4)
    np.testing.assert_allclose(server.history, member.history, rtol=1e-5)
