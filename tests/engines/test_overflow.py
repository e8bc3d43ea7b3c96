"""One user's overflow changes nothing of what is said about others, whatever was published."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.errors import WireError
from fedmmf.settings import Settings
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import MAX_NUMBER, Broadcast, ItemSums, SolverContext
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER
from fedmmf.solvers.vb.shapes import pack

N_USERS, N_ITEMS, N_LEVELS = 8, 9, 5
CLIP = 0.5
STEPS = {"bound": 15.9, "scale": 2.0**14, "total_bound": 4095.3, "total_scale": 64.0}
ROOM = CLIP - np.sqrt(N_ITEMS * 6) / (2 * STEPS["scale"])  # as `aggregation.dp` leaves for rounding

# What aggregation schemes ask for: plain and homomorphic in floating point; secure; dp.
COHORTS = {
    "floating": Cohort(),
    "fixed": Cohort(**STEPS),
    "clipped": Cohort(bound=CLIP + 1.0, scale=STEPS["scale"], clip=ROOM),
    "clipped, floating": Cohort(clip=ROOM),
}

# Settings, columns of profiles and of a design, levels.
VB = {"solver": "vb"}
VARIANTS = {
    "sgd, sum": ({"solver": "sgd", "step": "sum", "learning_rate": 0.01}, 0, 0, 0),
    "sgd, adam": ({"solver": "sgd", "step": "adam"}, 0, 0, 0),
    "sgd, mean, biases": ({"solver": "sgd", "step": "mean", "biases": True}, 0, 0, 0),
    "vb, none": ({**VB, "implicit_prior": "none"}, 0, 0, 0),
    "vb, both, profiles": (VB, 2, 0, 0),
    "vb, ranking": ({**VB, "objective": "ranking", "unrated_weight": 0.3}, 2, 3, 0),
    "vb, ordinal": ({**VB, "likelihood": "ordinal"}, 0, 0, N_LEVELS),
    "vb, joint": ({**VB, "mask": "lr", "mask_fit": "joint"}, 0, 3, 0),
}
# Under noise, rows and totals are one clipped vector; after two rounds come means, or factors.
DP = {**VB, "aggregation": "dp", "mask": "lr", "mask_fit": "joint"}
PRIVATE = {
    "vb, dp, means": ({**DP, "rounds": 12}, 0, 3, 0),
    "vb, dp, factors": ({**DP, "rounds": 3}, 0, 3, 0),
}
HUGE = (3e38, -3e38, 1e30, 1e19, 2.0**64, 1.5, 0.0, 1e-38, 1e-45, np.inf, -np.inf, np.nan)
NUMBERS = (1e300, -1e300, 1e160, 1e45, 1e38, 1e-30, 5e-324, 0.0, 1.0, 1e6)
RATINGS = (1.0, -0.3, 0.0, 4.0, 1e19, 3e38, -3e38, 1e-45, np.inf, np.nan)


@dataclass(frozen=True)
class Case:
    """A variant: users before their first round, and what a server publishes to them."""

    given: TrainingInput
    broadcast: Broadcast
    t: int


def made(variant):
    chosen, n_profile, n_design, n_levels = (VARIANTS | PRIVATE)[variant]
    settings_ = Settings(factors=3, **chosen)
    solver = SOLVERS[settings_.solver]
    variant_ = solver.variant(settings_, n_profile, n_design, n_levels)
    update_shape = solver.update_shape(solver.rank(settings_), variant_)
    random = np.random.default_rng(8)
    lists = [np.flatnonzero(random.random(N_ITEMS) < 0.5) for _ in range(N_USERS)]
    lists[2] = lists[2][:0]
    design = np.column_stack((np.ones(N_ITEMS), random.standard_normal((N_ITEMS, 2))))
    ratings = [random.standard_normal(len(items)).astype(np.float32) for items in lists]
    given_ = of_lists(
        lists,
        ratings,
        TrainingInput(
            solver=settings_.solver,
            update_shape=update_shape,
            design=design[:, : update_shape.n_columns],
            lists=RatedItems.of_one(lists[0]),
            masked_ratings=ratings[0],
            profiles=random.standard_normal((N_USERS, 2))[:, : update_shape.n_profile],
            lines=0.2 * random.standard_normal((N_USERS, 3))[:, : update_shape.n_design],
        ),
    )
    return Case(given_, trained(settings_, given_), BEGINS_AFTER + 1 if n_levels else 1)


def of_lists(lists, ratings, like):
    """The same with other ratings; levels are somewhere on the scale."""
    indptr = np.concatenate(([0], np.cumsum([len(items) for items in lists])))
    items = np.concatenate(lists).astype(np.int32)
    n = len(items) if like.update_shape.n_levels else 0
    return replace(
        like,
        lists=RatedItems(indptr, items),
        masked_ratings=np.concatenate(ratings).astype(np.float32),
        levels=(items[:n] % N_LEVELS).astype(np.int32),
        mask=np.full(n, 3.0, np.float32),
    )


def trained(settings_, given_):
    """What is published after two rounds."""
    design = given_.design
    stream, none = np.random.default_rng(5), np.zeros((N_ITEMS, 0))
    context = SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 12.0, none, design, stream)
    server = SOLVERS[settings_.solver].server(settings_, given_.update_shape, context)
    crowd = ENGINES["numpy"].halves(given_)
    for t in (1, 2):
        update = crowd.update(server.broadcast(), t)
        counts = given_.lists.counts(N_ITEMS)
        server.advance(ItemSums(update.rows[0], counts, update.totals[0]), t)
    return server.broadcast()


CASES = {variant: made(variant) for variant in VARIANTS | PRIVATE}


def cohort_for(variant, name):
    """The cohort of that name; under noise, with totals that are clipped too."""
    cohort = COHORTS[name]
    if variant not in PRIVATE or np.isinf(cohort.clip):
        return cohort
    if not cohort.is_fixed:
        return replace(cohort, clips_totals=True)
    scale = 2.0**30
    room = cohort.clip - np.sqrt(CASES[variant].given.update_shape.n_totals) / (2 * scale)
    totals = {"total_bound": cohort.bound, "total_scale": scale, "clips_totals": True}
    return replace(cohort, clip=room, **totals)


def with_user(given_, user, items, ratings):
    """The same users, of whom one has rated other things."""
    lists = [given_.lists.items[given_.lists.of(u)] for u in range(N_USERS)]
    values = [given_.masked_ratings[given_.lists.of(u)] for u in range(N_USERS)]
    lists[user], values[user] = np.array(items, np.int32), np.array(ratings, np.float32)
    return of_lists(lists, values, given_)


def without(given_, *users):
    """The same users, of whom some are not summed."""
    (cohort,) = given_.cohorts
    members = ~np.isin(np.arange(N_USERS), users)
    return replace(given_, cohorts=(replace(cohort, members=members),))


@st.composite
def broadcasts(draw, broadcast):
    """Hostile numbers among the usual ones, or among zeros."""
    rows, numbers = broadcast.item_rows.copy(), broadcast.parameters.copy()
    if draw(st.booleans()):
        rows[:, : broadcast.rank] = 0.0
    for _ in range(draw(st.integers(0, 4))):
        item = draw(st.integers(0, N_ITEMS - 1))
        columns = draw(st.sampled_from([slice(0, broadcast.rank), slice(0, 1), slice(1, 2)]))
        rows[item, columns] = draw(st.sampled_from(HUGE))
    for _ in range(draw(st.integers(0, 3))):
        numbers[draw(st.integers(0, len(numbers) - 1))] = draw(st.sampled_from(NUMBERS))
    return Broadcast(broadcast.rank, numbers, rows)


def aimed_at(broadcast, item, value=3e38):
    """The attack: only who has rated the item overflows."""
    rows = broadcast.item_rows.copy()
    rows[:, : broadcast.rank] = 0.0
    rows[item, : broadcast.rank] = value
    return Broadcast(broadcast.rank, broadcast.parameters, rows)


def is_accepted(given_, broadcast):
    try:
        with np.errstate(all="ignore"):
            SOLVERS[given_.solver].check(given_.update_shape, broadcast)
    except (WireError, np.linalg.LinAlgError):
        return False
    return True


def updated(engine, given_, broadcast, t):
    """An update and everybody's factors; None where what was published is refused."""
    crowd = engine.halves(given_)
    before = crowd.user_factors.copy()
    try:
        found = crowd.update(broadcast, t)
    except (WireError, np.linalg.LinAlgError):
        assert np.array_equal(crowd.user_factors, before)
        return None
    assert np.isfinite(found.rows[0]).all()
    assert np.isfinite(found.totals[0]).all()
    assert (np.abs(crowd.user_factors) <= MAX_NUMBER).all()
    return found.rows[0], found.totals[0], crowd.user_factors.copy()


