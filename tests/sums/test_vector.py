"""Updates as vectors of integers: every coordinate has its place, and sums lose nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.errors import DataError
from fedmmf.scale import RatingScale
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Bounds
from fedmmf.sums.contract import Contribution, bounds_of, sizes_of
from fedmmf.sums.vector import as_flags, codec_of, n_entries
from fedmmf.wire import Catalogue

SCALE = RatingScale(1.0, 5.0, 1.0)
CATALOGUE = Catalogue.of(["a", "b", "c", "d"], SCALE, np.zeros((4, 0)))
N_ITEMS, RANK = 4, 2


def codec(solver="sgd", n_users=5, for_survey=False, bounds=None):
    declared = SOLVERS[solver]
    sizes = sizes_of(CATALOGUE, declared, RANK, for_survey)
    bounds = bounds or bounds_of(CATALOGUE, declared, for_survey)
    return codec_of(sizes, bounds, n_users, declared.ring)


def contribution(codec, items, rows, totals=None):
    """One user's numbers, bounded and rounded as the codec says."""
    width, n_totals = codec.sizes.width, codec.sizes.n_totals
    rows = np.broadcast_to(rows, (len(items), width))
    totals = np.zeros(n_totals) if totals is None else np.asarray(totals)
    return Contribution(
        np.asarray(items, np.int32),
        np.ones(len(items), np.int64),
        codec.cohort(None).in_steps(rows),
        codec.totals.quantize(totals),
    )


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_vector_has_a_row_per_item_and_then_the_totals_and_nothing_else(solver):
    """No count: who is in a sum of a round, and rated what, is in none of its entries."""
    declared, made = SOLVERS[solver], codec(solver)
    width, n_totals = declared.width(RANK), 2 + declared.n_totals(RANK)
    assert made.length == n_entries(made.sizes) == N_ITEMS * width + n_totals
    part = contribution(made, [1, 3], np.arange(width) + 1.0, np.arange(n_totals) + 1.0)
    vector = made.vector(part)
    assert vector.dtype == np.int64
    dense = vector[:-n_totals].reshape(N_ITEMS, width)
    assert not dense[[0, 2]].any()
    for item in (1, 3):
        assert np.array_equal(dense[item] / made.rows.scale, np.arange(width) + 1)
    assert np.array_equal(vector[-n_totals:] / made.totals.scale, np.arange(n_totals) + 1)


def test_a_survey_of_counts_has_one_column_which_are_the_raters():
    made = codec(for_survey=True)
    assert made.length == N_ITEMS
    sums = made.sums(sum(made.vector(contribution(made, items, 1.0)) for items in ([2], [0, 2])))
    assert np.array_equal(sums.rows, [[1], [0], [2], [0]])
    assert np.array_equal(sums.n_raters, [1, 0, 2, 0])
    assert sums.n_raters.dtype == np.int64
    assert sums.totals.shape == (0,)


def test_a_survey_of_ratings_and_a_round_take_the_counts_from_before():
    """Nothing in what is summed says how many rated an item."""
    counted = np.array([0, 0, 7, 0])
    survey, round_ = codec(for_survey=True), codec()
    ratings = survey.sums(survey.vector(contribution(survey, [2], 0.25)), counted)
    assert np.array_equal(ratings.rows, [[0], [0], [0.25], [0]])
    rows = round_.sums(round_.vector(contribution(round_, [1, 3], 0.25)), counted)
    assert rows.rows[[1, 3]].all()
    for sums in (ratings, rows):
        assert np.array_equal(sums.n_raters, counted)


def test_a_party_of_many_users_counts_them():
    made = codec(for_survey=True)
    steps = np.array([[4 * int(made.rows.scale)]])  # four users, a one each
    part = Contribution(np.array([3]), np.array([4]), steps, np.zeros(0, np.int64))
    assert np.array_equal(made.sums(made.vector(part)).n_raters, [0, 0, 0, 4])


numbers = st.floats(-2e4, 2e4)


