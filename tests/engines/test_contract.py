"""What every engine has to do: the same as numpy, one user after the other."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.kernels.sgd import SgdHalves
from fedmmf.engines.kernels.vb import VbHalves
from fedmmf.engines.reference import ReferenceHalves
from fedmmf.errors import UnknownNameError, WireError
from fedmmf.masks import FAMILIES, MaskPlan, fit_masks
from fedmmf.masks.feature_maps import design_of
from fedmmf.masks.fitting import MaskInput, OneByOne
from fedmmf.masks.population import Population
from fedmmf.settings import Settings
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext, UserData
from fedmmf.solvers.sgd import AllUsers, SgdPlan
from fedmmf.solvers.vb.ordinal import BEGINS_AFTER
from fedmmf.solvers.vb.shapes import unpack

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
    return RatedItems(indptr, np.concatenate(lists).astype(np.int32))


LISTS = make_lists()
MASKED = np.random.default_rng(7).standard_normal(len(LISTS.items)).astype(np.float32)
MEMBERS = np.arange(N_USERS) % 3 != 1
LEFT_OUT = np.arange(N_ITEMS) % 5 == 2

FIXED = {"bound": 16.0, "scale": SCALE, "total_bound": 4096.0, "total_scale": 64.0}

COHORTS = {
    "everybody": Cohort(),
    "fixed": Cohort(**FIXED),
    "bounded": Cohort(bound=0.2, scale=SCALE, total_bound=3.0, total_scale=64.0),
    "wide": Cohort(bound=16.0, scale=2.0**26, total_bound=4096.0, total_scale=2.0**20),
    "members": Cohort(members=MEMBERS),
    "members, fixed": Cohort(members=MEMBERS, **FIXED),
    "left out": Cohort(left_out=LEFT_OUT),
    "left out, fixed": Cohort(left_out=LEFT_OUT, **FIXED),
    "members, left out, fixed": Cohort(MEMBERS, LEFT_OUT, **FIXED),
    "clipped": Cohort(clip=0.5),
    "clipped, fixed": Cohort(clip=0.5, **FIXED),
    "clipped and bounded": Cohort(bound=0.05, scale=SCALE, clip=0.5),
    "all of it": Cohort(
        MEMBERS, LEFT_OUT, bound=0.05, scale=SCALE, clip=0.5, total_bound=3.0, total_scale=64.0
    ),
    "nobody": Cohort(members=np.zeros(N_USERS, bool), **FIXED),
}

# Settings, columns of profiles and of a design, levels: what decides which lines of a kernel run.
JOINT = {"mask": "lr", "mask_fit": "joint"}
VARIANTS = {
    "sgd, sum": ({"solver": "sgd", "step": "sum", "learning_rate": 0.01}, 0, 0, 0),
    "sgd, mean": ({"solver": "sgd", "step": "mean"}, 0, 0, 0),
    "sgd, adam": ({"solver": "sgd", "step": "adam"}, 0, 0, 0),
    "sgd, biases": ({"solver": "sgd", "biases": True}, 0, 0, 0),
    "vb, none": ({"solver": "vb", "implicit_prior": "none"}, 0, 0, 0),
    "vb, items": ({"solver": "vb", "implicit_prior": "items"}, 0, 0, 0),
    "vb, users": ({"solver": "vb", "implicit_prior": "users"}, 0, 0, 0),
    "vb, both": ({"solver": "vb"}, 0, 0, 0),
    "vb, profiles": ({"solver": "vb", "implicit_prior": "none"}, 2, 0, 0),
    "vb, both, profiles": ({"solver": "vb"}, 2, 0, 0),
    "vb, ranking": ({"solver": "vb", "implicit_prior": "none"}, 0, 1, 0),
    "vb, ranking by features": ({"solver": "vb", "implicit_prior": "none"}, 0, 4, 0),
    "vb, items, ranking": ({"solver": "vb", "implicit_prior": "items"}, 0, 4, 0),
    "vb, users, profiles, ranking": ({"solver": "vb", "implicit_prior": "users"}, 2, 1, 0),
    "vb, all of it": ({"solver": "vb"}, 2, 4, 0),
    "vb, ordinal": ({"solver": "vb", "implicit_prior": "none"}, 0, 0, 5),
    "vb, both, profiles, ordinal": ({"solver": "vb"}, 2, 0, 5),
    "vb, two levels": ({"solver": "vb", "implicit_prior": "users"}, 0, 0, 2),
    "vb, joint": ({"solver": "vb", "implicit_prior": "none", **JOINT}, 0, 4, 0),
    "vb, joint, both, profiles": ({"solver": "vb", **JOINT}, 2, 4, 0),
    "vb, joint mean, ordinal": ({"solver": "vb", **JOINT}, 0, 1, 5),
}
ONE_OF_EACH = ("sgd, adam", "vb, both", "vb, all of it", "vb, both, profiles, ordinal", "vb, joint")
# Finite numbers that a solver accepts, by what they make infinite in float32.
WILD = {
    "gradient": [("item_row", "mean", 3e38)],
    "prior": [("parameters", "user_weights", 1e45)],
    "membership": [("parameters", "user_weights", 1e45), ("parameters", "membership", 1.0)],
    "total": [("parameters", "user_weights", 1e160), ("parameters", "membership", 1.0)],
}
OF_VB = [name for name in VARIANTS if name.startswith("vb")]


def test_every_solver_is_tried():
    assert {settings["solver"] for settings, *_ in VARIANTS.values()} == set(SOLVERS.names())


def settings_for(variant):
    chosen, _, n_design, n_levels = VARIANTS[variant]
    is_ranking = n_design and "mask_fit" not in chosen
    ranking = {"objective": "ranking", "unrated_weight": 0.3} if is_ranking else {}
    ordinal = {"likelihood": "ordinal"} if n_levels else {}
    return Settings(factors=4, **chosen, **ranking, **ordinal)


KNOWN = np.random.default_rng(9)
PROFILES = KNOWN.standard_normal((N_USERS, 2))
PROFILES[[3, 17, 20]] = 0.0  # users without a profile, one of them without ratings
DESIGN = design_of(KNOWN.standard_normal((N_ITEMS, 3)), sees_features=True)
LINES = np.array((3.0, 0.0, 0.1, -0.1)) + 0.2 * KNOWN.standard_normal((N_USERS, 4))


def levels_of(n_levels):
    """Levels of all ratings on a scale from 1 to 5, and the masks that leave what is masked."""
    if not n_levels:
        return {}
    scale = RatingScale(1, 5, 4 / (n_levels - 1))
    levels = scale.levels(3.0 + 1.5 * MASKED)
    return {"levels": levels, "mask": (1.0 + scale.step * levels - MASKED).astype(np.float32)}


def given_for(variant, *cohorts, lists=LISTS, n_items=N_ITEMS):
    settings = settings_for(variant)
    solver, (_, d, m, levels) = SOLVERS[settings.solver], VARIANTS[variant]
    update_shape = solver.update_shape(
        solver.rank(settings), solver.variant(settings, d, m, levels)
    )
    return TrainingInput(
        solver=settings.solver,
        update_shape=update_shape,
        design=np.resize(DESIGN, (n_items, DESIGN.shape[1]))[:, :m],
        lists=lists,
        masked_ratings=MASKED,
        profiles=PROFILES[: lists.n_users, :d],
        lines=LINES[: lists.n_users, : update_shape.n_design],
        **levels_of(levels),
        cohorts=cohorts or (Cohort(),),
    )


def first_round(variant):
    """Of those that are tried: ordered ratings are levels from some round on."""
    return BEGINS_AFTER + 1 if VARIANTS[variant][3] else 1


def broadcasts(variant, rounds=3):
    """What a server publishes for these rounds, with the obvious sums in between.

    And then, where there are such rounds, the last one again as one that looks at who rated what.
    """
    settings, given = settings_for(variant), given_for(variant)
    stream, regressors = np.random.default_rng(5), np.zeros((N_ITEMS, 0))
    context = SolverContext(N_ITEMS, 4.0, 1.0, 0.0, 12.0, regressors, given.design, stream)
    server = SOLVERS[settings.solver].server(settings, given.update_shape, context)
    crowd = ENGINES["numpy"].halves(given)
    found = []
    first = first_round(variant)
    for t in range(1, first + rounds):
        broadcast = server.broadcast()
        found += [broadcast] if t >= first else []
        update = crowd.update(broadcast, t)
        server.advance(ItemSums(update.rows[0], LISTS.counts(N_ITEMS), update.totals[0]), t)
    return [*found, looking(given.update_shape, found[-1])] if looks(variant) else found


def looks(variant):
    """Whether some rounds look at who rated what."""
    return getattr(given_for(variant).update_shape, "has_membership_rounds", False)


def looking(update_shape, broadcast):
    parameters = broadcast.parameters.copy()
    parameters[update_shape.blocks["parameters"].place("membership")] = 1.0
    return Broadcast(broadcast.rank, parameters, broadcast.item_rows)


BROADCASTS = {variant: broadcasts(variant) for variant in VARIANTS}


def own_of(given, user):
    mine = LISTS.of(user)
    ordered = (given.levels[mine], given.mask[mine]) if given.update_shape.n_levels else ()
    known = (given.profiles[user], given.lines[user])
    return UserData(LISTS.items[mine], MASKED[mine], *known, *ordered)


@cache
def obvious_sums(variant, cohort, broadcast, t):
    """Each user's rows and totals in round t, as it would send them alone, then added."""
    given = given_for(variant)
    solver = SOLVERS[given.solver]
    reading = solver.reading(given.update_shape, broadcast, given.design)
    kind = np.int64 if cohort.is_fixed else np.float64
    sums, all_totals = (
        np.zeros((N_ITEMS, given.update_shape.width), kind),
        np.zeros(given.update_shape.n_totals),
    )
    for user in range(N_USERS):
        if cohort.members is not None and not cohort.members[user]:
            continue
        own = own_of(given, user)
        rows, totals = solver.party(given.update_shape).update(own, reading, t)
        rows = cohort.clipped(rows)
        for item, row in zip(own.items, rows, strict=True):
            if cohort.left_out is None or not cohort.left_out[item]:
                sums[item] += cohort.in_steps(row) if cohort.is_fixed else row
        if cohort.total_scale:
            for part in given.update_shape.matrices:
                largest = max(cohort.total_bound, np.abs(totals[part]).max())
                totals[part] *= cohort.total_bound / largest
            bounded = np.clip(totals, -cohort.total_bound, cohort.total_bound)
            totals = np.rint(bounded * cohort.total_scale)
        all_totals += totals
    return sums, all_totals