def assert_one_users(found, others, given_, user):
    """What a user adds is within its bounds, and of its own items; others have not moved."""
    (rows, totals, factors), (rows_without, totals_without, factors_without) = found, others
    (cohort,) = given_.cohorts
    own = given_.lists.items[given_.lists.of(user)]
    rest = np.setdiff1d(np.arange(N_ITEMS), own)
    assert np.array_equal(rows[rest], rows_without[rest])
    everybody_else = np.arange(N_USERS) != user
    assert np.array_equal(factors[everybody_else], factors_without[everybody_else])
    if cohort.is_fixed:
        moved = rows[own] - rows_without[own]
        assert np.abs(moved).max(initial=0) <= np.rint(cohort.bound * cohort.scale)
        if np.isfinite(cohort.clip):
            length = np.sum(np.square(moved / cohort.scale))
            if cohort.clips_totals:
                length += np.sum(np.square((totals - totals_without) / cohort.total_scale))
            assert np.sqrt(length) <= CLIP
    if cohort.total_scale:
        moved = np.abs(totals - totals_without).max()
        assert moved <= np.rint(cohort.total_bound * cohort.total_scale)


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("variant", VARIANTS | PRIVATE)
def test_one_users_ratings_move_sums_by_its_own_bound(variant, cohort, name, tried):
    """Whatever these are, and whatever was published that a party accepts.

    In floating point there is no bound, but others' items and factors stay to the last bit.
    """
    engine, case = tried(name), CASES[variant]
    given_ = replace(case.given, cohorts=(cohort_for(variant, cohort),))
    seen = []

    @settings(max_examples=12 if name in ("ray", "torch") else 40)
    @given(
        broadcasts(case.broadcast),
        st.integers(0, N_USERS - 1),
        st.sets(st.integers(0, N_ITEMS - 1)),
        st.lists(st.sampled_from(RATINGS), min_size=N_ITEMS, max_size=N_ITEMS),
    )
    @example(aimed_at(case.broadcast, 4), 1, {4, 5}, [1.0] * N_ITEMS)
    @example(aimed_at(case.broadcast, 4, 1e19), 1, {4, 5}, [1.0] * N_ITEMS)
    @example(case.broadcast, 1, {0, 4, 5}, [np.nan] * N_ITEMS)
    @example(case.broadcast, 0, {0, 4, 5}, [3e38] * N_ITEMS)
    def holds(broadcast, user, items, ratings):
        if not is_accepted(given_, broadcast):
            return
        chosen = sorted(items)
        replaced = with_user(given_, user, chosen, [ratings[item] for item in chosen])
        all_found = []
        for some in (given_, replaced):
            found = updated(engine, some, broadcast, case.t)
            others = updated(engine, without(some, user), broadcast, case.t)
            assert (found is None) == (others is None)
            if found is not None:
                assert_one_users(found, others, some, user)
            all_found.append(others)
        assert (all_found[0] is None) == (all_found[1] is None)
        if all_found[0] is not None and COHORTS[cohort].is_fixed:
            rows, others = (found[0] for found in all_found)
            assert np.array_equal(rows, others)
        seen.append(all_found[0] is not None)

    holds()
    assert any(seen)


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_who_overflows_is_as_one_who_is_not_summed(variant, cohort, name, tried):
    """The raters of one item overflow; everybody else says what it would say without them."""
    engine, case, item = tried(name), CASES[variant], 4
    given_ = replace(case.given, cohorts=(COHORTS[cohort],))
    raters = [u for u in range(N_USERS) if item in given_.lists.items[given_.lists.of(u)]]
    assert 0 < len(raters) < N_USERS - 2
    broadcast = aimed_at(case.broadcast, item)
    crowd = engine.halves(given_)
    before = crowd.user_factors.copy()
    found = crowd.update(broadcast, case.t)
    overflowed = raters
    if given_.update_shape.n_design:  # where sums over the catalogue may overflow for others too
        is_stuck = (crowd.user_factors == before).all(axis=1) & (given_.lists.lengths > 0)
        overflowed = np.flatnonzero(is_stuck).tolist()
    assert found.n_overflowed == len(overflowed)
    assert set(raters) <= set(overflowed)
    assert np.array_equal(crowd.user_factors[overflowed], before[overflowed])
    rows, totals, factors = updated(engine, without(given_, *overflowed), broadcast, case.t)
    assert np.array_equal(found.rows[0], rows)
    assert np.array_equal(found.totals[0], totals)
    assert np.array_equal(crowd.user_factors, factors)
    assert rows.any() or given_.update_shape.n_design


