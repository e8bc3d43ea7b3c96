"""`vb` under noise: equations of both halves, engines, accuracy, and what a party refuses."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.engines.contract import Cohort
from fedmmf.errors import SettingsError, WireError
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import ItemSums
from fedmmf.solvers.vb.private import PrivateShape, plan
from fedmmf.solvers.vb.private.items import Prior, information, posterior, true_weights

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")

CLIP = 0.7


@pytest.fixture(scope="module")
def ratings():
    return synthetic(80, 60, 2_000, min_per_user=5, seed=4)


def settings_of(**changes):
    return Settings(**{"aggregation": "dp", "factors": 3, "dp_clip": CLIP, **changes})


def broadcasts(run, rounds):
    """What the server sends in each stage, without noise."""
    coordinator, given = run.coordinator(), run.training_input
    crowd, found = ENGINES["numpy"].halves(replace(given, cohorts=(Cohort(),))), {}
    counts = np.full(given.n_items, run.ratings.n_users)
    for t in range(1, rounds + 1):
        broadcast = coordinator.half.broadcast()
        stage = int(given.update_shape.blocks["parameters"].split(broadcast.parameters)["stage"][0])
        found[plan.STAGES[stage]] = broadcast
        update = crowd.update(broadcast, t)
        sums = ItemSums(update.rows[0], counts, update.totals[0], noise_std=1e-3)
        coordinator.half.advance(sums, t)
    return found


CASES = [
    (objective, mask) for objective in ("rating", "ranking") for mask in ("none", "mean", "lr")
]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def prepared(request, ratings):
    objective, mask = request.param
    run = prepare(ratings, settings_of(objective=objective, mask=mask))
    return run, broadcasts(run, run.settings.max_rounds)


def test_vb_is_the_solver_of_a_budget_unless_another_is_named():
    assert Settings(aggregation="dp").solver == "vb"
    assert Settings(aggregation="dp").factors == plan.OF_RATINGS.factors
    assert Settings(aggregation="dp").max_rounds == plan.OF_RATINGS.rounds
    assert Settings(aggregation="dp", factors=9).factors == 9
    assert Settings(aggregation="dp", solver="sgd").max_rounds == 30
    assert Settings(aggregation="dp", solver="sgd").factors == Settings().factors
    assert Settings(aggregation="dp").changed(aggregation="secure").solver == Settings().solver


@pytest.mark.parametrize(
    "chosen",
    [
        {"likelihood": "ordinal"},
        {"held_out": 0.1},
        {"implicit_prior": "users"},
        {"profile_prior": True},
        {"objective": "ranking", "mask": "lr", "mask_strength": 2.0},
        {"objective": "ranking", "mask": "lr", "mask_fit": "alone"},
    ],
)
def test_what_is_outside_the_budget_is_refused(chosen):
    with pytest.raises(SettingsError, match="aggregation 'dp'"):
        Settings(aggregation="dp", **chosen)


def test_the_kernel_adds_what_each_user_would_send(prepared):
    run, found = prepared
    for stage, broadcast in found.items():
        cohort = Cohort(
            bound=9.0, scale=2.0**16, clip=0.9 * CLIP, total_bound=9.0, total_scale=2.0**20,
            clips_totals=True,
        )  # fmt: skip
        given = replace(run.training_input, cohorts=(cohort, Cohort()))
        one, other = (ENGINES[name].halves(given) for name in ("numpy", "numba"))
        first, second = one.update(broadcast, 5), other.update(broadcast, 5)
        np.testing.assert_allclose(other.user_factors, one.user_factors, atol=1e-4)
        assert first.rows[0].any()
        assert first.totals[0].any() == (stage == "factors")
        for exact, fast in zip(
            (*first.rows, *first.totals), (*second.rows, *second.totals), strict=True
        ):
            unit = 1e-3 * max(np.abs(exact).max(), 1.0)
            np.testing.assert_allclose(
                fast, exact, atol=max(unit, 3.0) if exact.max() > 99 else unit
            )
        for halves in (one, other):
            halves.solve_users(found["factors"], np.arange(7))
        np.testing.assert_allclose(other.user_factors, one.user_factors, atol=1e-4)


def test_every_release_is_as_long_as_the_clip_at_most(prepared):
    """Already before the engine clips: the parts of an update add up to the clip."""
    run, found = prepared
    for stage, broadcast in found.items():
        given = run.training_input
        solver, shape = SOLVERS["vb"], given.update_shape
        reading = solver.reading(shape, broadcast, given.design)
        lengths = []
        for user, own in enumerate(ENGINES["numpy"].halves(given)._own):
            rows, totals = solver.party(shape).update(own, reading, 5)
            lengths.append(math.sqrt(np.sum(np.square(rows)) + np.sum(np.square(totals))))
            assert lengths[-1] <= CLIP * (1 + 1e-6), user
        assert max(lengths) > (0.6 if shape.ranks and stage == "factors" else 0.9) * CLIP


def test_a_release_that_is_not_in_the_table_is_refused(prepared):
    run, found = prepared
    shape, broadcast = run.plan.update_shape, found["factors"]
    place = shape.blocks["parameters"].place("stage")
    for stage in (3.0, -1.0, 0.5, np.nan):
        broadcast.parameters[place], before = stage, broadcast.parameters[place].copy()
        with pytest.raises(WireError, match="a release is one of counts"):
            SOLVERS["vb"].check(shape, broadcast)
        broadcast.parameters[place] = before
    SOLVERS["vb"].check(shape, broadcast)


@pytest.mark.parametrize("variant", ["", "stages=counts joint=1", "stages=counts,means,factors "])
def test_an_unknown_variant_is_refused(variant):
    with pytest.raises(WireError, match="there is no variant"):
        PrivateShape.of(4, variant)


@pytest.mark.parametrize("rounds", [3, 4, 12, 30])
def test_stages_use_up_all_rounds_that_are_paid_for(rounds):
    found = plan.schedule(rounds, 4)
    stages = [found.stage(n) for n in range(rounds)]
    assert stages == sorted(stages)
    assert list(found.numbers) == [stages.count(number) for number in range(3)]


def test_an_item_without_information_stays_at_its_prior():
    x = np.column_stack((np.ones(5), np.arange(5.0)))
    prior = Prior(x, np.array([[1.0, 0.0], [0.5, -1.0]]), np.array([2.0, 4.0]))
    curvature = np.broadcast_to(np.eye(2), (5, 2, 2)) * np.arange(5.0)[:, None, None]
    observed = np.full((5, 2), 7.0) * np.arange(5.0)[:, None]
    for noise in (1e-3, 1e6):
        mean, covariance = posterior(*information(curvature, observed, 1e-6, noise), prior)
        np.testing.assert_allclose(mean[0], prior.mean[0])
        np.testing.assert_allclose(covariance[0], np.diag([0.5, 0.25]))
        expected = prior.mean if noise > 1 else np.full((5, 2), 7.0)
        np.testing.assert_allclose(mean[1:], expected[1:], rtol=1e-3, atol=1e-3)


def test_sums_of_weights_are_positive_and_nearly_unbiased():
    draws = np.random.default_rng(3)
    true = draws.exponential(4.0, 20_000)
    found = true_weights(true + 3.0 * draws.standard_normal(len(true)), 3.0)
    assert (found > 0).all()
    assert found.mean() == pytest.approx(true.mean(), rel=0.05)
    assert np.mean(np.square(found - true)) < 0.6 * 9.0
    assert np.array_equal(true_weights(true, 0.0), np.maximum(true, 1e-6))


def rmse(ratings, **changes):
    from fedmmf import FedMMF

    known, test = ratings.split(test=0.2, seed=1)
    return FedMMF(**{"aggregation": "dp", **changes}).fit(known).evaluate(test)["rmse"]


def test_more_budget_is_more_accurate_and_noise_does_not_break_it():
    ratings = synthetic(600, 80, 18_000, min_per_user=5, seed=4)
    strict, noisy = rmse(ratings, dp_epsilon=100.0), rmse(ratings, dp_epsilon=0.2)
    assert strict < noisy < 1.5
    assert strict < 1.08 * rmse(ratings, aggregation="secure", solver="vb", factors=4)


def test_a_run_spends_its_budget_and_no_more(ratings):
    found = train(ratings, settings_of(mask="mean"))
    assert len(found.members[0].history) == plan.OF_RATINGS.rounds


@pytest.mark.parametrize("rounds", [1, 2, 3, 4, 12, 30])
@pytest.mark.parametrize("objective", ["rating", "ranking"])
def test_releases_are_all_rounds_and_no_more(rounds, objective):
    found = plan.releases(rounds, objective)
    assert sum(n for _, n in found) == rounds