def assert_sums(found, expected, engine):
    """Floats to float32's accuracy; whole steps exactly, or as float32 rounds a few of them.

    One step of fixed point, of one user or two: those whose entry is on the edge between two.
    """
    assert found.shape == expected.shape
    if expected.dtype != np.int64:
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)
        return
    assert found.dtype == np.int64
    if engine.name == "numpy":
        assert np.array_equal(found, expected)
    assert np.abs(found - expected).max() <= 2
    assert np.mean(found == expected) > 0.9


def assert_totals(found, expected, cohort, engine):
    """The same for totals, which are float64 in any case."""
    assert found.shape == expected.shape
    assert found.dtype == np.float64
    if engine.name == "numpy":
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2 if cohort.total_scale else 1e-4)
    if cohort.total_scale:
        assert np.array_equal(found, np.rint(found))


@pytest.mark.parametrize("name", ENGINES.names())
class TestEngine:
    """The contract."""

    @pytest.fixture
    def engine(self, name, tried):
        return tried(name)

    def test_it_has_its_name(self, name, engine):
        assert engine.name == name

    @pytest.mark.parametrize("cohort", COHORTS)
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_a_sum_is_that_of_what_each_user_would_send(self, engine, variant, cohort):
        """In the first round, where all parts have numbers, and in a look."""
        way = COHORTS[cohort]
        for broadcast in (BROADCASTS[variant][0], *BROADCASTS[variant][2:]):
            crowd = engine.halves(given_for(variant, way))
            update = crowd.update(broadcast, first_round(variant))
            (rows,), (totals,) = update.rows, update.totals
            expected, expected_totals = obvious_sums(variant, way, broadcast, first_round(variant))
            assert expected.any() == (cohort != "nobody")
            if cohort == "wide":  # steps far finer than float32
                np.testing.assert_allclose(rows / way.scale, expected / way.scale, atol=2e-5)
                totals, expected_totals = (
                    totals / way.total_scale,
                    expected_totals / way.total_scale,
                )
                np.testing.assert_allclose(totals, expected_totals, rtol=1e-4, atol=1e-4)
            else:
                assert_sums(rows, expected, engine)
                assert_totals(totals, expected_totals, way, engine)
            assert not rows[N_RATED:].any()

    @pytest.mark.parametrize("variant", OF_VB)
    def test_covariances_above_the_bound_stay_covariances(self, engine, variant):
        """Bounded entry by entry, the sum over people with many ratings need not be positive."""
        cohort = Cohort(bound=16.0, scale=SCALE, total_bound=0.05, total_scale=2.0**30)
        given = given_for(variant, cohort)
        update = engine.halves(given).update(BROADCASTS[variant][0], first_round(variant))
        (part,) = given.update_shape.matrices
        moment = unpack(update.totals[0][part] / cohort.total_scale, given.update_shape.rank)
        room = cohort.total_bound * (N_USERS - len(SILENT))
        assert 0.5 * room < np.diag(moment).max() <= room * (1 + 1e-6)
        assert np.linalg.eigvalsh(moment)[0] > 0

    @pytest.mark.parametrize("variant", VARIANTS)
    @pytest.mark.parametrize("cohorts", [("everybody",), ("fixed",), ("everybody", "all of it")])
    def test_rounds_go_as_in_numpy(self, engine, variant, cohorts):
        """Also where p_u decides what is latent, and in a look."""
        given = given_for(variant, *(COHORTS[cohort] for cohort in cohorts))
        mine, oracle = engine.halves(given), ENGINES["numpy"].halves(given)
        assert np.array_equal(mine.user_factors, oracle.user_factors)
        for t, broadcast in enumerate(BROADCASTS[variant], start=first_round(variant)):
            found, expected = mine.update(broadcast, t), oracle.update(broadcast, t)
            for rows, wanted in zip(found.rows, expected.rows, strict=True):
                assert_sums(rows, wanted, engine)
            sums = zip(given.cohorts, found.totals, expected.totals, strict=True)
            for cohort, totals, wanted in sums:
                assert_totals(totals, wanted, cohort, engine)
            assert mine.user_factors.shape == (N_USERS, given.update_shape.n_own)
            np.testing.assert_allclose(mine.user_factors, oracle.user_factors, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_several_cohorts_at_once_are_each_one_alone(self, engine, variant):
        """Exactly where it is the same kernel; else to what rounding leaves."""
        broadcast, cohorts = BROADCASTS[variant][2], list(COHORTS.values())
        together = engine.halves(given_for(variant, *cohorts)).update(
            broadcast, first_round(variant)
        )
        for cohort, rows, totals in zip(cohorts, together.rows, together.totals, strict=True):
            alone = engine.halves(given_for(variant, cohort)).update(
                broadcast, first_round(variant)
            )
            if engine.name == "numpy" or variant not in OF_VB:
                assert np.array_equal(rows, alone.rows[0])
                assert np.array_equal(totals, alone.totals[0])
            elif cohort.scale <= SCALE:
                assert_sums(rows, alone.rows[0], engine)
                assert_totals(totals, alone.totals[0], cohort, engine)

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_a_user_alone_gets_what_it_gets_in_the_crowd(self, engine, variant):
        """So that a device and a silo compute the same."""
        broadcast, cohort = BROADCASTS[variant][2], COHORTS["bounded"]
        given = given_for(variant, cohort)
        crowd = engine.halves(given)
        update = crowd.update(broadcast, first_round(variant))
        total, totals = np.zeros_like(update.rows[0]), np.zeros_like(update.totals[0])
        for user in range(N_USERS):
            mine = LISTS.of(user)
            own = replace(
                given,
                lists=RatedItems.of_one(LISTS.items[mine]),
                masked_ratings=MASKED[mine],
                levels=given.levels[mine] if given.update_shape.n_levels else given.levels,
                mask=given.mask[mine] if given.update_shape.n_levels else given.mask,
                profiles=given.profiles[user : user + 1],
                lines=given.lines[user : user + 1],
            )
            alone = engine.halves(own)
            found = alone.update(broadcast, first_round(variant))
            total += found.rows[0]
            totals += found.totals[0]
            assert np.array_equal(alone.user_factors[0], crowd.user_factors[user])
        assert np.array_equal(total, update.rows[0])
        assert np.array_equal(totals, update.totals[0])

    @pytest.mark.parametrize("variant", ["sgd, adam", "vb, both, profiles", "vb, ordinal"])
    def test_a_larger_catalogue_changes_nothing_else(self, engine, variant):
        """The same lists, and more items than anybody knows of; unless unrated ones count."""
        more, broadcast = 9, BROADCASTS[variant][2]
        larger = Broadcast(
            broadcast.rank,
            broadcast.parameters,
            np.vstack((broadcast.item_rows, broadcast.item_rows[:more])),
        )
        for cohort in (Cohort(), COHORTS["fixed"]):
            before = engine.halves(given_for(variant, cohort)).update(
                broadcast, first_round(variant)
            )
            given = given_for(variant, cohort, n_items=N_ITEMS + more)
            found = engine.halves(given).update(larger, first_round(variant))
            assert np.array_equal(found.rows[0][:N_ITEMS], before.rows[0])
            assert not found.rows[0][N_ITEMS:].any()
            assert np.array_equal(found.totals[0], before.totals[0])

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_users_without_ratings_stay_where_they_are(self, engine, variant):
        """And add nothing: without them the sums are the same."""
        crowd = engine.halves(given_for(variant, COHORTS["fixed"]))
        others = ~np.isin(np.arange(N_USERS), SILENT)
        same = engine.halves(given_for(variant, replace(COHORTS["fixed"], members=others)))
        start = crowd.user_factors[list(SILENT)].copy()
        for t, broadcast in enumerate(BROADCASTS[variant], start=first_round(variant)):
            update, without = crowd.update(broadcast, t), same.update(broadcast, t)
            assert np.array_equal(update.rows[0], without.rows[0])
            assert np.array_equal(update.totals[0], without.totals[0])
        np.testing.assert_allclose(crowd.user_factors[list(SILENT)], start, atol=1e-6)

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    @pytest.mark.parametrize("cohort", ["everybody", "fixed"])
    def test_nobody_may_have_rated_anything(self, engine, variant, cohort):
        lists = RatedItems(np.zeros(4, np.int64), np.zeros(0, np.int32))
        given = given_for(variant, COHORTS[cohort], lists=lists)
        nothing = np.zeros(0, np.float32)
        given = replace(given, masked_ratings=nothing, levels=np.zeros(0, np.int32), mask=nothing)
        crowd = engine.halves(given)
        update = crowd.update(BROADCASTS[variant][0], first_round(variant))
        assert update.rows[0].shape == (N_ITEMS, given.update_shape.width)
        assert not update.rows[0].any()
        assert not update.totals[0].any()
        assert crowd.user_factors.shape == (3, given.update_shape.n_own)
        oracle = ENGINES["numpy"].halves(given)
        for one in (crowd, oracle):
            one.solve_users(BROADCASTS[variant][2], np.arange(3))
        np.testing.assert_allclose(crowd.user_factors, oracle.user_factors, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_a_crowd_goes_on_from_its_state(self, engine, variant):
        """Also where it is summed in another way from then on."""
        publics = BROADCASTS[variant]
        crowd = engine.halves(given_for(variant, COHORTS["members"]))
        fixed = engine.halves(given_for(variant, COHORTS["fixed"]))
        t = first_round(variant)
        for later in (0, 1):
            crowd.update(publics[later], t + later)
            fixed.update(publics[later], t + later)
        state = crowd.state()
        kept = {name: value.copy() for name, value in state.items()}
        expected = crowd.update(publics[2], t + 2)
        assert all(np.array_equal(state[name], kept[name]) for name in kept)  # these are copies
        in_steps = fixed.update(publics[2], t + 2)
        for _ in range(2):  # one state serves many
            again = engine.halves(given_for(variant, COHORTS["members"]))
            other = engine.halves(given_for(variant, COHORTS["fixed"]))
            for new, wanted in ((again, expected), (other, in_steps)):
                new.restore(state)
                found = new.update(publics[2], t + 2)
                assert np.array_equal(found.rows[0], wanted.rows[0])
                assert np.array_equal(found.totals[0], wanted.totals[0])
                assert np.array_equal(new.user_factors, crowd.user_factors)
        assert all(np.array_equal(state[name], kept[name]) for name in kept)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_some_users_settle(self, engine, variant):
        """Who has rated nothing as well: profiles and unrated items say something."""
        users, broadcast = np.array([2, 5, SILENT[1], 30]), BROADCASTS[variant][-1]
        given = given_for(variant)
        mine, oracle = engine.halves(given), ENGINES["numpy"].halves(given)
        for crowd in (mine, oracle):
            crowd.update(BROADCASTS[variant][0], first_round(variant))
        before, state = mine.user_factors.copy(), mine.state()
        for crowd in (mine, oracle):
            crowd.solve_users(broadcast, users)
        np.testing.assert_allclose(
            mine.user_factors[users], oracle.user_factors[users], rtol=1e-4, atol=1e-5
        )
        others = np.setdiff1d(np.arange(N_USERS), users)
        assert np.array_equal(mine.user_factors[others], before[others])
        for name, value in mine.state().items():  # nothing else has moved
            assert "value" in name or np.array_equal(value, state[name])

    @pytest.mark.parametrize("variant", ONE_OF_EACH)
    def test_factors_can_be_put_back(self, engine, variant):
        """The p_u of the best round; a copy, which later rounds leave alone."""
        crowd = engine.halves(given_for(variant))
        best = np.random.default_rng(0).standard_normal(crowd.user_factors.shape)
        best = best.astype(np.float32)
        kept = best.copy()
        crowd.user_factors = best
        assert np.array_equal(crowd.user_factors, kept)
        crowd.update(BROADCASTS[variant][0], first_round(variant))
        assert np.array_equal(best, kept)

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_number_of_threads_changes_nothing(self, engine, variant, monkeypatch):
        ways = [(COHORTS[name],) for name in ("everybody", "fixed", "members", "left out, fixed")]
        for cohorts in [*ways, tuple(COHORTS.values())]:
            results = []
            for threads in ("1", "2", "5"):
                monkeypatch.setenv("FEDMMF_THREADS", threads)
                crowd = engine.halves(given_for(variant, *cohorts, lists=make_lists()))
                for t, broadcast in enumerate(BROADCASTS[variant], start=first_round(variant)):
                    update = crowd.update(broadcast, t)
                results.append((*update.rows, *update.totals, crowd.user_factors))
            for other in results[1:]:
                assert all(np.array_equal(a, b) for a, b in zip(results[0], other, strict=True))

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_where_everybody_overflows_nothing_is_added(self, engine, variant):
        """A server's numbers may be finite, and lead to some that are not."""
        broadcast = BROADCASTS[variant][0]
        rows = np.full_like(broadcast.item_rows, 1e38)
        crowd = engine.halves(given_for(variant, COHORTS["fixed"]))
        before = crowd.user_factors.copy()
        told = Broadcast(broadcast.rank, broadcast.parameters, rows)
        update = crowd.update(told, first_round(variant))
        assert not update.rows[0].any()
        assert not update.totals[0].any()
        assert update.n_overflowed == N_USERS - len(SILENT)
        assert np.array_equal(crowd.user_factors, before)

    @pytest.mark.parametrize("cohort", ["fixed", "members, fixed"])
    @pytest.mark.parametrize("part", WILD)
    def test_nor_is_it_where_one_part_alone_overflows(self, engine, part, cohort):
        """Gradients, p_u, totals: whichever comes to be infinite."""
        variant = "vb, both, profiles"
        given, broadcast = given_for(variant, COHORTS[cohort]), BROADCASTS[variant][2]
        arrays = {
            "item_row": broadcast.item_rows.copy(),
            "parameters": broadcast.parameters.copy(),
        }
        for where, name, value in WILD[part]:
            arrays[where][..., given.update_shape.blocks[where].place(name)] = value
        told = Broadcast(broadcast.rank, arrays["parameters"], arrays["item_row"])
        SOLVERS["vb"].check(given.update_shape, told)
        crowd = engine.halves(given)
        before = crowd.user_factors.copy()
        update = crowd.update(told, 1)
        assert update.n_overflowed == N_USERS - len(SILENT)
        assert not update.rows[0].any()
        assert not update.totals[0].any()
        assert np.array_equal(crowd.user_factors, before)

    @pytest.mark.parametrize("variant", [v for v in OF_VB if VARIANTS[v][1]])
    def test_who_has_no_profile_settles_as_a_mean_one(self, engine, variant):
        given, broadcast = given_for(variant), BROADCASTS[variant][-1]
        mean = given.update_shape.blocks["parameters"].split(broadcast.parameters)["profile_mean"]
        assert np.abs(mean).max() > 0.01
        users, found = np.arange(N_USERS), {}
        ways = {"none": np.zeros((N_USERS, 0)), "mean": np.tile(mean, (N_USERS, 1)),
                "zero": np.zeros((N_USERS, 2)),
                "other": np.tile(mean + 1, (N_USERS, 1))}  # fmt: skip
        for way, profiles in ways.items():
            crowd = engine.halves(replace(given, profiles=profiles))
            crowd.solve_users(broadcast, users)
            found[way] = crowd.user_factors.copy()
        np.testing.assert_allclose(found["none"], found["mean"], rtol=1e-6, atol=1e-7)
        assert np.array_equal(found["none"], found["zero"])
        assert np.abs(found["none"] - found["other"]).max() > 1e-4

    @pytest.mark.parametrize("variant", [v for v in OF_VB if VARIANTS[v][1]])
    def test_who_has_no_profile_takes_part_as_a_mean_one(self, engine, variant):
        """And is not counted among those who have one."""
        given, broadcast = given_for(variant), BROADCASTS[variant][2]
        mean = given.update_shape.blocks["parameters"].split(broadcast.parameters)["profile_mean"]
        updates, factors = {}, {}
        for way, profiles in (("mean", np.tile(mean, (N_USERS, 1))),
                              ("zero", np.zeros((N_USERS, 2))),
                              ("none", np.zeros((N_USERS, 0)))):  # fmt: skip
            crowd = engine.halves(replace(given, profiles=profiles))
            updates[way] = crowd.update(broadcast, first_round(variant))
            factors[way] = crowd.user_factors
        assert np.array_equal(factors["zero"], factors["none"])
        assert np.array_equal(updates["zero"].rows[0], updates["none"].rows[0])
        assert np.array_equal(updates["zero"].totals[0], updates["none"].totals[0])
        np.testing.assert_allclose(factors["zero"], factors["mean"], rtol=1e-6, atol=1e-7)
        rows = (updates["zero"].rows[0], updates["mean"].rows[0])
        np.testing.assert_allclose(*rows, rtol=1e-5, atol=1e-6)
        split = given.update_shape.blocks["totals"].split
        zero, like_mean = (split(updates[way].totals[0]) for way in ("zero", "mean"))
        assert zero.pop("n_profiled").tolist() == [0]
        assert like_mean.pop("n_profiled").tolist() == [N_USERS - len(SILENT)]
        assert not zero.pop("profile_sum").any()
        total = like_mean.pop("profile_sum")
        np.testing.assert_allclose(total, (N_USERS - len(SILENT)) * mean, rtol=1e-9)
        for name, values in zero.items():
            np.testing.assert_allclose(values, like_mean[name], rtol=1e-6, atol=1e-6, err_msg=name)

    @pytest.mark.parametrize("cohort", ["everybody", "left out", "clipped"])
    @pytest.mark.parametrize("variant", [v for v in OF_VB if looks(v)])
    def test_rows_of_a_look_are_the_factors_of_the_raters(self, engine, variant, cohort):
        crowd = engine.halves(given_for(variant, COHORTS[cohort]))
        (rows,) = crowd.update(BROADCASTS[variant][3], first_round(variant)).rows
        expected = np.zeros_like(rows, np.float64)
        for user in range(N_USERS):
            items = LISTS.items[LISTS.of(user)]
            p = crowd.user_factors[user, : rows.shape[1]].astype(np.float64)
            length = np.sqrt(len(items) * (p @ p))
            expected[items] += p if cohort != "clipped" else p * min(1.0, 0.5 / max(length, 1e-9))
        if cohort == "left out":
            expected[LEFT_OUT] = 0.0
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=2e-5)

    @pytest.mark.parametrize("cohort", ["fixed", "clipped, fixed"])
    @pytest.mark.parametrize("variant", [v for v in OF_VB if looks(v)])
    def test_a_third_look_is_refused(self, engine, variant, cohort):
        """Also by who goes on from a state; rounds in between and settling do not count."""
        given = given_for(variant, COHORTS[cohort])
        usual, look = BROADCASTS[variant][2:]
        crowd, t = engine.halves(given), first_round(variant)
        for later, broadcast in enumerate((look, usual, look)):
            crowd.update(broadcast, t + later)
        crowd.solve_users(look, np.arange(N_USERS))
        state, again = crowd.state(), engine.halves(given)
        again.restore(state)
        assert {int(count) for name, value in state.items() if "looks" in name
                for count in np.ravel(value)} == {2}  # fmt: skip
        before = crowd.user_factors.copy()
        for one in (crowd, again):
            with pytest.raises(WireError, match="2 rounds at most may ask who rated what"):
                one.update(look, t + 3)
            assert np.array_equal(one.user_factors, before)
            one.update(usual, t + 3)
        fresh = engine.halves(given)
        fresh.update(look, t)
        once = engine.halves(given)
        once.restore(fresh.state())
        once.update(look, t + 1)

    def test_totals_of_sgd_are_users_with_ratings_their_factors_and_squares(self, engine):
        for cohort in (COHORTS["everybody"], COHORTS["members"], COHORTS["fixed"]):
            crowd = engine.halves(given_for("sgd, adam", cohort))
            for t, broadcast in enumerate(BROADCASTS["sgd, adam"], start=1):
                (totals,) = crowd.update(broadcast, t).totals
                summed = np.diff(LISTS.indptr) > 0
                summed &= True if cohort.members is None else cohort.members
                p = crowd.user_factors.astype(np.float64)
                expected = np.column_stack((np.ones(N_USERS), p, p**2))[summed]
                if cohort.is_fixed:
                    expected = np.rint(expected * cohort.total_scale)
                np.testing.assert_allclose(totals, expected.sum(axis=0), rtol=1e-6, atol=1e-5)

    @pytest.mark.parametrize("variant", OF_VB)
    def test_totals_of_vb_have_the_sum_of_all_factors(self, engine, variant):
        """Of those with ratings; also where the round looks at who rated what."""
        for cohort in (COHORTS["everybody"], COHORTS["members"]):
            given = given_for(variant, cohort)
            crowd, parts = engine.halves(given), given.update_shape.blocks["totals"]
            for t, broadcast in enumerate(BROADCASTS[variant], start=first_round(variant)):
                (totals,) = crowd.update(broadcast, t).totals
                summed = np.diff(LISTS.indptr) > 0
                summed &= True if cohort.members is None else cohort.members
                expected = crowd.user_factors[summed].astype(np.float64).sum(axis=0)
                found = [totals[parts.place(name)] for name in ("user_sum", "joint_sum")]
                np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-5, atol=1e-5)
                assert np.abs(expected[1:]).max() > 1e-4

    def test_scores_of_pairs_are_dot_products(self, engine):
        generator = np.random.default_rng(3)
        p, q = generator.standard_normal((9, 5)), generator.standard_normal((7, 5))
        users, items = generator.integers(0, 9, 200), generator.integers(0, 7, 200)
        found = engine.pair_scores(users, items, p.astype(np.float32), q.astype(np.float32))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, (q @ p.T)[items, users], rtol=1e-5, atol=1e-5)
        nobody = np.zeros(0, np.int64)
        assert engine.pair_scores(nobody, nobody, p, q).shape == (0,)

    @pytest.mark.parametrize("population", [None, Population(np.array([3.4, 0.5, -0.2]), 7.5)])
    @pytest.mark.parametrize("strength", [None, "auto"])
    @pytest.mark.parametrize("kind", FAMILIES.names())
    def test_masks_are_those_of_a_device(self, engine, kind, strength, population):
        plan, given = MaskPlan(kind, strength), mask_input(population)
        told = []
        found = fit_masks(plan, given, engine.mask_runner(told.append))
        expected = fit_masks(plan, mask_input(population), OneByOne())
        assert np.array_equal(found.strengths, expected.strengths)
        for name in ("theta", "unit_fitted", "unit_held_out"):
            mine, theirs = getattr(found, name), getattr(expected, name)
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-9)
        assert sum(told) in (0, N_USERS)  # 0: it has no progress to tell
        runners = (engine.mask_runner(), OneByOne())
        applied = [found.predict(LISTS, given.features, runner) for runner in runners]
        assert applied[0].dtype == np.float32
        np.testing.assert_allclose(*applied, rtol=1e-6)


