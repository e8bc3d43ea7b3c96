"""What every engine has to do: the same as numpy, one user after the other."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.config import Settings
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort, CrowdInput
from fedmmf.errors import UnknownNameError, WireError
from fedmmf.lists import UserLists
from fedmmf.masks import FAMILIES, MaskPlan, fit_masks
from fedmmf.masks.fitting import MaskInput, OneByOne
from fedmmf.scale import RatingScale
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Ground, ItemSums, Public
from fedmmf.solvers.sgd import SgdPlan
from fedmmf.solvers.vb import posterior_rows, prior_mean

N_USERS, N_ITEMS = 40, 37
N_RATED = N_ITEMS - 5  # the last items are rated by nobody
SILENT = (0, 17, N_USERS - 1)  # users without ratings
SCALE = 2.0**14


def make_lists():
    """A new object each time: engines may keep what they have worked out for one."""
    generator = np.random.default_rng(6)
    lists = [
        np.flatnonzero(generator.random(N_RATED) < (0.0 if user in SILENT else 0.4))
        for user in range(N_USERS)
    ]
    indptr = np.concatenate(([0], np.cumsum([len(items) for items in lists])))
    return UserLists(indptr, np.concatenate(lists).astype(np.int32))


LISTS = make_lists()
MASKED = np.random.default_rng(7).standard_normal(len(LISTS.items)).astype(np.float32)
MEMBERS = np.arange(N_USERS) % 3 != 1
LEFT_OUT = np.arange(N_ITEMS) % 5 == 2

COHORTS = {
    "everybody": Cohort(),
    "fixed": Cohort(bound=16.0, scale=SCALE),
    "bounded": Cohort(bound=0.2, scale=SCALE),
    "members": Cohort(members=MEMBERS),
    "members, fixed": Cohort(members=MEMBERS, bound=16.0, scale=SCALE),
    "left out": Cohort(left_out=LEFT_OUT),
    "left out, fixed": Cohort(left_out=LEFT_OUT, bound=16.0, scale=SCALE),
    "clipped": Cohort(clip=0.5),
    "clipped, fixed": Cohort(bound=16.0, scale=SCALE, clip=0.5),
    "clipped and bounded": Cohort(bound=0.05, scale=SCALE, clip=0.5),
    "all of it": Cohort(MEMBERS, LEFT_OUT, bound=0.05, scale=SCALE, clip=0.5),
    "nobody": Cohort(members=np.zeros(N_USERS, bool), bound=16.0, scale=SCALE),
}

# Solvers, and what decides which lines of a kernel run.
VARIANTS = {
    "sgd, sum": {"solver": "sgd", "step": "sum", "learning_rate": 0.01},
    "sgd, mean": {"solver": "sgd", "step": "mean"},
    "sgd, adam": {"solver": "sgd", "step": "adam"},
    "sgd, biases": {"solver": "sgd", "biases": True},
    "vb": {"solver": "vb"},
}
ONE_OF_EACH = ("sgd, adam", "vb")


def test_every_solver_is_tried():
    assert {settings["solver"] for settings in VARIANTS.values()} == set(SOLVERS.names())


def given_for(variant, *cohorts, lists=LISTS, n_items=N_ITEMS):
    settings = Settings(factors=4, **VARIANTS[variant])
    rank = SOLVERS[settings.solver].rank(settings)
    return CrowdInput(settings.solver, rank, n_items, lists, MASKED, cohorts or (Cohort(),))


def publications(variant, rounds=3):
    """What a server publishes for some rounds, with the obvious sums in between."""
    settings = Settings(factors=4, **VARIANTS[variant])
    solver, stream = SOLVERS[settings.solver], np.random.default_rng(5)
    server = solver.server(
        settings, Ground(N_ITEMS, 4.0, 0.0, 12.0, np.zeros((N_ITEMS, 0)), stream)
    )
    crowd = ENGINES["numpy"].crowd(given_for(variant))
    found = []
    for t in range(1, rounds + 1):
        found.append(server.public())
        update = crowd.update(found[-1], t)
        counts = LISTS.counts(N_ITEMS)
        server.advance(ItemSums(update.rows[0], counts, update.totals.sum(axis=0)), t)
    return found


PUBLICATIONS = {variant: publications(variant) for variant in VARIANTS}


def obvious_sum(variant, cohort):
    """Each user's rows in round 1, as it would send them alone, then added."""
    given, public = given_for(variant), PUBLICATIONS[variant][0]
    total = np.zeros(public.item_rows.shape, np.int64 if cohort.is_fixed else np.float64)
    for user in range(N_USERS):
        if cohort.members is not None and not cohort.members[user]:
            continue
        mine = LISTS.of(user)
        half = SOLVERS[given.solver].party(given.rank)
        rows, _ = half.update(MASKED[mine], public.take(LISTS.items[mine]), 1)
        rows = cohort.clipped(rows)
        for item, row in zip(LISTS.items[mine], rows, strict=True):
            if cohort.left_out is None or not cohort.left_out[item]:
                total[item] += cohort.in_steps(row) if cohort.is_fixed else row
    return total


