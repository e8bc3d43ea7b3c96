"""Updates as vectors of integers: every coordinate has its place, and sums lose nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmmf.aggregation.contract import Contribution, Shapes, bounds_of, round_sizes, survey_sizes
from fedmmf.aggregation.vector import Limbs, as_flags, codec_of, n_entries
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, SettingsError, WireError
from fedmmf.secagg import RING32
from fedmmf.secagg.ring import RING64
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Bounds
from fedmmf.wire import Catalogue, Layout

SCALE = RatingScale(1.0, 5.0, 1.0)
CATALOGUE = Catalogue.of(["a", "b", "c", "d", "e", "f"], SCALE, np.zeros((6, 0)))
LAYOUT = Layout(np.array([0, 2, 3, 5], np.int32), np.array([3.5]), 1.0)
N_ITEMS, RANK = 4, 2
N_COLUMNS, N_COMMON = 2, 8  # a level and a feature: 6 numbers of levels, and 2 moments
VARIANTS = {"sgd": "", "vb": "implicit=both profile=3 design=2 levels=0 joint=0"}


def codec(solver="sgd", n_users=5, for_survey=False, bounds=None, ring=None):
    """Of a round over the layout, or of a survey of its ratings."""
    declared = SOLVERS[solver]
    update_shape = declared.update_shape(RANK, VARIANTS[solver])
    sizes = round_sizes(CATALOGUE.n_items, LAYOUT, update_shape)
    sizes = survey_sizes(CATALOGUE.n_items, N_ITEMS, N_COLUMNS) if for_survey else sizes
    bounds = bounds or bounds_of(CATALOGUE, declared, for_survey)
    return codec_of(sizes, bounds, n_users, ring or declared.ring)


def contribution(codec, items, rows, totals=None):
    """One user's numbers, bounded and rounded as the codec says."""
    width, n_totals = codec.sizes.update_shape.width, codec.sizes.n_totals
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
    made, update_shape = codec(solver), SOLVERS[solver].update_shape(RANK, VARIANTS[solver])
    width, n_totals, n_limbs = update_shape.width, 2 + update_shape.n_totals, made.limbs.n
    assert n_limbs > 1
    n_digits = n_totals * n_limbs
    assert made.length == n_entries(made.sizes, n_limbs) == N_ITEMS * width + n_digits
    part = contribution(made, [1, 3], np.arange(width) + 1.0, np.arange(n_totals) + 1.0)
    vector = made.vector(part)
    assert vector.dtype == np.int64
    dense = vector[:-n_digits].reshape(N_ITEMS, width)
    assert not dense[[0, 2]].any()
    for item in (1, 3):
        assert np.array_equal(dense[item] / made.rows.scale, np.arange(width) + 1)
    for number, digits in enumerate(vector[-n_digits:].reshape(n_totals, n_limbs).tolist()):
        whole = sum(digit << (made.limbs.bits * place) for place, digit in enumerate(digits))
        assert whole == (number + 1) * int(made.totals.scale)  # the lowest digit comes first
        assert all(0 <= digit < 1 << made.limbs.bits for digit in digits)


def test_counts_are_of_the_catalogue_moments_have_no_rows_and_ratings_are_of_the_layout():
    shapes = Shapes(6, N_COLUMNS, SOLVERS["sgd"].update_shape(RANK, ""))
    sizes = [shapes.of(asks, LAYOUT) for asks in ("counts", "moments", "ratings")]
    assert [(one.n_items, one.n_totals) for one in sizes] == [(6, 0), (0, N_COMMON), (4, 0)]
    assert [(one.n_catalogue, one.update_shape.width) for one in sizes] == [(6, 1)] * 3
    assert [survey_sizes(6, 0, m).n_totals for m in (1, 17, 128)] == [7, 23, 134]
    assert shapes.of("updates", LAYOUT).n_items == shapes.known(LAYOUT).n_items == 4
    for asks in ("ratings", "updates"):
        with pytest.raises(WireError, match="needs a layout first"):
            shapes.of(asks, None)


def test_what_survives_a_sum_of_totals_alone():
    sizes = survey_sizes(6, 0, N_COLUMNS)
    made = codec_of(sizes, bounds_of(CATALOGUE, SOLVERS["sgd"], True), 5, "2^64")
    totals = np.arange(N_COMMON) - 2.5
    sums = made.sums(3 * made.vector(contribution(made, [], 1.0, totals)))
    assert sums.rows.shape == (0, 1)
    np.testing.assert_allclose(sums.totals, 3 * totals)


