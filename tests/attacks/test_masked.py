"""The attacks that begin with masked ratings."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.attacks.contract import exact_share
from fedmmf.attacks.decode import DECODE, NAIVE, scan
from fedmmf.attacks.decode import _refit as refit
from fedmmf.attacks.grouping import GROUPING, group_of, place, steps_above_lowest
from fedmmf.attacks.inversion import INVERSION, Problem, unmask
from fedmmf.attacks.paper import proportions, random_hit_ratio, ranking, recovery, stretch
from fedmmf.attacks.view import MAX_SPANS, View, levels_of, nearest_level
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.masks import fit_masks
from fedmmf.masks.fitting import MaskInput, OneByOne
from fedmmf.masks.population import Population

from .conftest import exposed

SCALE = RatingScale(1.0, 5.0, 1.0)


def one_user(n, prior=None):
    uniform = np.full((n, 5), 0.2)
    return View(
        users=np.zeros(1, int),
        lists=RatedItems.of_one(np.arange(n)),
        scale=SCALE,
        prior=uniform if prior is None else prior,
    )


def scanned_share(view, truth):
    """Mean share exact of the scan alone, without any refit."""
    return exact_share(view, levels_of(view.scale)[scan(view)], truth).mean()


def test_recovery_stretches_over_what_a_user_gives_and_counts_in_steps(small):
    view = exposed(small, "mean")
    recovered = stretch(view)
    for rows in view.ranges:
        assert recovered[rows].min() == pytest.approx(small.values[rows].min())
        assert recovered[rows].max() == pytest.approx(small.values[rows].max())
    without = stretch(replace(view, extremes=None))
    for rows in view.ranges:
        assert without[rows].min() == pytest.approx(view.scale.min)
        assert without[rows].max() == pytest.approx(view.scale.max)
    score = recovery(1).score
    guesses, truth = np.array([1.0, 2.0, 3.5]), np.array([1.0, 3.0, 4.0])
    assert score(one_user(3), guesses, truth)[0] == pytest.approx(2 / 3)  # 1 is not less than 1


def test_a_higher_error_level_recovers_more(small):
    view = exposed(small, "fm")
    means = [recovery(g).run(view, small.values).mean for g in (0.5, 1, 2, 4)]
    assert means == sorted(means)
    shares = proportions(recovery(1).run(view, small.values).success)
    assert shares.sum() == pytest.approx(1)


def test_ranking_counts_ties_or_not():
    truth = np.array([5.0, 5.0, 5.0, 5.0, 1, 1, 1, 1, 1, 1])
    scores = np.array([0, 0, 0, 1.0, 0, 0, 0, 0, 0, 0])
    view = one_user(10)
    assert ranking(1).score(view, scores, truth)[0] == 1
    assert ranking(1, strict=True).score(view, scores, truth)[0] == 0
    assert random_hit_ratio(view, truth, tenths=1, strict=False)[0] == pytest.approx(0.4)
    assert random_hit_ratio(view, truth, tenths=1, strict=True)[0] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"mask": "none"},
        {"mask": "mean"},
        {"mask": "mean", "mask_strength": 4.0},
        {"mask": "mean", "cross_fit": True},
        {"mask": "lr"},
        {"mask": "lr", "mask_strength": 0.01},
        {"mask": "lr", "mask_strength": "auto"},
        {"mask": "lr", "cross_fit": True},
        {"mask": "lr", "cross_fit": True, "mask_strength": "auto"},
        {"mask": "lr", "item_statistics": True},
    ],
    ids=str,
)
def test_a_linear_mask_is_undone_exactly(small, changes):
    view = exposed(small, **changes)
    assert INVERSION.run(view, small.values).mean == 1
    np.testing.assert_allclose(INVERSION.guess(view), small.values, atol=0.01)


@pytest.mark.parametrize("mask", ["lr", "mean"])
def test_what_masks_shrink_towards_is_public_and_attackers_use_it(small, mask):
    view = exposed(small, mask, mask_strength=3.0, min_raters=1)  # all items are summed
    seen = np.clip(view.features, -4, 4)[small.item_codes] if mask == "lr" else np.zeros((1800, 0))
    # A regression in which features have a penalty of five users' ratings, 30 each; at the mean
    # rated item it gives the mean of users' means.
    rows = np.column_stack((np.ones(1800), np.broadcast_to(seen, (1800, seen.shape[1]))))
    penalty = np.sqrt(5.0 * 30.0) * np.eye(rows.shape[1])[1:]
    targets = np.concatenate((small.values, np.zeros(len(penalty))))
    line = np.linalg.lstsq(np.vstack((rows, penalty)), targets)[0]
    means = np.bincount(small.user_codes, small.values) / np.diff(small.by_user)
    line[0] = means.mean() - rows[:, 1:].mean(axis=0) @ line[1:]
    np.testing.assert_allclose(view.population.line, line, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(view.base, np.clip(line[0] + seen @ line[1:], 1, 5), rtol=1e-6)
    assert np.abs(view.base - view.scale.midpoint).mean() > 0.1
    misled = replace(view, population=Population.unknown(view.scale))
    told, guessed = (refit(known, small.values)[0] for known in (view, misled))
    assert told.mean() < 1e-5
    assert guessed.mean() > 0.005


@pytest.mark.parametrize("strength", [0.5, 7.0, 30.0, 123.4])
def test_the_strength_need_not_be_known(small, strength):
    view = exposed(small, "lr", mask_strength=strength)
    result = INVERSION.run(replace(view, knows_strength=False), small.values)
    assert (result.success == 1).mean() >= 0.95


@pytest.mark.parametrize("shrinkage", [0.0, 0.5, 12.0])
def test_an_intercept_without_penalty_costs_the_attacker_nothing(shrinkage):
    """Nor does one with any penalty that is known; without one, the scale says what it was."""
    draw = np.random.default_rng(0)
    x, ratings = draw.standard_normal((40, 3)), draw.integers(0, 5, 40) / 4
    ratings[:2], base = (0.0, 1.0), draw.uniform(0.2, 0.8, 40)
    a, y = np.column_stack((np.ones(40), x)), ratings - base
    theta = np.linalg.solve(a.T @ a + np.diag([shrinkage, 2, 2, 2]), a.T @ y)
    problem = Problem(y - a @ theta, x, base, np.linspace(0, 1, 5), shrinkage)
    np.testing.assert_allclose(unmask(problem, 2.0), y, atol=1e-9)
    assert problem.misfit(y) == pytest.approx(0, abs=1e-9)
    assert problem.misfit(y + 0.1) == pytest.approx(0.4)


@pytest.mark.parametrize("mask", ["lr", "fm", "nn"])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_differences_within_a_group_are_whole_steps_and_right(ml_100k, mask, cross_fit):
    view = exposed(ml_100k, mask, cross_fit=cross_fit, mask_strength=1.0)
    groups = group_of(view)
    lowest = np.full(groups.max() + 1, np.inf)
    np.minimum.at(lowest, groups, ml_100k.values)
    assert np.array_equal(steps_above_lowest(view, groups), ml_100k.values - lowest[groups])
    assert len(lowest) < len(groups)  # some groups have several items
    assert GROUPING.run(view, ml_100k.values).advantage_interval[0] > 0


@pytest.mark.parametrize("cross_fit", [False, True])
def test_groups_bear_what_no_mask_would_give_and_users_without_rows(small, cross_fit):
    """Numbers that were read out of noise reach far beyond the scale."""
    view = exposed(small, "lr", cross_fit=cross_fit).only(np.arange(small.n_users) < 3)
    lists = RatedItems(np.insert(view.lists.indptr, 1, 0), view.lists.items)  # user 0 has no rows
    far = np.full(len(view.masked), MAX_SPANS * view.scale.span)
    far[::2] *= -1
    strange = replace(view, users=np.arange(4), lists=lists, masked=far, extremes=None)
    guesses = GROUPING.guess(strange)
    assert np.isin(guesses, levels_of(view.scale)).all()
    assert np.isnan(GROUPING.success(strange, guesses)[0])


def test_the_scale_and_the_prior_place_a_list():
    prior = np.tile([0.02, 0.03, 0.05, 0.6, 0.3], (6, 1))
    assert place(np.array([0, 0, 1, 0, 0, 1]), prior).tolist() == [3, 3, 4, 3, 3, 4]
    assert place(np.array([7, 8, 9, 10, 11, 9]), prior).tolist() == [0, 1, 2, 3, 4, 2]


@pytest.mark.parametrize("cross_fit", [False, True])
@pytest.mark.parametrize("mask", ["lr", "fm"])
def test_a_scan_knows_what_somebody_unknown_gives(small, mask, cross_fit):
    """Were the line left out, masked ratings would be on no steps; a list's level may be wrong."""
    view = exposed(small, mask, mask_strength=1e5, cross_fit=cross_fit)
    weights = np.random.default_rng(1).normal(0, 0.8, view.features.shape[1])
    line = Population(np.concatenate(([3.2], weights)), view.population.shrinkage)
    given = MaskInput(view.lists, small.values, SCALE, view.features, line)
    masked = fit_masks(view.plan, given, OneByOne()).masked_ratings
    view = replace(view, masked=masked, population=line)
    assert view.base.std() > 0.5
    off = scan(view) - (small.values - 1).astype(int)
    n_off = [np.count_nonzero(off[rows] != np.median(off[rows])) for rows in view.ranges]
    assert sum(n_off) == 0