def assert_sums(found, expected, engine):
    """Floats to float32's accuracy; whole steps exactly, or as float32 rounds a few of them.

    One step of fixed point, of one user or two: those whose entry is on the edge between two.
    """
    assert found.shape == expected.shape
    if expected.dtype != np.int64:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        return
    assert found.dtype == np.int64
    if engine.name == "numpy":
        assert np.array_equal(found, expected)
    assert np.abs(found - expected).max() <= 2
    assert np.mean(found == expected) > 0.9


@pytest.mark.parametrize("name", ENGINES.names())
class TestEngine:
    """The contract."""

    @pytest.fixture
    def engine(self, name):
        return ENGINES[name]

    def test_it_has_its_name(self, name, engine):
        assert engine.name == name

    @pytest.mark.parametrize("cohort", COHORTS)
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_a_sum_is_that_of_what_each_user_would_send(self, engine, variant, cohort):
        crowd = engine.crowd(given_for(variant, COHORTS[cohort]))
        (rows,) = crowd.update(PUBLICATIONS[variant][0], 1).rows
        expected = obvious_sum(variant, COHORTS[cohort])
        assert expected.any() == (cohort != "nobody")
        assert_sums(rows, expected, engine)
        assert not rows[N_RATED:].any()

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_rounds_go_as_in_numpy(self, engine, variant):
        given = given_for(variant, Cohort(), COHORTS["all of it"])
        mine, oracle = engine.crowd(given), ENGINES["numpy"].crowd(given)
        assert np.array_equal(mine.user_factors, oracle.user_factors)
        for t, public in enumerate(PUBLICATIONS[variant], start=1):
            found, expected = mine.update(public, t), oracle.update(public, t)
            for rows, wanted in zip(found.rows, expected.rows, strict=True):
                assert_sums(rows, wanted, engine)
            assert found.totals.shape == (N_USERS, SOLVERS[given.solver].n_totals(given.rank))
            np.testing.assert_allclose(found.totals, expected.totals, rtol=1e-4, atol=1e-4)
            assert not found.totals[list(SILENT)].any()
            assert mine.user_factors.shape == (N_USERS, given.rank)
            np.testing.assert_allclose(mine.user_factors, oracle.user_factors, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_several_cohorts_at_once_are_each_one_alone(self, engine, variant):
        public, cohorts = PUBLICATIONS[variant][0], list(COHORTS.values())
        together = engine.crowd(given_for(variant, *cohorts)).update(public, 1).rows
        for cohort, rows in zip(cohorts, together, strict=True):
            (alone,) = engine.crowd(given_for(variant, cohort)).update(public, 1).rows
            assert np.array_equal(rows, alone)

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_a_user_alone_gets_what_it_gets_in_the_crowd(self, engine, variant):
        """So that a device and a silo compute the same."""
        public, cohort = PUBLICATIONS[variant][0], COHORTS["bounded"]
        given = given_for(variant, cohort)
        crowd = engine.crowd(given)
        update = crowd.update(public, 1)
        total = np.zeros_like(update.rows[0])
        for user in range(N_USERS):
            mine = LISTS.of(user)
            own = replace(
                given, lists=UserLists.of_one(LISTS.items[mine]), masked_ratings=MASKED[mine]
            )
            alone = engine.crowd(own)
            found = alone.update(public, 1)
            total += found.rows[0]
            assert np.array_equal(found.totals[0], update.totals[user])
            assert np.array_equal(alone.user_factors[0], crowd.user_factors[user])
        assert np.array_equal(total, update.rows[0])

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_a_larger_catalogue_changes_nothing_else(self, engine, variant):
        """The same lists, and more items than anybody knows of."""
        more, public = 9, PUBLICATIONS[variant][0]
        larger = Public(
            public.rank, public.parameters, np.vstack((public.item_rows, public.item_rows[:more]))
        )
        for cohort in (Cohort(), COHORTS["fixed"]):
            (rows,) = engine.crowd(given_for(variant, cohort)).update(public, 1).rows
            given = given_for(variant, cohort, n_items=N_ITEMS + more)
            (found,) = engine.crowd(given).update(larger, 1).rows
            assert np.array_equal(found[:N_ITEMS], rows)
            assert not found[N_ITEMS:].any()

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_users_without_ratings_stay_where_they_are(self, engine, variant):
        crowd = engine.crowd(given_for(variant))
        start = crowd.user_factors[list(SILENT)].copy()
        for t, public in enumerate(PUBLICATIONS[variant], start=1):
            crowd.update(public, t)
        np.testing.assert_allclose(crowd.user_factors[list(SILENT)], start, atol=1e-6)

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_nobody_may_have_rated_anything(self, engine, variant):
        lists = UserLists(np.zeros(4, np.int64), np.zeros(0, np.int32))
        given = replace(given_for(variant, lists=lists), masked_ratings=np.zeros(0, np.float32))
        crowd = engine.crowd(given)
        update = crowd.update(PUBLICATIONS[variant][0], 1)
        assert not update.rows[0].any()
        assert not update.totals.any()
        assert crowd.user_factors.shape == (3, given.rank)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_a_crowd_goes_on_from_its_state(self, engine, variant):
        """Also where it is summed in another way from then on."""
        publics = PUBLICATIONS[variant]
        crowd = engine.crowd(given_for(variant, COHORTS["fixed"]))
        for t in (1, 2):
            crowd.update(publics[t - 1], t)
        state = crowd.state()
        kept = {name: value.copy() for name, value in state.items()}
        expected = crowd.update(publics[2], 3)
        assert all(np.array_equal(state[name], kept[name]) for name in kept)  # these are copies
        for _ in range(2):  # one state serves many
            again = engine.crowd(given_for(variant, Cohort(), COHORTS["fixed"]))
            again.restore(state)
            found = again.update(publics[2], 3)
            assert np.array_equal(found.rows[1], expected.rows[0])
            assert np.array_equal(found.totals, expected.totals)
            assert np.array_equal(again.user_factors, crowd.user_factors)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_some_users_settle(self, engine, variant):
        users, public = np.array([2, 5, SILENT[1], 30]), PUBLICATIONS[variant][-1]
        given = given_for(variant)
        mine, oracle = engine.crowd(given), ENGINES["numpy"].crowd(given)
        for crowd in (mine, oracle):
            crowd.update(PUBLICATIONS[variant][0], 1)
        before = mine.user_factors.copy()
        for crowd in (mine, oracle):
            crowd.settle(public, users)
        np.testing.assert_allclose(
            mine.user_factors[users], oracle.user_factors[users], rtol=1e-4, atol=1e-5
        )
        others = np.setdiff1d(np.arange(N_USERS), users)
        assert np.array_equal(mine.user_factors[others], before[others])

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_factors_can_be_put_back(self, engine, variant):
        """The p_u of the best round; a copy, which later rounds leave alone."""
        crowd = engine.crowd(given_for(variant))
        best = np.random.default_rng(0).standard_normal(crowd.user_factors.shape)
        best = best.astype(np.float32)
        kept = best.copy()
        crowd.user_factors = best
        assert np.array_equal(crowd.user_factors, kept)
        crowd.update(PUBLICATIONS[variant][0], 1)
        assert np.array_equal(best, kept)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_number_of_threads_changes_nothing(self, engine, variant, monkeypatch):
        results = []
        for threads in ("1", "2", "5"):
            monkeypatch.setenv("FEDMMF_THREADS", threads)
            crowd = engine.crowd(given_for(variant, *COHORTS.values(), lists=make_lists()))
            for t, public in enumerate(PUBLICATIONS[variant], start=1):
                update = crowd.update(public, t)
            results.append((*update.rows, update.totals, crowd.user_factors))
        for other in results[1:]:
            assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_what_is_not_finite_is_not_rounded(self, engine, variant):
        """A server's numbers may be finite, and lead to some that are not: a party refuses them."""
        public = PUBLICATIONS[variant][0]
        rows = np.full_like(public.item_rows, 1e38)
        crowd = engine.crowd(given_for(variant, COHORTS["fixed"]))
        with np.errstate(all="ignore"), pytest.raises((WireError, np.linalg.LinAlgError)):
            crowd.update(Public(public.rank, public.parameters, rows), 1)

    def test_scores_of_pairs_are_dot_products(self, engine):
        generator = np.random.default_rng(3)
        p, q = generator.standard_normal((9, 5)), generator.standard_normal((7, 5))
        users, items = generator.integers(0, 9, 200), generator.integers(0, 7, 200)
        found = engine.pair_scores(users, items, p.astype(np.float32), q.astype(np.float32))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, (q @ p.T)[items, users], rtol=1e-5, atol=1e-5)
        nobody = np.zeros(0, np.int64)
        assert engine.pair_scores(nobody, nobody, p, q).shape == (0,)

    def test_its_linear_systems_are_those_of_the_solver(self, engine):
        public, k = PUBLICATIONS["vb"][0], 5
        crowd = engine.crowd(given_for("vb"))
        (sums,) = crowd.update(public, 1).rows
        prior = np.tile(prior_mean(k), (N_ITEMS, 1))
        arguments = (sums, np.array([1.0, 2.0, 0.5, 3.0, 1.0]), prior, 0.7)
        np.testing.assert_allclose(
            (engine.solve or posterior_rows)(*arguments),  # None: the solver's own
            posterior_rows(*arguments),
            rtol=1e-4,
            atol=1e-6,
        )

    @pytest.mark.parametrize("strength", [None, "auto"])
    @pytest.mark.parametrize("kind", FAMILIES.names())
    def test_masks_are_those_of_a_device(self, engine, kind, strength):
        plan, given = MaskPlan(kind, strength), mask_input(kind)
        told = []
        found = fit_masks(plan, given, engine.mask_runner(told.append))
        expected = fit_masks(plan, mask_input(kind), OneByOne())
        assert np.array_equal(found.strengths, expected.strengths)
        for name in ("theta", "unit_fitted", "unit_held_out"):
            mine, theirs = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
        assert sum(told) in (0, N_USERS)  # 0: it has no progress to tell
        runners = (engine.mask_runner(), OneByOne())
        applied = [found.predict(LISTS, given.features, runner) for runner in runners]
        assert applied[0].dtype == np.float32
        np.testing.assert_allclose(*applied, rtol=1e-6)


