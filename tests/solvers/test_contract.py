"""What every solver has to do; the equations are in test_sgd.py and test_vb.py."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmmf.config import Settings
from fedmmf.errors import UnknownNameError, WireError
from fedmmf.scale import RatingScale
from fedmmf.secagg import ring_named
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Ground, ItemSums, Public, added, unrated
from fedmmf.sums.contract import HELD_OUT_TOTALS, sizes_of
from fedmmf.wire import Catalogue, Round, read

N_ITEMS, N_USERS, SPAN = 11, 14, 4.0
SCALE = RatingScale(1, 5, 1)


class Problem:
    """Masked ratings of a low rank, by users who rated about half of the items each."""

    def __init__(self):
        generator = np.random.default_rng(8)
        taste, kind = (
            generator.standard_normal((N_USERS, 2)),
            generator.standard_normal((2, N_ITEMS)),
        )
        self.items = [
            np.flatnonzero(generator.random(N_ITEMS - 1) < 0.6) for _ in range(N_USERS)
        ]  # nobody rates the last item
        self.masked = [
            (taste[user] @ kind[:, items]).astype(np.float32)
            for user, items in enumerate(self.items)
        ]
        self.regressors = generator.standard_normal((N_ITEMS, 2))

    def ground(self):
        stream = np.random.default_rng(1)
        return Ground(N_ITEMS, SPAN, 0.0, 6.0, self.regressors, stream)

    def sums(self, halves, public, t):
        """What everybody sends, added up as the server sees it."""
        parts = []
        for half, items, masked in zip(halves, self.items, self.masked, strict=True):
            rows = np.zeros(public.item_rows.shape)
            rows[items], totals = half.update(masked, public.take(items), t)
            n_raters = np.isin(np.arange(N_ITEMS), items).astype(int)
            parts.append(ItemSums(rows, n_raters, totals))
        return added(parts)

    def error(self, halves, public):
        """Root mean square error of q . p."""
        each = zip(halves, self.items, self.masked, strict=True)
        errors = [
            masked - public.item_factors[items] @ half.user_factors for half, items, masked in each
        ]
        return float(np.sqrt(np.mean(np.square(np.concatenate(errors)))))


PROBLEM = Problem()


def numbers(n):
    """What can arrive as parameters: any finite numbers."""
    return arrays.arrays(np.float64, n, elements=st.floats(allow_nan=False, allow_infinity=False))


@pytest.mark.parametrize("name", SOLVERS.names())
class TestSolver:
    """The contract."""

    @pytest.fixture
    def solver(self, name):
        return SOLVERS[name]

    @pytest.fixture
    def settings(self, name):
        return Settings(solver=name, factors=3)

    @pytest.fixture
    def rank(self, solver, settings):
        return solver.rank(settings)

    @pytest.fixture
    def server(self, solver, settings):
        return solver.server(settings, PROBLEM.ground())

    @pytest.fixture
    def halves(self, solver, rank):
        return [solver.party(rank) for _ in range(N_USERS)]

    def train(self, server, halves, rounds, after=0):
        for t in range(after + 1, after + rounds + 1):
            server.advance(PROBLEM.sums(halves, server.public(), t), t)

    def test_it_says_what_everybody_has_to_know(self, name, solver):
        assert solver.name == name
        assert ring_named(solver.ring).name == solver.ring
        assert solver.default_rounds >= 1
        assert 0 <= solver.default_held_out <= 0.5
        assert {solver.may_be_clear, solver.may_be_noisy} <= {True, False}

    def test_its_sizes_are_those_of_its_arrays(self, solver, server, rank, halves):
        public = server.public()
        assert rank == public.rank >= 3
        assert public.item_rows.shape == (N_ITEMS, solver.width(rank))
        assert (public.item_rows.dtype, public.parameters.dtype) == (np.float32, np.float64)
        assert public.parameters.ndim == 1
        assert public.item_factors.shape == (N_ITEMS, rank)
        items = PROBLEM.items[0]
        rows, totals = halves[0].update(PROBLEM.masked[0], public.take(items), 1)
        assert rows.shape == (len(items), solver.width(rank))
        assert totals.shape == (solver.n_totals(rank),)
        assert halves[0].user_factors.shape == (rank,)

    def test_its_bounds_grow_with_the_scale_and_are_not_reached(self, solver, server, halves):
        bounds, wide = solver.bounds(SPAN), solver.bounds(100 * SPAN)
        assert 0 < bounds.row < wide.row
        assert 0 < bounds.total < wide.total
        for t in range(1, 8):
            public = server.public()
            for half, items, masked in zip(halves, PROBLEM.items, PROBLEM.masked, strict=True):
                rows, totals = half.update(masked, public.take(items), t)
                assert np.abs(rows).max() < bounds.row
                assert np.abs(totals).max(initial=0.0) < bounds.total
            self.train(server, halves, 1, after=t)

    def test_training_lowers_the_error(self, solver, server, halves):
        self.train(server, halves, 1)
        first = PROBLEM.error(halves, server.public())
        self.train(server, halves, solver.default_rounds, after=1)
        assert PROBLEM.error(halves, server.public()) < 0.6 * first

    def test_it_accepts_what_its_own_server_publishes(self, solver, server, halves, rank):
        """Also as it comes off the wire."""
        catalogue = Catalogue(N_ITEMS, SCALE, bytes(32))
        sizes = sizes_of(catalogue, solver, rank, for_survey=False)
        assert sizes.n_totals == HELD_OUT_TOTALS + solver.n_totals(rank)
        for t in range(1, 6):
            public = server.public()
            solver.check(public)
            frame = Round.of(public, t, 0, is_last=False).encode()
            arrived = read(frame, [Round], sizes).public
            solver.check(arrived)
            assert np.array_equal(arrived.item_rows, public.item_rows)
            assert np.array_equal(arrived.parameters, public.parameters)
            self.train(server, halves, 1, after=t - 1)

    @pytest.mark.parametrize("change", [-2, -1, 1, 7])
    def test_it_refuses_another_number_of_parameters(self, solver, server, change):
        public = server.public()
        n = len(public.parameters) + change
        with pytest.raises(WireError, match="the server's numbers are out of range"):
            solver.check(Public(public.rank, np.resize(public.parameters, n), public.item_rows))
        with pytest.raises(WireError):
            solver.check(Public(public.rank, np.zeros(0), public.item_rows))

    @pytest.mark.parametrize("factor", [-1.0, 1e300, -1e300])
    def test_it_refuses_signs_and_sizes_that_no_server_has(self, solver, server, factor):
        public = server.public()
        with pytest.raises(WireError, match="the server's numbers are out of range"):
            solver.check(Public(public.rank, factor * public.parameters, public.item_rows))

    def test_what_it_accepts_can_be_computed_with(self, solver, settings, rank):
        """Whatever finite numbers arrive: `check` refuses them, or a party comes to an end.

        What is not finite then, or not invertible, the party refuses itself.
        """
        public = solver.server(settings, PROBLEM.ground()).public()
        items, masked = PROBLEM.items[0], PROBLEM.masked[0]
        usual = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 1e-20, 1e20])
        n = len(public.parameters)

        @given(numbers(n) | arrays.arrays(np.float64, n, elements=usual))
        def holds(parameters):
            told = Public(rank, parameters, public.item_rows)
            try:
                solver.check(told)
            except WireError:
                return
            half = solver.party(rank)
            with np.errstate(all="ignore"):
                try:
                    rows, _ = half.update(masked, told.take(items), 1)
                    half.settle(masked, told.take(items))
                except np.linalg.LinAlgError:
                    return
            assert rows.shape == (len(items), solver.width(rank))

        holds()

    def test_an_update_depends_on_nothing_but_its_arguments(self, solver, server, rank):
        one, other = solver.party(rank), solver.party(rank)
        for t in (1, 2, 3):
            public = server.public().take(PROBLEM.items[0])
            before = public.item_rows.copy()
            mine, theirs = (half.update(PROBLEM.masked[0], public, t) for half in (one, other))
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
            assert np.array_equal(one.user_factors, other.user_factors)
            assert np.array_equal(public.item_rows, before)

    def test_a_party_goes_on_from_its_state(self, solver, server, halves, rank):
        self.train(server, halves, 3)
        half, public = halves[0], server.public().take(PROBLEM.items[0])
        state = half.state()
        kept = {name: value.copy() for name, value in state.items()}
        expected = half.update(PROBLEM.masked[0], public, 4)
        assert all(np.array_equal(state[name], kept[name]) for name in kept)  # these are copies
        for _ in range(2):  # one state serves many
            again = solver.party(rank)
            again.restore(state)
            found = again.update(PROBLEM.masked[0], public, 4)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
            assert np.array_equal(again.user_factors, half.user_factors)

    def test_a_server_goes_on_from_its_state(self, solver, settings, server, halves):
        self.train(server, halves, 3)
        sums = PROBLEM.sums(halves, server.public(), 4)
        state = {name: value.copy() for name, value in server.state().items()}
        again = solver.server(settings, PROBLEM.ground())
        again.restore(state)
        assert np.array_equal(again.public().item_rows, server.public().item_rows)
        for half in (server, again):
            half.advance(sums, 4)
        assert np.array_equal(again.public().item_rows, server.public().item_rows)
        assert np.array_equal(again.public().parameters, server.public().parameters)

    def test_what_is_published_stays_as_it_was(self, server, halves):
        """The best round is kept while the next ones are computed."""
        public = server.public()
        rows, parameters = public.item_rows.copy(), public.parameters.copy()
        self.train(server, halves, 2)
        assert np.array_equal(public.item_rows, rows)
        assert np.array_equal(public.parameters, parameters)

    def test_who_settles_fits_finished_factors(self, solver, server, halves, rank):
        """Wherever p_u was before, and better than at the start."""
        self.train(server, halves, solver.default_rounds)
        public = server.public()
        fresh = [solver.party(rank) for _ in range(N_USERS)]
        at_start = PROBLEM.error(fresh, public)
        for one, other, items, masked in zip(
            halves, fresh, PROBLEM.items, PROBLEM.masked, strict=True
        ):
            one.settle(masked, public.take(items))
            other.settle(masked, public.take(items))
            assert np.array_equal(one.user_factors, other.user_factors)
        assert PROBLEM.error(fresh, public) < 0.6 * at_start

    def test_who_has_rated_nothing_adds_nothing(self, solver, server, rank):
        half, nothing = solver.party(rank), np.zeros(0, np.float32)
        before = half.user_factors.copy()
        for t in (1, 2):
            public = server.public().take(np.zeros(0, int))
            rows, totals = half.update(nothing, public, t)
            assert rows.shape == (0, solver.width(rank))
            assert totals.shape == (solver.n_totals(rank),)
            assert not totals.any()
        np.testing.assert_allclose(half.user_factors, before, atol=1e-6)
        half.settle(nothing, public)
        np.testing.assert_allclose(half.user_factors, before, atol=1e-6)

    def test_factors_can_be_put_back(self, solver, server, halves, rank):
        """The p_u of the best round."""
        self.train(server, halves, 2)
        best = halves[0].user_factors.copy()
        self.train(server, halves, 2, after=2)
        halves[0].user_factors = best
        assert np.array_equal(halves[0].user_factors, best)


def test_an_unknown_solver_is_named():
    with pytest.raises(UnknownNameError, match="no solver called 'als'; there are sgd, vb"):
        SOLVERS["als"]


def test_sums_of_groups_add_up():
    one = ItemSums(np.ones((2, 3)), np.array([1, 0]), np.array([2.0]))
    both = added([one, one])
    assert (both.rows == 2).all()
    assert both.n_raters.tolist() == [2, 0]
    assert both.totals.tolist() == [4.0]
    assert unrated(both).tolist() == [False, True]