@pytest.mark.parametrize("mask", ["fm", "nn"])
def test_masks_of_interactions_are_decoded(ml_100k, mask):
    """Mean share exact over all 943 users: FM 0.9996, NN 1.0000; a third of them here."""
    everybody, third = exposed(ml_100k, mask), np.arange(ml_100k.n_users) % 3 == 0
    view, truth = everybody.only(third), ml_100k.values[everybody.rows_of(third)]
    naive, decode = (attack.run(view, truth) for attack in (NAIVE, DECODE))
    assert scanned_share(view, truth) > 0.97
    assert decode.mean > 0.97
    assert decode.mean > naive.mean > naive.baseline_mean


def test_a_list_that_does_not_fit_is_learned_together_with_its_mask(ml_100k):
    """With a weak penalty two numbers no longer describe f, and the scan alone falls behind."""
    everybody = exposed(ml_100k, "fm", mask_strength=5.0)
    some = np.arange(ml_100k.n_users) % 6 == 0
    view, truth = everybody.only(some), ml_100k.values[everybody.rows_of(some)]
    assert DECODE.run(view, truth).mean > scanned_share(view, truth) + 0.02


def test_the_papers_two_attacks_on_ml_100k(ml_100k):
    view = exposed(ml_100k, "fm")
    tolerant, strict = ranking(1), ranking(1, strict=True)
    assert tolerant.run(view, ml_100k.values).mean > 0.9
    assert strict.run(view, ml_100k.values).mean < 0.6  # ties, and not the mask, protect here
    random = random_hit_ratio(view, ml_100k.values, tenths=1, strict=False)
    assert random.mean() == pytest.approx(0.298, abs=0.005)


def test_exact_share_rounds_to_the_step():
    view = one_user(4)
    truth = np.array([1.0, 2, 3, 4])
    assert exact_share(view, np.array([1.4, 2.6, 3.0, 3.6]), truth)[0] == 0.75
    assert nearest_level(np.array([-3.0, 9.0]), SCALE).tolist() == [0, 4]