def test_a_sum_has_one_column_which_are_the_raters_and_what_is_common():
    made = codec(for_survey=True)
    assert made.length == N_ITEMS + N_COMMON * made.limbs.n
    assert (made.bounds.row, made.bounds.total) == (1.0, 2.0**16)  # of many ratings, half of 4 each
    first, second = np.arange(N_COMMON) - 4.5, np.full(N_COMMON, 16.0)
    said = (([2], first), ([0, 2], second), ([], np.zeros(N_COMMON)))
    sums = made.sums(sum(made.vector(contribution(made, i, 1.0, totals)) for i, totals in said))
    assert np.array_equal(sums.rows, [[1], [0], [2], [0]])
    assert np.array_equal(sums.n_raters, [1, 0, 2, 0])
    assert sums.n_raters.dtype == np.int64
    assert np.array_equal(sums.totals, first + second)


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
    part = Contribution(np.array([3]), np.array([4]), steps, np.zeros(N_COMMON, np.int64))
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
    sums, width = made.sums(total, np.zeros(N_ITEMS, np.int64)), made.sizes.update_shape.width
    expected = np.array(rows) / float(made.rows.scale)
    assert np.array_equal(sums.rows, np.tile(expected.astype(np.float32), (width, 1)).T)
    assert set(sums.totals) == {totals / float(made.totals.scale)}


def in_steps(number, bound, scale):
    return round(min(max(number, -bound), bound) * float(scale))


@pytest.mark.parametrize("ring", ["2^32", "2^64"])
@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("n_users", [3, 943, 100_000])
def test_what_everybody_bounds_fits_into_the_ring_and_into_float64(solver, n_users, ring):
    """Also in the ring that none of ours calls for: a solver of another package may."""
    made = codec(solver, n_users, ring=ring)
    assert made.largest <= min(made.ring.largest, 2**53)
    assert n_users * int(made.rows.bound) <= made.largest
    assert n_users * int(made.totals.bound) <= 2**53
    digits = made.limbs.split(np.array([1, -1]) * int(made.totals.bound))
    assert n_users * np.abs(digits).max() <= made.largest
    everything = np.full(made.length, made.largest)
    assert np.array_equal(made.ring.lift(made.ring.lower(everything)), everything)
    assert np.array_equal(made.ring.lift(made.ring.lower(-everything)), -everything)


