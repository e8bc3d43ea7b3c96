"""What every family of masks has to do; the oracles are in test_models.py."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.engines.kernels.masks import CompiledRunner
from fedmmf.errors import SettingsError, UnknownNameError
from fedmmf.lists import UserLists
from fedmmf.masks import FAMILIES, FittedMasks, MaskPlan, apply_one_mask, fit_masks
from fedmmf.masks.fitting import MaskInput, OneByOne
from fedmmf.masks.models import INTERCEPT_PENALTY
from fedmmf.scale import RatingScale
from fedmmf.simulation.features import content_features
from fedmmf.simulation.prepared import lists_of, mask_stream

every_family = pytest.mark.parametrize("kind", FAMILIES.names())


def streams_of(users, plan):
    """Where these users' masks start from, if they start at random."""
    return [mask_stream(0, user) for user in users] if plan.starts_at_random else ()


def fit_crowd(ratings, kind, mean=None, **chosen):
    plan = MaskPlan(kind, **chosen)
    given = MaskInput(
        lists_of(ratings),
        ratings.values,
        ratings.scale,
        content_features(ratings),
        streams_of(ratings.user_ids, plan),
        mean,
    )
    return fit_masks(plan, given, CompiledRunner())


def fit_alone(ratings, user, kind, mean=None, **chosen):
    plan, mine = MaskPlan(kind, **chosen), slice(*ratings.by_user[user : user + 2])
    given = MaskInput(
        UserLists.of_one(ratings.item_codes[mine]),
        ratings.values[mine],
        ratings.scale,
        content_features(ratings),
        streams_of(ratings.user_ids[user : user + 1], plan),
        mean,
    )
    return fit_masks(plan, given, OneByOne())


def replaced(ratings, values, **changes):
    return replace(ratings, values=values.astype(np.float32), **changes)