def mask_input(population):
    generator = np.random.default_rng(4)
    features = generator.standard_normal((N_ITEMS, 3))
    ratings = generator.integers(1, 6, len(LISTS.items)).astype(np.float32)
    return MaskInput(LISTS, ratings, RatingScale(1, 5, 1), features, population)


def test_an_unknown_engine_is_named():
    with pytest.raises(UnknownNameError, match="no engine called 'gpu'; there are numba, numpy"):
        ENGINES["gpu"]


def test_a_cohort_is_like_one_that_sums_the_same():
    for name, cohort in COHORTS.items():
        likes = {other for other, found in COHORTS.items() if cohort.is_like(found)}
        assert likes == {name}
    assert Cohort(left_out=LEFT_OUT).is_like(Cohort(left_out=LEFT_OUT.copy()))
    for name in ("bound", "scale", "total_bound", "total_scale"):
        assert not Cohort(**FIXED).is_like(Cohort(**{**FIXED, name: 2.0}))


def test_totals_are_bounded_and_rounded_where_they_have_steps():
    totals = np.array([1.26, -9.0, 100.0])
    assert Cohort(total_bound=8.0, total_scale=4.0).totals_in_steps(totals).tolist() == [5, -32, 32]
    assert Cohort(bound=1.0, scale=4.0).totals_in_steps(totals) is totals
    each = Cohort(total_bound=8.0, total_scale=4.0).totals_in_steps(np.array([[1.0], [2.1]]))
    assert each.tolist() == [[4], [8]]
    assert each.dtype == np.int64
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(WireError, match="not finite"):
            Cohort(total_bound=8.0, total_scale=4.0).totals_in_steps(np.array([0.0, wrong]))
        with pytest.raises(WireError, match="not finite"):
            Cohort(bound=8.0, scale=4.0).in_steps(np.array([[0.0, wrong]]))