def singular_for(case, item):
    """Numbers with which the matrix of whoever rated an item has a pivot of exactly 0.

    Sums of q q^T in float32 have a determinant below 0, by what is rounded away; the precision
    makes up for just that.
    """
    update_shape, k = case.given.update_shape, case.broadcast.rank
    parts = update_shape.blocks["parameters"].split(case.broadcast.parameters.copy())
    parts |= {"tau": np.ones(1), "curvature": pack(np.zeros((k, k)))}
    parts |= {"user_precision": np.full(k, 5.0558621622216074e-08), "base": pack(1e25 * np.eye(k))}
    rows = case.broadcast.item_rows.copy()
    rows[:, :k] = 0.0
    rows[item, :2] = np.array([1.6369617, 1.2697867], np.float32)
    return Broadcast(k, update_shape.blocks["parameters"].join(**parts), rows)


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("cohort", ["floating", "fixed"])
def test_a_matrix_that_is_singular_by_rounding_is_one_users_too(cohort, name, tried):
    """A kernel that raised for one rater of the item took everybody's sums with it."""
    case, item = CASES["vb, none"], 4
    given_ = replace(case.given, cohorts=(COHORTS[cohort],))
    broadcast = singular_for(case, item)
    assert is_accepted(given_, broadcast)
    raters = [u for u in range(N_USERS) if item in given_.lists.items[given_.lists.of(u)]]
    with_raters = updated(tried(name), given_, broadcast, 1)
    without_raters = updated(tried(name), without(given_, *raters), broadcast, 1)
    assert with_raters is not None
    rest = np.setdiff1d(np.arange(N_USERS), raters)
    assert np.array_equal(with_raters[2][rest], without_raters[2][rest])
    assert without_raters[1].any()


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("variant", VARIANTS)
def test_who_overflows_while_settling_stays(variant, name, tried):
    engine, case, user = tried(name), CASES[variant], 1
    items = case.given.lists.items[case.given.lists.of(user)]
    bad = with_user(case.given, user, items, np.full(len(items), np.nan))
    if case.given.update_shape.n_levels:  # ratings are levels in the end
        bad.mask[bad.lists.of(user)] = np.nan
    crowd, usual = engine.halves(bad), engine.halves(case.given)
    before = crowd.user_factors.copy()
    for one in (crowd, usual):
        one.solve_users(case.broadcast, np.arange(N_USERS))
    assert np.array_equal(crowd.user_factors[user], before[user])
    others = np.arange(N_USERS) != user
    assert np.array_equal(crowd.user_factors[others], usual.user_factors[others])
    assert not np.array_equal(usual.user_factors[others], before[others])


