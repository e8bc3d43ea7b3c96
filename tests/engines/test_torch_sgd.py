"""`sgd` on tensors, beyond the contract: blocks, chunks, exact integers, runs that repeat."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort, TrainingInput
from fedmmf.engines.reference import ReferenceHalves
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast
from fedmmf.solvers.sgd import STEPS, AllUsers, SgdPlan

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")
ours = pytest.importorskip("fedmmf.engines.torch.sgd")

N_USERS, N_ITEMS = 400, 330
RANK = 2  # so that there is but one order in which to add q_i . p_u
EAGER = 5  # a user who has rated everything but the last items; everybody has rated item 0
FIXED = {"bound": 16.0, "scale": 2.0**14, "total_bound": 4096.0, "total_scale": 64.0}
COHORTS = (
    Cohort(),
    Cohort(**FIXED),
    Cohort(bound=0.2, scale=2.0**14),
    Cohort(np.arange(N_USERS) % 3 != 1, np.arange(N_ITEMS) % 5 == 2, **FIXED),
    Cohort(clip=0.5),
    Cohort(clip=0.5, **FIXED),
)


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    return torch.device(request.param)


def given_for(*cohorts):
    """New lists each time: orders are kept for those that were seen."""
    generator = np.random.default_rng(1)
    is_rated = generator.random((N_USERS, N_ITEMS)) < 0.1
    is_rated[:, 0], is_rated[EAGER] = True, True
    is_rated[:, -5:], is_rated[[0, 17]] = False, False
    users, items = np.nonzero(is_rated)
    indptr = np.searchsorted(users, np.arange(N_USERS + 1))
    masked = generator.standard_normal(len(items)).astype(np.float32)
    design, nothing = np.zeros((N_ITEMS, 0)), np.zeros((N_USERS, 0))
    lists, update_shape = (
        RatedItems(indptr, items.astype(np.int32)),
        SOLVERS["sgd"].update_shape(RANK, ""),
    )
    return TrainingInput(
        "sgd", update_shape, design, lists, masked, nothing, nothing, cohorts=cohorts
    )


def published(t, step="adam"):
    q = np.random.default_rng(t).standard_normal((N_ITEMS, RANK)).astype(np.float32)
    plan = SgdPlan(STEPS.index(step), 0.02, 0.3, 1.0, 0.0, 30.0)
    return Broadcast(RANK, plan.to_parameters(AllUsers(np.zeros(RANK), np.ones(RANK))), q)


def all_of(given, device, rounds=3):
    """What a few rounds give in the end, as one list of arrays."""
    crowd = ours.TorchSgdHalves(given, device)
    for t in range(1, 1 + rounds):
        update = crowd.update(published(t), t)
    return [*update.rows, *update.totals, *crowd.state().values()]


def same(some, other):
    return all(np.array_equal(a, b) for a, b in zip(some, other, strict=True))


def test_lists_are_longer_than_chunks():
    """Else nothing here is about sums in two steps."""
    lists = given_for().lists
    assert lists.lengths[EAGER] > ours.CHUNK
    assert lists.counts(N_ITEMS)[0] > ours.CHUNK


@pytest.mark.parametrize("step", STEPS)
def test_long_lists_go_as_in_numpy(device, step):
    given = given_for(*COHORTS)
    mine, oracle = ours.TorchSgdHalves(given, device), ReferenceHalves(given)
    for t in (1, 2):
        found, wanted = mine.update(published(t, step), t), oracle.update(published(t, step), t)
        for a, b in zip(found.rows, wanted.rows, strict=True):
            atol = 2e-4 if a.dtype == np.float32 else 3
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol)
        for a, b in zip(found.totals, wanted.totals, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2)
        np.testing.assert_allclose(mine.user_factors, oracle.user_factors, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 100, 1000])
def test_blocks_change_no_bit(device, monkeypatch, size):
    expected = all_of(given_for(*COHORTS), device)
    monkeypatch.setattr(ours, "BLOCK", size)
    given = given_for(*COHORTS)
    ratings = [some for _, some in ours.orders_of(given, device).by_user.blocks()]
    assert len(ratings) > 10
    assert max(some.stop - some.start for some in ratings) <= max(size, ours.CHUNK)
    assert [some.start for some in ratings[1:]] == [some.stop for some in ratings[:-1]]
    assert same(all_of(given, device), expected)


def test_runs_repeat_to_the_last_bit(device):
    first = all_of(given_for(*COHORTS), device)
    assert same(all_of(given_for(*COHORTS), device), first)
    assert not same(all_of(given_for(*COHORTS), device, rounds=2), first)


@pytest.mark.parametrize("user", [3, EAGER])
def test_a_user_alone_gets_what_it_gets_in_the_crowd(device, user):
    given = given_for(Cohort(clip=0.5, **FIXED))
    mine = given.lists.of(user)
    own = replace(
        given,
        lists=RatedItems.of_one(given.lists.items[mine]),
        masked_ratings=given.masked_ratings[mine],
    )
    members = replace(given.cohorts[0], members=np.arange(N_USERS) == user)
    alone, crowd = all_of(own, device), all_of(replace(given, cohorts=[members]), device)
    assert alone[0].any()
    assert same(alone[:2], crowd[:2])
    assert all(np.array_equal(a[0], b[user]) for a, b in zip(alone[2:], crowd[2:], strict=True))


@pytest.mark.parametrize("cohort", [cohort for cohort in COHORTS if cohort.is_fixed])
def test_integers_are_exactly_the_sums_of_rounded_rows(device, cohort):
    """From the same p_u: errors, rows and steps are then the same numbers as in numpy."""
    cohort = replace(cohort, clip=np.inf)
    given, broadcast = given_for(cohort), published(1)
    crowd = ours.TorchSgdHalves(given, device)
    (found,) = crowd.update(broadcast, 1).rows
    items, users = given.lists.items, given.lists.users
    q, p = broadcast.item_rows[items], crowd.user_factors[users]
    products = q * p
    errors = given.masked_ratings - (products[:, 0] + products[:, 1])
    rows = np.float32(0.3) * q - errors[:, np.newaxis] * p
    is_kept = np.ones(len(items), bool)
    if cohort.members is not None:
        is_kept = cohort.members[users] & ~cohort.left_out[items]
    expected = np.zeros((N_ITEMS, RANK), np.int64)
    np.add.at(expected, items[is_kept], cohort.in_steps(rows[is_kept]))
    assert found.dtype == np.int64
    assert np.array_equal(found, expected)


def test_who_overflows_adds_nothing(device):
    """Neither rows nor totals, and stays."""
    broadcast = published(1)
    large = Broadcast(RANK, broadcast.parameters, np.full_like(broadcast.item_rows, 1e36))
    for cohort in (Cohort(**FIXED), Cohort(clip=0.5, **FIXED)):
        crowd = ours.TorchSgdHalves(given_for(cohort), device)
        before = crowd.user_factors
        update = crowd.update(large, 1)
        assert update.n_overflowed > 0
        assert not update.rows[0].any()
        assert not update.totals[0].any()
        assert np.array_equal(crowd.user_factors, before)
    crowd = ours.TorchSgdHalves(given_for(Cohort(total_bound=8.0, total_scale=64.0)), device)
    crowd.user_factors = np.full((N_USERS, RANK), np.nan)
    assert not crowd.update(broadcast, 1).totals[0].any()


def test_states_and_factors_are_copies(device):
    crowd = ours.TorchSgdHalves(given_for(Cohort()), device)
    crowd.update(published(1), 1)
    state, before = crowd.state(), crowd.user_factors
    other = ours.TorchSgdHalves(given_for(Cohort()), device)
    other.restore(state)
    for values in state.values():
        values[:] = 7.0
    assert np.array_equal(crowd.user_factors, before)
    assert np.array_equal(other.user_factors, before)
    crowd.update(published(2), 2)
    assert not np.array_equal(crowd.user_factors, before)