def vector_with(made, what, steps):
    """A vector of zeros but for a row's entry or the last total, which has so many steps."""
    total = np.zeros(made.length, np.int64)
    if what == "rows":
        total[made.sizes.update_shape.width + 1] = steps
    else:
        total[-made.limbs.n :] = made.limbs.split(np.array([steps])).ravel()
    return total


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("what", ["rows", "totals"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_honest_users_cannot_reach_is_refused(solver, what, sign):
    made = codec(solver)
    reach = 5 * int(getattr(made, what).bound)
    made.sums(vector_with(made, what, sign * reach))
    with pytest.raises(DataError, match="what 5 honest users can reach"):
        made.sums(vector_with(made, what, sign * (reach + 1)))


@pytest.mark.parametrize("solver", ["sgd", "vb"])
@pytest.mark.parametrize("sign", [1, -1])
def test_digits_that_honest_users_cannot_reach_are_refused_at_every_place(solver, sign):
    """Also where the number that they stand for would be within reach."""
    made = codec(solver)
    for place in range(1, made.limbs.n):
        total = np.zeros(made.length, np.int64)
        digits = total[-made.limbs.n :]
        digits[place - 1] = sign * 6 << made.limbs.bits
        digits[place] = -sign * 6  # what is carried away again
        assert made.limbs.join(digits[np.newaxis]) == 0
        with pytest.raises(DataError, match="what 5 honest users can reach"):
            made.sums(total)


def test_more_raters_than_users_are_refused():
    made = codec(for_survey=True)
    total = np.zeros(made.length, np.int64)
    total[2] = 5 * int(made.rows.scale)
    assert np.array_equal(made.sums(total).n_raters, [0, 0, 5, 0])
    total[2] += 1
    with pytest.raises(DataError, match="what 5 honest users can reach"):
        made.sums(total)


@pytest.mark.parametrize("what", ["rows", "totals"])
def test_a_sum_that_is_known_up_to_an_error_is_cut_to_what_can_be(what):
    made = codec("vb")
    reach, noise = 5 * int(getattr(made, what).bound), 3
    if what == "totals":  # three at each place
        noise *= int(made.limbs.places.sum())
    exact, noisy = (vector_with(made, what, steps) for steps in (reach, reach + noise))
    for name in ("rows", "n_raters", "totals"):
        found = getattr(made.sums(noisy, error=3.0), name)
        assert np.array_equal(found, getattr(made.sums(exact), name))
    with pytest.raises(DataError, match="did not bound its numbers"):
        made.sums(vector_with(made, what, reach + noise + 1), error=3.0)


def test_the_smallest_integer_is_beyond_reach_too():
    """It has no absolute value in 64 bits."""
    for made in (codec("vb"), codec("vb", ring="2^64")):
        for at in (0, -1):
            total = np.zeros(made.length, np.int64)
            total[at] = np.iinfo(np.int64).min
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
    assert (cohort.total_bound, cohort.total_scale) == (8.0, float(made.totals.scale))
    totals = cohort.totals_in_steps(np.array([9.0, -9.0, 0.5]))
    assert np.array_equal(totals / made.totals.scale, [8.0, -8.0, 0.5])


def test_items_left_out_are_flags():
    assert not as_flags(np.zeros(0, np.int32), 4).any()
    assert np.array_equal(as_flags(np.array([1, 3]), 4), [False, True, False, True])
    assert np.array_equal(as_flags((0,), 2), [True, False])


# Totals as digits

USERS = [1, 2, 3, 5, 60, 943, 6040, 100_000, 2**20, 2**29]


@pytest.mark.parametrize("ring", [RING32, RING64], ids=lambda ring: ring.name)
@pytest.mark.parametrize("n_users", USERS)
def test_digits_have_room_for_all_users_and_for_all_that_float64_has(n_users, ring):
    limbs, most = Limbs.of(n_users, ring), 2**53 // n_users
    assert n_users * ((1 << limbs.bits) - 1) <= ring.largest  # sums of digits do not wrap
    for extreme in (most, -most):
        assert n_users * abs(extreme >> (limbs.bits * (limbs.n - 1))) <= ring.largest
    assert limbs.bits * limbs.n > most.bit_length()  # with a sign
    assert limbs.bits * (limbs.n - 1) <= most.bit_length()  # and none to spare
    assert (limbs.n == 1) == (ring is RING64)


def test_a_ring_without_room_for_a_digit_is_refused():
    assert Limbs.of(2**30 - 1, RING32).bits == 1
    with pytest.raises(SettingsError, match=r"1073741824 users leave no room in the ring 2\^32"):
        Limbs.of(2**30, RING32)


@given(st.sampled_from(USERS), st.data())
def test_digits_give_the_number_back(n_users, data):
    most = 2**53 // n_users
    edges = st.sampled_from([0, 1, -1, most, -most, most - 1, 1 - most])
    numbers = data.draw(st.lists(st.integers(-most, most) | edges, min_size=1))
    for ring in (RING32, RING64):
        limbs = Limbs.of(n_users, ring)
        digits = limbs.split(np.array(numbers))
        assert digits.shape == (len(numbers), limbs.n)
        assert ((digits[:, :-1] >= 0) & (digits[:, :-1] < 1 << limbs.bits)).all()
        assert limbs.join(digits).tolist() == numbers


@given(st.sampled_from(["2^32", "2^64"]), st.data())
def test_totals_of_parties_and_silos_add_up_exactly_through_the_ring(ring, data):
    """Silos of several users beside single ones, at the ends of what is allowed; in whole numbers.

    What a silo sends is the digits of its users' sum; each entry goes through the ring.
    """
    silos = data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=7))
    made = codec("sgd", n_users=sum(silos), for_survey=True, ring=ring)
    most = int(made.totals.bound)
    extremes = st.sampled_from([most, -most, most - 1, -1, 0, 1]) | st.integers(-most, most)
    total, expected = np.zeros(made.length, made.ring.dtype), [0] * N_COMMON
    for n_users in silos:
        own = [n_users * data.draw(extremes) for _ in expected]
        expected = [a + b for a, b in zip(expected, own, strict=True)]
        nothing = np.zeros(0, np.int32)
        part = Contribution(nothing, nothing, np.zeros((0, 1), np.int64), np.array(own))
        total = total + made.ring.lower(made.vector(part))  # modulo the ring, as sums are made
    sums = made.sums(made.ring.lift(total))
    assert [int(value * int(made.totals.scale)) for value in sums.totals] == expected
    assert all(abs(value) <= 2**53 for value in expected)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n_parties", [3, 60, 943, 100_000])
def test_the_largest_totals_of_everybody_are_exact(n_parties, sign):
    made = codec("vb", n_users=n_parties)
    largest = np.full(made.sizes.n_totals, sign * int(made.totals.bound))
    one = made.ring.lower(made.limbs.split(largest).ravel()).astype(np.uint64)
    total = (one * np.uint64(n_parties) % np.uint64(2**32)).astype(made.ring.dtype)
    digits = made.ring.lift(total).reshape(-1, made.limbs.n)
    assert set(made.limbs.join(digits)) == {sign * n_parties * int(made.totals.bound)}
    assert n_parties * int(made.totals.bound) > 2**51  # near all that a float64 holds