@given(
    st.sampled_from(["sgd", "vb"]),
    st.lists(st.tuples(st.sets(st.integers(0, 3)), numbers, numbers), min_size=1, max_size=9),
)
def test_a_sum_is_exactly_the_sum_of_the_bounded_and_rounded_numbers(solver, users):
    """In Python's own integers, one user after the other; beyond its bound a number is cut."""
    made = codec(solver, n_users=len(users))
    total = np.zeros(made.length, np.int64)
    rows, totals = [0] * N_ITEMS, 0
    for items, row, number in users:
        items = sorted(items)
        totals_of_one = np.full(made.sizes.n_totals, number)
        total += made.vector(contribution(made, items, row, totals_of_one))
        for item in items:
            rows[item] += in_steps(row, made.bounds.row, made.rows.scale)
        totals += in_steps(number, made.bounds.total, made.totals.scale)
    sums = made.sums(total, np.zeros(N_ITEMS, np.int64))
    expected = np.array(rows) / float(made.rows.scale)
    assert np.array_equal(sums.rows, np.tile(expected.astype(np.float32), (made.sizes.width, 1)).T)
    assert set(sums.totals) == {totals / float(made.totals.scale)}


def in_steps(number, bound, scale):
    return round(min(max(number, -bound), bound) * float(scale))


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("n_users", [3, 943, 100_000])
def test_what_everybody_bounds_fits_into_the_ring_and_into_float64(solver, n_users):
    made = codec(solver, n_users)
    assert made.largest <= min(made.ring.largest, 2**53)
    for part in (made.rows, made.totals):
        assert n_users * int(part.bound) <= made.largest
    everything = np.full(made.length, made.largest)
    assert np.array_equal(made.ring.lift(made.ring.lower(everything)), everything)
    assert np.array_equal(made.ring.lift(made.ring.lower(-everything)), -everything)


def place_of(made, what):
    """Where a row or a total of the vector is, and its fixed point."""
    return {
        "rows": (made.sizes.width + 1, made.rows),
        "totals": (made.length - 1, made.totals),
    }[what]


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("what", ["rows", "totals"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_honest_users_cannot_reach_is_refused(solver, what, sign):
    made = codec(solver)
    at, part = place_of(made, what)
    total = np.zeros(made.length, np.int64)
    total[at] = sign * 5 * int(part.bound)
    made.sums(total)
    total[at] += sign
    with pytest.raises(DataError, match="what 5 honest users can reach"):
        made.sums(total)


def test_more_raters_than_users_are_refused():
    made = codec(for_survey=True)
    total = np.array([0, 0, 5 * int(made.rows.scale), 0])
    assert np.array_equal(made.sums(total).n_raters, [0, 0, 5, 0])
    with pytest.raises(DataError, match="what 5 honest users can reach"):
        made.sums(total + np.array([0, 0, 1, 0]))


@pytest.mark.parametrize("what", ["rows", "totals"])
def test_a_sum_that_is_known_up_to_an_error_is_cut_to_what_can_be(what):
    made = codec("vb")
    at, part = place_of(made, what)
    reach = 5 * int(part.bound)
    exact, noisy = np.zeros((2, made.length), np.int64)
    exact[at], noisy[at] = reach, reach + 3
    for name in ("rows", "n_raters", "totals"):
        found = getattr(made.sums(noisy, error=3.0), name)
        assert np.array_equal(found, getattr(made.sums(exact), name))
    noisy[at] += 1
    with pytest.raises(DataError, match="did not bound its numbers"):
        made.sums(noisy, error=3.0)


def test_the_smallest_integer_is_beyond_reach_too():
    """It has no absolute value in 64 bits."""
    made = codec("vb")
    total = np.zeros(made.length, np.int64)
    total[0] = np.iinfo(np.int64).min
    with pytest.raises(DataError, match="honest users can reach"):
        made.sums(total)


def test_bounds_and_scale_are_those_that_an_engine_rounds_with():
    made = codec(bounds=Bounds(row=2.0, total=8.0))
    left_out = np.array([True, False, False, False])
    cohort = made.cohort(left_out)
    assert cohort.left_out is left_out
    assert (cohort.bound, cohort.scale) == (2.0, float(made.rows.scale))
    steps = cohort.in_steps(np.array([[3.0, -3.0, 0.5]]))
    assert np.array_equal(steps / made.rows.scale, [[2.0, -2.0, 0.5]])


def test_items_left_out_are_flags_or_nothing():
    assert as_flags(np.zeros(0, np.int32), 4) is None
    assert np.array_equal(as_flags(np.array([1, 3]), 4), [False, True, False, True])
    assert np.array_equal(as_flags((0,), 2), [True, False])