def test_kernels_of_vb_serve_one_cohort_without_a_clip():
    """What they do not know runs in numpy, with the same result."""
    numba = ENGINES["numba"]
    for variant in OF_VB:
        for name, cohort in COHORTS.items():
            is_kernel = isinstance(numba.halves(given_for(variant, cohort)), VbHalves)
            assert is_kernel == ("clipped" not in name and name != "all of it")
        two = numba.halves(given_for(variant, Cohort(), Cohort(**FIXED)))
        assert isinstance(two, ReferenceHalves)
    assert isinstance(numba.halves(given_for("sgd, adam", *COHORTS.values())), SgdHalves)


def test_a_users_rows_are_shrunk_together_and_never_grow():
    cohort = Cohort(clip=2.0)
    rows = np.array([[3.0, 0.0], [0.0, 4.0]], np.float32)
    np.testing.assert_allclose(cohort.clipped(rows), rows * 0.4)
    np.testing.assert_allclose(cohort.clipped(rows / 10), rows / 10)
    assert not cohort.clipped(np.zeros((2, 2))).any()
    assert Cohort().clipped(rows) is rows


@pytest.mark.parametrize("name", ENGINES.names())
@pytest.mark.parametrize("strength", [0.1, 1e4, 1e6])
def test_integers_of_a_clipped_user_are_no_longer_than_the_clip(name, strength, tried):
    """Exactly, where lambda q and e p are up to 10,000 times larger than their difference."""
    n, clip = 40, 0.5
    q = np.random.default_rng(5).normal(size=(n, 1)).astype(np.float32)
    masked = ((1 + strength * 1.0001) * q[:, 0]).astype(np.float32)  # e p is about lambda q
    scale = 4096.0
    room = (clip - np.sqrt(n) / (2 * scale)) * (1 - 2.0**-20)  # as `aggregation.dp` has it
    lists = RatedItems(np.array([0, n]), np.arange(n, dtype=np.int32))
    cohort = Cohort(bound=16.0, scale=scale, clip=room)
    update_shape, nothing = SOLVERS["sgd"].update_shape(1, ""), np.zeros((1, 0))
    given = TrainingInput(
        "sgd", update_shape, np.zeros((n, 0)), lists, masked, nothing, nothing, cohorts=[cohort]
    )
    crowd = tried(name).halves(given)
    known = AllUsers(np.ones(1), np.ones(1))
    numbers = SgdPlan(0, 1e-30, strength, 1.0, 0.0).to_parameters(known)
    steps = crowd.update(Broadcast(1, numbers, q), 1).rows[0]
    length = sum(int(step) ** 2 for step in steps.ravel())
    assert length <= (clip * scale) ** 2
    assert strength < 1 or length > 0.98 * (clip * scale) ** 2