def mask_input(kind):
    generator = np.random.default_rng(4)
    features = generator.standard_normal((N_ITEMS, 3))
    ratings = generator.integers(1, 6, len(LISTS.items)).astype(np.float32)
    streams = [np.random.default_rng(user) for user in range(N_USERS)]
    at_random = MaskPlan(kind).starts_at_random
    return MaskInput(LISTS, ratings, RatingScale(1, 5, 1), features, streams if at_random else ())


def test_an_unknown_engine_is_named():
    with pytest.raises(UnknownNameError, match="no engine called 'gpu'; there are numba, numpy"):
        ENGINES["gpu"]


def test_a_cohort_is_like_one_that_sums_the_same():
    for name, cohort in COHORTS.items():
        likes = {other for other, found in COHORTS.items() if cohort.is_like(found)}
        assert likes == {name}
    assert Cohort(left_out=LEFT_OUT).is_like(Cohort(left_out=LEFT_OUT.copy()))


def test_a_users_rows_are_shrunk_together_and_never_grow():
    cohort = Cohort(clip=2.0)
    rows = np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)
    np.testing.assert_allclose(cohort.clipped(rows), rows * 0.4)
    np.testing.assert_allclose(cohort.clipped(rows / 10), rows / 10)
    assert not cohort.clipped(np.zeros((2, 2))).any()
    assert Cohort().clipped(rows) is rows


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("strength", [0.1, 1e4, 1e6])
def test_integers_of_a_clipped_user_are_no_longer_than_the_clip(name, strength):
    """Exactly, where lambda q and e p are up to 10,000 times larger than their difference."""
    n, clip = 40, 0.5
    q = np.random.default_rng(5).normal(size=(n, 1)).astype(np.float32)
    masked = ((1 + strength * 1.0001) * q[:, 0]).astype(np.float32)  # e p is about lambda q
    scale = 4096.0
    room = (clip - np.sqrt(n) / (2 * scale)) * (1 - 2.0**-20)  # as `sums.dp` has it
    lists = UserLists(np.array([0, n]), np.arange(n, dtype=np.int32))
    cohort = Cohort(bound=16.0, scale=scale, clip=room)
    crowd = ENGINES[name].crowd(CrowdInput("sgd", 1, n, lists, masked, [cohort]))
    plan = SgdPlan(0, 1e-30, strength, 1.0, 0.0)
    steps = crowd.update(Public(1, plan.to_parameters(), q), 1).rows[0]
    length = sum(int(step) ** 2 for step in steps.ravel())
    assert length <= (clip * scale) ** 2
    assert strength < 1 or length > 0.98 * (clip * scale) ** 2
