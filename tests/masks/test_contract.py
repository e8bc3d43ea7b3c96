"""What every family of masks has to do; the oracles are in test_models.py."""

import numpy as np
import pytest

from fedmmf import simulation
from fedmmf.config import Settings
from fedmmf.errors import SettingsError
from fedmmf.masks import FAMILIES, fit_masks
from fedmmf.masks.fitting import Plain, needs_streams
from fedmmf.party import Party
from fedmmf.scale import RatingScale

pytestmark = pytest.mark.parametrize("kind", list(FAMILIES))


def fit_crowd(ratings, kind, **settings):
    settings = Settings(mask=kind, **settings)
    features = simulation.feature_matrix(ratings, settings)
    return simulation.fit_all_masks(ratings, features, settings)


def lone_party(ratings, user, kind, **settings):
    mine = slice(*ratings.by_user[user : user + 2])
    return Party(
        ratings.item_codes[mine],
        ratings.values[mine],
        ratings.scale,
        simulation.content_features(ratings),
        mask=kind,
        stream=simulation.mask_stream(0, ratings.user_ids[user]),
        **settings,
    )


@pytest.mark.parametrize("strength", [None, "auto", 3.0])
def test_one_party_alone_gets_what_the_crowd_gives_it(small, kind, strength):
    crowd = fit_crowd(small, kind, mask_strength=strength)
    for user in (0, 7, 59):
        alone = lone_party(small, user, kind, mask_strength=strength).mask
        assert alone.strengths[0] == crowd.strengths[user]
        np.testing.assert_allclose(alone.theta[0], crowd.theta[user], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(alone.j_out_of_fold[0], crowd.j_out_of_fold[user], rtol=1e-7)


def test_the_number_of_threads_changes_nothing(small, kind, monkeypatch):
    monkeypatch.setenv("FEDMMF_THREADS", "1")
    one = fit_crowd(small, kind)
    monkeypatch.setenv("FEDMMF_THREADS", "5")
    five = fit_crowd(small, kind)
    assert np.array_equal(one.theta, five.theta)
    assert np.array_equal(one.unit_held_out, five.unit_held_out)


def test_a_mask_sees_its_own_users_ratings_alone(small, kind):
    before = fit_crowd(small, kind)
    others = small.user_codes != 5
    changed = small.values.copy()
    changed[others] = 6 - changed[others]
    after = fit_crowd(replaced(small, changed), kind)
    assert np.array_equal(before.theta[5], after.theta[5])
    if kind != "none":
        assert not np.array_equal(before.theta[6], after.theta[6])


def test_an_out_of_fold_prediction_does_not_see_its_rating(small, kind):
    before = fit_crowd(small, kind).unit_held_out
    changed = small.values.copy()
    changed[0] = 6 - changed[0] if changed[0] != 3 else 5
    after = fit_crowd(replaced(small, changed), kind).unit_held_out
    assert before[0] == after[0]


def test_no_party_interpolates_its_ratings(small, kind):
    """Without regularisation a user with fewer ratings than features would have J = 0."""
    assert fit_crowd(small, kind).j_train.min() > 1e-3


@pytest.mark.parametrize("cross_fit", [False, True])
def test_mask_and_masked_rating_make_the_rating(small, kind, cross_fit):
    masks = fit_crowd(small, kind)
    masked = masks.masked_ratings(cross_fit)
    assert masked.dtype == np.float32
    features = simulation.content_features(small)
    predicted = masks.predict(small.by_user, small.item_codes, features, Plain())
    if not cross_fit:
        np.testing.assert_allclose(masked + predicted, small.values, atol=1e-5)
    elif kind != "none":
        assert np.mean(masked**2) > np.mean((small.values - predicted) ** 2)


def test_users_with_no_or_one_rating_work(kind):
    scale, features = RatingScale(1, 5, 1), np.eye(3)
    masks = fit_masks(
        kind,
        np.array([0, 1, 1]),
        np.array([2]),
        np.array([5.0]),
        features,
        scale,
        strength=None,
        folds=5,
        streams=[np.random.default_rng(0)] * 2 if needs_streams(kind) else [],
        runner=Plain(),
    )
    assert np.isfinite(masks.theta).all()
    assert np.isnan(masks.j_train[1])
    predicted = masks.predict(np.array([0, 3, 6]), np.array([0, 1, 2] * 2), features, Plain())
    assert np.isfinite(predicted).all()
    base = 0.0 if kind == "none" else 3.0
    assert (predicted[3:] == base).all()  # who gave nothing gets the midpoint
    if kind != "none":
        assert base < predicted[2] < 5.0


def test_the_unit_of_the_scale_does_not_matter(small, kind):
    """Ratings of 10..50 with the same strength give ten times the mask of 1..5."""
    wide = RatingScale(10 * small.scale.min, 10 * small.scale.max, 10 * small.scale.step)
    ten = fit_crowd(replaced(small, 10 * small.values, scale=wide), kind)
    one = fit_crowd(small, kind)
    np.testing.assert_allclose(ten.theta, one.theta, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(ten.j_train, one.j_train, rtol=1e-5)


def test_auto_is_no_worse_out_of_fold_than_any_candidate(small, kind):
    best = fit_crowd(small, kind, mask_strength="auto").j_out_of_fold
    for strength in FAMILIES[kind].strengths:
        assert (best <= fit_crowd(small, kind, mask_strength=strength).j_out_of_fold + 1e-12).all()


def test_features_are_asked_for(small, kind):
    bare = replaced(small, small.values, features=None)
    if FAMILIES[kind].needs_features:
        with pytest.raises(SettingsError, match="needs item features"):
            fit_crowd(bare, kind)
    else:
        fit_crowd(bare, kind)


def replaced(ratings, values, **changes):
    from dataclasses import replace

    return replace(ratings, values=values.astype(np.float32), **changes)