@every_family
@pytest.mark.parametrize("strength", [None, "auto", 3.0])
def test_one_party_alone_gets_what_the_crowd_gives_it(small, kind, strength):
    crowd = fit_crowd(small, kind, strength=strength)
    for user in (0, 7, 59):
        alone = fit_alone(small, user, kind, strength=strength)
        assert alone.strengths[0] == crowd.strengths[user]
        np.testing.assert_allclose(alone.theta[0], crowd.theta[user], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(alone.j_out_of_fold[0], crowd.j_out_of_fold[user], rtol=1e-7)


@every_family
def test_the_number_of_threads_changes_nothing(small, kind, monkeypatch):
    monkeypatch.setenv("FEDMMF_THREADS", "1")
    one = fit_crowd(small, kind)
    monkeypatch.setenv("FEDMMF_THREADS", "5")
    five = fit_crowd(small, kind)
    assert np.array_equal(one.theta, five.theta)
    assert np.array_equal(one.unit_held_out, five.unit_held_out)


@every_family
def test_a_mask_sees_its_own_users_ratings_alone(small, kind):
    before = fit_crowd(small, kind)
    others = small.user_codes != 5
    changed = small.values.copy()
    changed[others] = 6 - changed[others]
    after = fit_crowd(replaced(small, changed), kind)
    assert np.array_equal(before.theta[5], after.theta[5])
    if kind != "none":
        assert not np.array_equal(before.theta[6], after.theta[6])


@every_family
def test_an_out_of_fold_prediction_does_not_see_its_rating(small, kind):
    before = fit_crowd(small, kind).unit_held_out
    changed = small.values.copy()
    changed[0] = 6 - changed[0] if changed[0] != 3 else 5
    after = fit_crowd(replaced(small, changed), kind).unit_held_out
    assert before[0] == after[0]


@every_family
def test_no_party_interpolates_its_ratings(small, kind):
    """Without regularisation a user with fewer ratings than features would have J = 0."""
    assert fit_crowd(small, kind).j_train.min() > 1e-3


@every_family
@pytest.mark.parametrize("mean", [None, 3.7])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_mask_and_masked_rating_make_the_rating(small, kind, cross_fit, mean):
    masks = fit_crowd(small, kind, mean, cross_fit=cross_fit)
    masked = masks.masked_ratings
    assert masked.dtype == np.float32
    predicted = masks.predict(lists_of(small), content_features(small), OneByOne())
    if not cross_fit:
        np.testing.assert_allclose(masked + predicted, small.values, atol=1e-5)
    elif kind != "none":
        assert np.mean(masked**2) > np.mean((small.values - predicted) ** 2)


@every_family
@pytest.mark.parametrize("mean", [None, 3.7, 1.0, 5.0])
def test_users_with_no_or_one_rating_work(kind, mean):
    scale, features = RatingScale(1, 5, 1), np.eye(3)
    plan, lists = MaskPlan(kind), UserLists(np.array([0, 1, 1]), np.array([2]))
    rated = 2.0 if mean == 5.0 else 5.0
    given = MaskInput(lists, np.array([rated]), scale, features, streams_of((0, 1), plan), mean)
    masks = fit_masks(plan, given, OneByOne())
    assert np.isfinite(masks.theta).all()
    assert np.isnan(masks.j_train[1])
    everything = UserLists(np.array([0, 3, 6]), np.array([0, 1, 2] * 2))
    predicted = masks.predict(everything, features, OneByOne())
    assert np.isfinite(predicted).all()
    base = 0.0 if kind == "none" else np.float32(3.0 if mean is None else mean)
    assert (predicted[3:] == base).all()  # who gave nothing gets what a mean user gives
    if kind != "none":
        assert min(base, rated) < predicted[2] < max(base, rated)


@every_family
def test_no_mean_is_the_middle_of_the_scale(small, kind):
    without, middle = fit_crowd(small, kind), fit_crowd(small, kind, small.scale.midpoint)
    assert without.mean == middle.mean == small.scale.midpoint
    assert np.array_equal(without.theta, middle.theta)
    assert np.array_equal(without.masked_ratings, middle.masked_ratings)
    assert fit_crowd(small, kind, 3.7).mean == 3.7


def test_who_masks_nothing_has_no_use_for_a_mean(small):
    masks = [fit_crowd(small, "none", mean) for mean in (None, 4.2)]
    assert np.array_equal(masks[0].masked_ratings, masks[1].masked_ratings)
    np.testing.assert_allclose(masks[0].masked_ratings, small.values, atol=1e-5)


@pytest.mark.parametrize("kind", ["mean", "lr", "fm"])
def test_masks_shrink_towards_the_mean_rating(small, kind):
    """A strong pull ends there; nn is covered by the shift below, as its steps are limited."""
    lists, features = lists_of(small), content_features(small)
    strong = fit_crowd(small, kind, 3.7, strength=1e7)
    users, lengths = lists.users, lists.lengths
    sums = np.bincount(users, small.values - 3.7, len(lengths))
    pull = 1e7 if kind == "mean" else INTERCEPT_PENALTY  # intercepts have a pull of their own
    expected = 3.7 + (sums / (lengths + pull))[users]
    found = strong.predict(lists, features, OneByOne())
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["mean", "lr", "fm", "nn"])
def test_a_shift_of_ratings_and_mean_shifts_the_mask(small, kind):
    scale = RatingScale(small.scale.min, small.scale.max + 1, small.scale.step)
    low = fit_crowd(replaced(small, small.values, scale=scale), kind, 3.2)
    high = fit_crowd(replaced(small, small.values + 1, scale=scale), kind, 4.2)
    np.testing.assert_allclose(low.theta, high.theta, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(low.masked_ratings, high.masked_ratings, atol=1e-5)


@every_family
def test_the_unit_of_the_scale_does_not_matter(small, kind):
    """Ratings of 10..50 with the same strength give ten times the mask of 1..5."""
    wide = RatingScale(10 * small.scale.min, 10 * small.scale.max, 10 * small.scale.step)
    ten = fit_crowd(replaced(small, 10 * small.values, scale=wide), kind)
    one = fit_crowd(small, kind)
    np.testing.assert_allclose(ten.theta, one.theta, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(ten.j_train, one.j_train, rtol=1e-5)


@every_family
def test_auto_is_no_worse_out_of_fold_than_any_candidate(small, kind):
    best = fit_crowd(small, kind, strength="auto").j_out_of_fold
    for strength in FAMILIES[kind].strengths:
        assert (best <= fit_crowd(small, kind, strength=strength).j_out_of_fold + 1e-12).all()


@every_family
def test_features_are_asked_for(small, kind):
    bare = replaced(small, small.values, features=None)
    if FAMILIES[kind].needs_features:
        with pytest.raises(SettingsError, match="needs item features"):
            fit_crowd(bare, kind)
    else:
        fit_crowd(bare, kind)


@every_family
def test_parties_together_are_the_crowd(small, kind):
    """What a run in one process joins."""
    crowd = fit_crowd(small, kind, 3.6)
    together = FittedMasks.together([fit_alone(small, user, kind, 3.6) for user in range(60)])
    assert together.mean == crowd.mean == 3.6
    assert np.array_equal(together.indptr, crowd.indptr)
    np.testing.assert_allclose(together.theta, crowd.theta, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(together.j_train, crowd.j_train, rtol=1e-6)
    np.testing.assert_allclose(together.masked_ratings, crowd.masked_ratings, atol=1e-5)


@every_family
def test_a_family_says_how_many_parameters_it_has(small, kind):
    family, features = FAMILIES[kind], content_features(small)
    assert family.name == kind
    assert fit_crowd(small, kind).theta.shape == (60, family.n_parameters(features.shape[1]))
    assert family.default_strength > 0
    assert min(family.strengths) > 0


def test_an_unknown_mask_is_named():
    with pytest.raises(UnknownNameError, match="no mask called 'gp'; there are none, mean, lr"):
        FAMILIES["gp"]


@every_family
def test_one_user_through_the_catalogue_is_what_pairs_give(small, kind):
    masks, features = fit_crowd(small, kind), content_features(small)
    everybody = np.arange(masks.theta.shape[0] + 1) * small.n_items
    lists = UserLists(everybody, np.tile(np.arange(small.n_items), len(masks.theta)))
    pairs = masks.predict(lists, features, OneByOne()).reshape(-1, small.n_items)
    for user in (0, 31, 59):
        np.testing.assert_allclose(apply_one_mask(masks, user, features), pairs[user], rtol=1e-6)


@every_family
def test_fitted_masks_keep_ratings_as_they_are_and_what_was_fitted_in_half_the_room(small, kind):
    """float32 beside float64: there may be very many, and a mask is no more exact than that."""
    masks = fit_crowd(small, kind)
    assert np.array_equal(masks.ratings, small.values)
    assert masks.ratings.dtype == masks.unit_fitted.dtype == masks.unit_held_out.dtype == np.float32
    np.testing.assert_allclose(masks.unit_ratings, (small.values - 1.0) / 4.0, atol=1e-7)
    assert masks.unit_ratings.dtype == np.float64
