"""What every solver has to do, in each of its variants; the equations are in test_sgd.py and
test_vb.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedmmf.aggregation.contract import HELD_OUT_TOTALS, round_sizes
from fedmmf.data.scales import RatingScale
from fedmmf.errors import UnknownNameError, WireError
from fedmmf.masks.feature_maps import design_of
from fedmmf.secagg import ring_named
from fedmmf.settings import Settings
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import (
    MAX_NUMBER,
    MAX_TOTAL,
    Broadcast,
    ItemSums,
    SolverContext,
    UserData,
    added,
    unrated,
    whole_factors,
)
from fedmmf.wire import Catalogue, Layout, Round, read

N_ITEMS, N_USERS, SPAN = 11, 14, 4.0
SCALE = RatingScale(1, 5, 1)
WEIGHT, VALUE = 0.03, 2.0  # of unrated items, where they count: who rated what is of no low rank

# Settings, columns of profiles, columns of a design, levels.
CASES = {
    "sgd": ({"solver": "sgd"}, 0, 0, 0),
    "sgd, mean": ({"solver": "sgd", "step": "mean"}, 0, 0, 0),
    "sgd, biases": ({"solver": "sgd", "biases": True}, 0, 0, 0),
    "vb, none": ({"solver": "vb", "implicit_prior": "none"}, 0, 0, 0),
    "vb, items": ({"solver": "vb", "implicit_prior": "items"}, 0, 0, 0),
    "vb, users": ({"solver": "vb", "implicit_prior": "users"}, 0, 0, 0),
    "vb, both": ({"solver": "vb"}, 0, 0, 0),
    "vb, no item prior": ({"solver": "vb", "item_prior": False}, 0, 0, 0),
    "vb, profiles": ({"solver": "vb", "implicit_prior": "none"}, 2, 0, 0),
    "vb, ranking": ({"solver": "vb", "implicit_prior": "none"}, 0, 1, 0),
    "vb, ranking by features": ({"solver": "vb", "implicit_prior": "none"}, 0, 3, 0),
    "vb, all of it": ({"solver": "vb"}, 2, 3, 0),
    "vb, ordinal": ({"solver": "vb", "implicit_prior": "none"}, 0, 0, 5),
    "vb, both, profiles, ordinal": ({"solver": "vb"}, 2, 0, 5),
    "vb, joint": ({"solver": "vb", "mask": "lr", "mask_fit": "joint"}, 2, 3, 0),
}
# Other packages' solvers (tests/extending), as they are without being asked for more.
TRIED = {settings["solver"] for settings, *_ in CASES.values()}
CASES |= {name: ({"solver": name}, 0, 0, 0) for name in SOLVERS.names() if name not in TRIED}


def test_every_solver_is_tried():
    assert {"sgd", "vb"} <= TRIED
    assert {settings["solver"] for settings, *_ in CASES.values()} == set(SOLVERS.names())


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
        self.profiles = generator.standard_normal((N_USERS, 2))
        self.lines = np.array((3.0, 0.2, -0.2)) + 0.3 * generator.standard_normal((N_USERS, 3))

    @property
    def counts(self):
        return sum(np.isin(np.arange(N_ITEMS), items).astype(int) for items in self.items)


PROBLEM = Problem()


def ordered(masked):
    """Ratings near 3 + what is masked, as levels, and the masks that leave that."""
    levels = SCALE.levels(3.0 + masked)
    return {"levels": levels, "mask": (1.0 + levels - masked).astype(np.float32)}


class Case:
    """The problem, as one variant of a solver sees it."""

    def __init__(self, name):
        self.name = name
        chosen, n_profile, n_design, n_levels = CASES[name]
        if n_levels:
            chosen = {"likelihood": "ordinal", **chosen}
        if n_design and "mask_fit" not in chosen:
            chosen = {"objective": "ranking", "unrated_value": VALUE, **chosen}
            chosen["unrated_weight"] = WEIGHT
        self.settings = Settings(factors=3, **chosen)
        self.solver, self.n_design = SOLVERS[self.settings.solver], n_design
        self.rank = self.solver.rank(self.settings)
        self.variant = self.solver.variant(self.settings, n_profile, n_design, n_levels)
        self.update_shape = self.solver.update_shape(self.rank, self.variant)
        self.design = design_of(PROBLEM.regressors, sees_features=True)[:, :n_design]
        n_lines = self.update_shape.n_design
        lines, profiles = PROBLEM.lines[:, :n_lines], PROBLEM.profiles[:, :n_profile]
        each = zip(PROBLEM.items, PROBLEM.masked, profiles, lines, strict=True)
        self.own = [UserData(*parts) for parts in each]
        if n_levels:  # a rating is what is nearest to the masked rating, the mask is what is left
            self.own = [replace(own, **ordered(own.masked_ratings)) for own in self.own]

    def server(self):
        stream, problem = np.random.default_rng(1), PROBLEM
        context = SolverContext(
            N_ITEMS, SPAN, 1.0, 0.0, 6.0, problem.regressors, self.design, stream
        )
        return self.solver.server(self.settings, self.update_shape, context)

    def party(self):
        return self.solver.party(self.update_shape)

    def reading(self, broadcast):
        return self.solver.reading(self.update_shape, broadcast, self.design)

    def sums(self, halves, broadcast, t):
        """What everybody sends, added up as the server sees it."""
        parts, reading = [], self.reading(broadcast)
        for half, own in zip(halves, self.own, strict=True):
            rows = np.zeros((N_ITEMS, self.update_shape.width))
            rows[own.items], totals = half.update(own, reading, t)
            n_raters = np.isin(np.arange(N_ITEMS), own.items).astype(int)
            parts.append(ItemSums(rows, n_raters, totals))
        return added(parts)

    def train(self, server, halves, rounds, after=0):
        for t in range(after + 1, after + rounds + 1):
            server.advance(self.sums(halves, server.broadcast(), t), t)

    def error(self, halves, broadcast):
        """Root mean square error of q . p; unrated items count as they do in training."""
        total = weights = 0.0
        q = whole_factors(self.update_shape, broadcast, self.design)
        for half, own in zip(halves, self.own, strict=True):
            targets, weight = np.zeros(N_ITEMS), np.zeros(N_ITEMS)
            if self.update_shape.n_design:
                targets, weight = VALUE - self.design @ own.line, np.full(N_ITEMS, WEIGHT)
            targets[own.items], weight[own.items] = own.masked_ratings, 1.0
            weight[PROBLEM.counts == 0] = 0.0
            total += weight @ (targets - q @ half.user_factors) ** 2
            weights += weight.sum()
        return float(np.sqrt(total / weights))


def numbers(n):
    """What can arrive as parameters: any finite numbers."""
    return arrays.arrays(np.float64, n, elements=st.floats(allow_nan=False, allow_infinity=False))


def changed(start):
    """Some of the numbers of a server, changed a little or wildly."""
    odd = st.sampled_from([-1.0, 0.0, 1e-29, 1e-9, 0.5, 1e9, 1e29, -1e29, 1e300])
    near = st.sampled_from([1e-20, 1e-6, 0.9, 1.1, 1e6, 1e20])
    places, ways = st.integers(0, len(start) - 1), odd | near.map(lambda x: (x,))

    def with_changes(changes):
        numbers = start.copy()
        for place, value in changes.items():  # another number, or that times a factor
            numbers[place] = numbers[place] * value[0] if isinstance(value, tuple) else value
        return numbers

    return st.dictionaries(places, ways, min_size=1, max_size=4).map(with_changes)


def assert_stayed(half, before):
    """But for the count of rounds that looked at who rated what, which are public."""
    after = half.state()
    assert all(np.array_equal(after[name], before[name]) for name in before if name != "looks")


@pytest.mark.parametrize("name", CASES)
class TestSolver:
    """The contract."""

    @pytest.fixture
    def case(self, name):
        return Case(name)

    @pytest.fixture
    def server(self, case):
        return case.server()

    @pytest.fixture
    def halves(self, case):
        return [case.party() for _ in range(N_USERS)]

    def test_it_says_what_everybody_has_to_know(self, case):
        solver = case.solver
        assert solver.name == case.settings.solver
        assert ring_named(solver.ring).name == solver.ring
        assert solver.default_rounds >= 1
        assert 0 <= solver.default_held_out <= 0.5
        assert {solver.may_be_clear, solver.may_be_noisy, solver.ranks} <= {True, False}
        assert solver.ranks or not case.update_shape.n_design
        assert solver.joins_masks or not case.update_shape.n_joint

    def test_its_sizes_are_those_of_its_arrays(self, case, server, halves):
        broadcast, update_shape = server.broadcast(), case.update_shape
        assert case.rank == broadcast.rank == update_shape.rank >= 3
        assert broadcast.item_rows.shape == (N_ITEMS, update_shape.broadcast_width)
        assert (broadcast.item_rows.dtype, broadcast.parameters.dtype) == (np.float32, np.float64)
        assert broadcast.parameters.shape == (update_shape.n_parameters,)
        assert broadcast.item_factors.shape == (N_ITEMS, case.rank)
        rows, totals = halves[0].update(case.own[0], case.reading(broadcast), 1)
        assert rows.shape == (len(case.own[0].items), update_shape.width)
        assert rows.dtype == np.float32
        assert totals.shape == (update_shape.n_totals,)
        assert halves[0].user_factors.shape == (case.update_shape.n_own,)
        assert (update_shape.n_profile, update_shape.n_columns, update_shape.n_levels) == CASES[
            case.name
        ][1:]

    def test_a_variant_is_read_as_it_was_written_and_nothing_else(self, case):
        assert case.solver.update_shape(case.rank, case.variant) == case.update_shape
        for other in (case.variant + " ", " " + case.variant, case.variant + "x", "\n", "none"):
            with pytest.raises(WireError, match="the server's numbers are out of range"):
                case.solver.update_shape(case.rank, other)

    def test_its_bounds_grow_with_the_scale_and_are_not_reached(self, case, server, halves):
        bounds, wide = case.solver.bounds(SPAN), case.solver.bounds(100 * SPAN)
        assert 0 < bounds.row < wide.row
        assert 0 < bounds.total < wide.total
        for t in range(1, 8):
            reading = case.reading(server.broadcast())
            for half, own in zip(halves, case.own, strict=True):
                rows, totals = half.update(own, reading, t)
                assert np.abs(rows).max() < bounds.row
                assert np.abs(totals).max(initial=0.0) < bounds.total
            case.train(server, halves, 1, after=t)

    def test_training_lowers_the_error(self, case, server, halves):
        case.train(server, halves, 1)
        first = case.error(halves, server.broadcast())
        case.train(server, halves, case.solver.default_rounds, after=1)
        assert case.error(halves, server.broadcast()) < 0.6 * first

    def test_it_accepts_what_its_own_server_publishes(self, case, server, halves):
        """Also as it comes off the wire, and in the end with items that nobody rated."""
        solver, update_shape = case.solver, case.update_shape
        sizes = the_sizes(case)
        assert sizes.n_totals == HELD_OUT_TOTALS + update_shape.n_totals
        for t in range(1, 6):
            broadcast = server.broadcast()
            solver.check(update_shape, broadcast)
            server.check(broadcast)
            frame = Round.of(broadcast, t, 0, is_last=False).encode()
            arrived = read(frame, [Round], sizes).broadcast
            solver.check(update_shape, arrived)
            assert np.array_equal(arrived.item_rows, broadcast.item_rows)
            assert np.array_equal(arrived.parameters, broadcast.parameters)
            case.train(server, halves, 1, after=t - 1)
        broadcast, more = server.broadcast(), server.unknown(PROBLEM.regressors[:4])
        assert more.shape == (4, update_shape.broadcast_width)
        assert more.dtype == np.float32
        larger = Broadcast(
            broadcast.rank, broadcast.parameters, np.vstack((broadcast.item_rows, more))
        )
        solver.check(update_shape, larger)
        design = np.vstack((case.design, case.design[:4]))
        half = case.party()
        half.solve_user(case.own[0], solver.reading(update_shape, larger, design))
        assert np.isfinite(half.user_factors).all()

    @pytest.mark.parametrize("change", [-2, -1, 1, 7])
    def test_another_number_of_parameters_is_refused(self, case, server, change):
        """By whoever reads a round off the wire."""
        broadcast = server.broadcast()
        n = len(broadcast.parameters) + change
        for numbers in (np.resize(broadcast.parameters, n), np.zeros(0)):
            told = Broadcast(broadcast.rank, numbers, broadcast.item_rows)
            frame = Round.of(told, 1, 0, is_last=False).encode()
            with pytest.raises(WireError, match="must be"):
                read(frame, [Round], the_sizes(case))

    @pytest.mark.parametrize("factor", [-1.0, 1e300, -1e300])
    def test_it_refuses_signs_and_sizes_that_no_server_has(self, case, server, factor):
        broadcast = server.broadcast()
        told = Broadcast(broadcast.rank, factor * broadcast.parameters, broadcast.item_rows)
        with pytest.raises(WireError, match="the server's numbers are out of range"):
            case.solver.check(case.update_shape, told)
        with pytest.raises(WireError, match="the server's numbers are out of range"):
            server.check(told)

    def test_what_it_accepts_can_be_computed_with(self, case, server, halves):
        """Whatever finite numbers arrive: `check` refuses them, or a party comes to an end.

        Where its numbers overflow it says so, and is where it was.
        """
        case.train(server, halves, 2)
        broadcast, own = server.broadcast(), case.own[0]
        usual = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 1e-20, 1e20])
        n = len(broadcast.parameters)
        accepted = []

        @given(
            numbers(n)
            | arrays.arrays(np.float64, n, elements=usual)
            | changed(broadcast.parameters)
        )
        @example(broadcast.parameters)
        def holds(parameters):
            told = Broadcast(case.rank, parameters, broadcast.item_rows)
            try:
                case.solver.check(case.update_shape, told)
            except WireError:
                return
            accepted.append(1)
            half = case.party()
            with np.errstate(all="ignore"):
                try:
                    reading = case.reading(told)
                except np.linalg.LinAlgError:
                    return
                for t in (1, 100):  # also where ordered ratings are levels
                    before = half.state()
                    try:
                        rows, totals = half.update(own, reading, t)
                    except OverflowError:
                        assert_stayed(half, before)
                        continue
                    assert rows.shape == (len(own.items), case.update_shape.width)
                    assert totals.shape == (case.update_shape.n_totals,)
                    assert np.abs(rows).max() <= MAX_NUMBER
                    assert np.abs(totals).max() <= MAX_TOTAL
                before = half.state()
                try:
                    half.solve_user(own, reading)
                except OverflowError:
                    assert_stayed(half, before)
                assert np.abs(half.user_factors).max() <= MAX_NUMBER

        holds()
        assert accepted

    def test_an_update_depends_on_nothing_but_its_arguments(self, case, server, halves):
        one, other = case.party(), case.party()
        for t in (1, 2, 3):
            broadcast = server.broadcast()
            before = broadcast.item_rows.copy()
            readings = [case.reading(broadcast) for _ in range(2)]
            mine, theirs = (
                half.update(case.own[0], reading, t)
                for half, reading in zip((one, other), readings, strict=True)
            )
            assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
            assert np.array_equal(one.user_factors, other.user_factors)
            assert np.array_equal(broadcast.item_rows, before)
            case.train(server, halves, 1, after=t - 1)

    def test_a_party_goes_on_from_its_state(self, case, server, halves):
        case.train(server, halves, 3)
        half, reading = halves[0], case.reading(server.broadcast())
        state = half.state()
        kept = {name: value.copy() for name, value in state.items()}
        expected = half.update(case.own[0], reading, 4)
        assert all(np.array_equal(state[name], kept[name]) for name in kept)  # these are copies
        for _ in range(2):  # one state serves many
            again = case.party()
            again.restore(state)
            found = again.update(case.own[0], reading, 4)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
            assert np.array_equal(again.user_factors, half.user_factors)
            assert all(np.array_equal(state[name], kept[name]) for name in kept)

    def test_a_server_goes_on_from_its_state(self, case, server, halves):
        case.train(server, halves, 3)
        sums = case.sums(halves, server.broadcast(), 4)
        state = {name: value.copy() for name, value in server.state().items()}
        again = case.server()
        again.restore(state)
        assert np.array_equal(again.broadcast().item_rows, server.broadcast().item_rows)
        for half in (server, again):
            half.advance(sums, 4)
        assert np.array_equal(again.broadcast().item_rows, server.broadcast().item_rows)
        assert np.array_equal(again.broadcast().parameters, server.broadcast().parameters)
        regressors = PROBLEM.regressors[:3]
        assert np.array_equal(again.unknown(regressors), server.unknown(regressors))
        # A round later it still is: what was published before is part of what goes on.
        halves_of_both = [[case.party() for _ in range(N_USERS)] for _ in range(2)]
        for half, parties in zip((server, again), halves_of_both, strict=True):
            case.train(half, parties, 2, after=4)
        assert np.array_equal(again.broadcast().item_rows, server.broadcast().item_rows)
        assert np.array_equal(again.broadcast().parameters, server.broadcast().parameters)

    def test_what_is_published_stays_as_it_was(self, case, server, halves):
        """The best round is kept while the next ones are computed."""
        broadcast = server.broadcast()
        rows, parameters = broadcast.item_rows.copy(), broadcast.parameters.copy()
        case.train(server, halves, 2)
        assert np.array_equal(broadcast.item_rows, rows)
        assert np.array_equal(broadcast.parameters, parameters)

    def test_who_settles_fits_finished_factors(self, case, server, halves):
        """Wherever p_u was before, and better than at the start."""
        case.train(server, halves, case.solver.default_rounds)
        broadcast = server.broadcast()
        fresh = [case.party() for _ in range(N_USERS)]
        at_start, reading = case.error(fresh, broadcast), case.reading(broadcast)
        for one, other, own in zip(halves, fresh, case.own, strict=True):
            one.solve_user(own, reading)
            other.solve_user(own, reading)
            assert np.array_equal(one.user_factors, other.user_factors)
        assert case.error(fresh, broadcast) < 0.6 * at_start

    def test_who_has_rated_nothing_adds_nothing(self, case, server, halves):
        case.train(server, halves, 3)
        own = UserData(
            np.zeros(0, int), np.zeros(0, np.float32), case.own[0].profile, case.own[0].line
        )
        half, reading = case.party(), case.reading(server.broadcast())
        before = half.user_factors.copy()
        for t in (4, 5):
            rows, totals = half.update(own, reading, t)
            assert rows.shape == (0, case.update_shape.width)
            assert totals.shape == (case.update_shape.n_totals,)
            assert not totals.any()
        np.testing.assert_allclose(half.user_factors, before, atol=1e-6)
        half.solve_user(own, reading)
        assert np.isfinite(half.user_factors).all()
        if case.update_shape.n_profile or case.n_design:  # there is something to go by
            return
        expected = case.solver.default_user(case.update_shape, server.broadcast())
        if case.settings.solver == "vb":  # the mean of its prior is where parties start
            expected = before
        np.testing.assert_allclose(half.user_factors, expected, atol=1e-6)

    def test_a_stranger_is_a_finite_vector_of_factors(self, case, server, halves):
        """Before the first round it is where every party starts; then the mean of all p_u."""
        start = case.solver.default_user(case.update_shape, server.broadcast())
        assert (start.shape, start.dtype) == ((case.update_shape.n_own,), np.float32)
        assert np.array_equal(start, case.party().user_factors)
        case.train(server, halves, 3)
        later = case.solver.default_user(case.update_shape, server.broadcast())
        assert np.isfinite(later).all()
        if case.settings.solver in ("sgd", "vb"):  # others may learn what they like
            mean = np.mean([half.user_factors.astype(float) for half in halves], axis=0)
            np.testing.assert_allclose(later, mean, rtol=1e-5, atol=1e-6)
            assert np.abs(later - start).max() > 0.001

    def test_factors_can_be_put_back(self, case, server, halves):
        """The p_u of the best round."""
        case.train(server, halves, 2)
        best = halves[0].user_factors.copy()
        case.train(server, halves, 2, after=2)
        halves[0].user_factors = best
        assert np.array_equal(halves[0].user_factors, best)


def the_sizes(case):
    """What a party expects of rounds."""
    catalogue = Catalogue(N_ITEMS, SCALE, bytes(32))
    layout = Layout(np.arange(N_ITEMS, dtype=np.int32), np.array([3.0]), 1.0)
    return round_sizes(catalogue.n_items, layout, case.update_shape)


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


def test_a_design_begins_with_one_and_has_features_where_masks_see_them():
    content = np.arange(6.0).reshape(3, 2)
    assert design_of(content, sees_features=False).tolist() == [[1.0]] * 3
    assert design_of(content, sees_features=True).tolist() == [[1, 0, 1], [1, 2, 3], [1, 4, 5]]