@pytest.mark.parametrize("name", ENGINES.names())
def test_floating_sums_of_large_rows_stay_finite(name, tried):
    """Each row is finite and so is the sum: what would not add up is left out before."""
    case, n = CASES["sgd, sum"], N_USERS
    lists = [np.array([0], np.int32)] * n
    given_ = of_lists(lists, [np.array([3e38 if u < 4 else 1.0]) for u in range(n)], case.given)
    given_ = replace(given_, cohorts=(COHORTS["floating"],))
    found = tried(name).halves(given_).update(case.broadcast, 1)
    assert found.n_overflowed == 4
    assert np.isfinite(found.rows[0]).all()
    assert found.totals[0][0] == n - 4


@pytest.mark.parametrize("exponent", [25, 28, 30, 40])
@pytest.mark.parametrize("name", ENGINES.names())
def test_engines_agree_on_who_overflows_by_the_moments_of_its_steps(name, exponent, tried):
    """The largest squares of a user's gradients reach the limit long before its rows do."""
    case = CASES["sgd, adam"]
    broadcast = aimed_at(case.broadcast, 3, 2.0**exponent)
    found, expected = (
        engine.halves(case.given).update(broadcast, case.t).n_overflowed
        for engine in (tried(name), ENGINES["numpy"])
    )
    assert found == expected
    assert (expected > 0) == (exponent > 25)
