"""What every family of masks has to do; the oracles are in test_models.py."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf import FedMMF
from fedmmf.data.features import content_features
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines.kernels.masks import CompiledRunner
from fedmmf.errors import SettingsError, UnknownNameError
from fedmmf.masks import FAMILIES, FittedMasks, MaskPlan, apply_one_mask, fit_masks, fitting
from fedmmf.masks.fitting import MaskInput, OneByOne
from fedmmf.masks.population import Population

every_family = pytest.mark.parametrize("kind", FAMILIES.names())
PULL = 6.5


def some_line(ratings, level=3.4):
    """What somebody unknown gives depends on features; some of it is off the scale."""
    weights = np.random.default_rng(4).normal(0, 1.2, content_features(ratings).shape[1])
    return Population(np.concatenate(([level], weights)), PULL)


def base_of(population, ratings):
    """What that is for the item of each rating, by hand. (n,)."""
    known = np.clip(content_features(ratings), -4, 4) @ population.line[1:]
    return np.clip(population.line[0] + known, 1, 5)[ratings.item_codes]


def fit_crowd(ratings, kind, population=None, **chosen):
    plan = MaskPlan(kind, **chosen)
    given = MaskInput(
        ratings.rated_items,
        ratings.values,
        ratings.scale,
        content_features(ratings),
        population,
    )
    return fit_masks(plan, given, CompiledRunner())


def fit_alone(ratings, user, kind, population=None, **chosen):
    plan, mine = MaskPlan(kind, **chosen), slice(*ratings.by_user[user : user + 2])
    given = MaskInput(
        RatedItems.of_one(ratings.item_codes[mine]),
        ratings.values[mine],
        ratings.scale,
        content_features(ratings),
        population,
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
@pytest.mark.parametrize("common", ["nothing", "a level", "a line"])
@pytest.mark.parametrize("cross_fit", [False, True])
def test_mask_and_masked_rating_make_the_rating(small, kind, cross_fit, common):
    known = {"nothing": None, "a level": Population.at(3.7), "a line": some_line(small)}[common]
    masks = fit_crowd(small, kind, known, cross_fit=cross_fit)
    masked = masks.masked_ratings
    assert masked.dtype == np.float32
    predicted = masks.predict(small.rated_items, content_features(small), OneByOne())
    if not cross_fit:
        np.testing.assert_allclose(masked + predicted, small.values, atol=1e-5)
    elif kind != "none":
        assert np.mean(masked**2) > np.mean((small.values - predicted) ** 2)


@every_family
@pytest.mark.parametrize(
    ("population", "base"),
    [
        (None, [3, 3, 3]),
        (Population.at(3.7), [3.7, 3.7, 3.7]),
        (Population.at(1.0), [1, 1, 1]),
        (Population.at(5.0), [5, 5, 5]),
        (Population(np.array([3.2, 0.5, -0.25, 9.0]), 2.0), [3.7, 2.95, 5.0]),  # of 12.2
    ],
)
def test_users_with_no_or_one_rating_work(kind, population, base):
    scale, features = RatingScale(1, 5, 1), np.eye(3)
    plan, lists = MaskPlan(kind), RatedItems(np.array([0, 1, 1]), np.array([2]))
    rated = 2.0 if base[2] == 5.0 else 5.0
    given = MaskInput(lists, np.array([rated]), scale, features, population)
    masks = fit_masks(plan, given, OneByOne())
    assert np.isfinite(masks.theta).all()
    assert np.isnan(masks.j_train[1])
    everything = RatedItems(np.array([0, 3, 6]), np.array([0, 1, 2] * 2))
    predicted = masks.predict(everything, features, OneByOne())
    assert np.isfinite(predicted).all()
    base = np.zeros(3, np.float32) if kind == "none" else np.array(base, np.float32)
    assert np.array_equal(predicted[3:], base)  # who gave nothing gives what somebody unknown gives
    if kind != "none":
        assert min(base[2], rated) < predicted[2] < max(base[2], rated)


@every_family
def test_a_population_that_nobody_knows_is_the_middle_of_the_scale(small, kind):
    without, middle = fit_crowd(small, kind), fit_crowd(small, kind, Population.at(3.0))
    assert without.population.line.tolist() == [small.scale.midpoint] == [3.0]
    assert without.population.shrinkage == 1.0
    assert np.array_equal(without.theta, middle.theta)
    assert np.array_equal(without.masked_ratings, middle.masked_ratings)
    line = some_line(small)
    assert fit_crowd(small, kind, line).population is line


def test_who_masks_nothing_has_no_use_for_a_population(small):
    masks = [fit_crowd(small, "none", common) for common in (None, some_line(small))]
    assert np.array_equal(masks[0].masked_ratings, masks[1].masked_ratings)
    np.testing.assert_allclose(masks[0].masked_ratings, small.values, atol=1e-5)


@every_family
def test_models_see_ratings_less_the_line_and_the_pull(small, kind):
    """What a family's own functions make of each user, with all of it worked out here."""
    line, family, features = some_line(small), FAMILIES[kind], content_features(small)
    base = np.full(len(small), 1.0) if kind == "none" else base_of(line, small)
    assert kind == "none" or 0.02 < np.isin(base, (1.0, 5.0)).mean() < 0.5  # ends of the scale
    crowd = fit_crowd(small, kind, line, strength=2.5)
    for user in (0, 31, 59):
        mine = slice(*small.by_user[user : user + 2])
        x, y = features[small.item_codes[mine]], (small.values[mine] - base[mine]) / 4
        theta = family.fit(x, y, 2.5, PULL)
        np.testing.assert_allclose(crowd.theta[user], theta, rtol=1e-5, atol=1e-7)
        for fold in range(5):
            inside = np.arange(len(y)) % 5 == fold
            part = family.fit(x[~inside], y[~inside], 2.5, PULL)
            unseen = (base[mine][inside] - 1) / 4 + family.predict(x[inside], part)
            np.testing.assert_allclose(crowd.unit_held_out[mine][inside], unseen, atol=1e-5)


@pytest.mark.parametrize("kind", ["mean", "lr", "fm"])
def test_masks_shrink_towards_the_line(small, kind):
    """A strong shrinkage ends there; nn is covered by the shift below, as its steps are limited."""
    lists, features, line = small.rated_items, content_features(small), some_line(small)
    base = base_of(line, small)
    strong = fit_crowd(small, kind, line, strength=1e7)
    users, lengths = lists.users, lists.lengths
    sums = np.bincount(users, small.values - base, len(lengths))
    shrinkage = 1e7 if kind == "mean" else PULL  # intercepts have a shrinkage of their own
    expected = base + (sums / (lengths + shrinkage))[users]
    found = strong.predict(lists, features, OneByOne())
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_unless_it_is_told_another_the_strength_of_a_mean_is_the_pull(small):
    line = some_line(small)
    sums = np.bincount(small.user_codes, (small.values - base_of(line, small)) / 4)
    for strength, expected in ((None, PULL), (0.25, 0.25)):
        masks = fit_crowd(small, "mean", line, strength=strength)
        shrunk = sums / (np.diff(small.by_user) + expected)
        np.testing.assert_allclose(masks.theta[:, 0], shrunk, rtol=1e-5)
        assert (masks.strengths == expected).all()


@every_family
def test_strengths_are_the_plans_or_the_familys_or_the_pull(kind):
    family = FAMILIES[kind]
    default = PULL if kind == "mean" else family.default_strength
    assert MaskPlan(kind).strengths(PULL) == (default,)
    assert MaskPlan(kind, strength=3).strengths(PULL) == (3.0,)
    assert MaskPlan(kind, strength="auto").strengths(PULL) == family.strengths


@every_family
def test_ratings_in_blocks_are_masked_as_all_at_once(small, kind, monkeypatch):
    at_once = fit_crowd(small, kind, some_line(small))
    monkeypatch.setattr(fitting, "BLOCK", 7)
    in_blocks = fit_crowd(small, kind, some_line(small))
    for part in ("theta", "unit_fitted", "unit_held_out"):
        assert np.array_equal(getattr(at_once, part), getattr(in_blocks, part))


@pytest.mark.parametrize("kind", ["mean", "lr", "fm", "nn"])
def test_a_shift_of_ratings_and_line_shifts_the_mask(small, kind):
    scale = RatingScale(small.scale.min - 9, small.scale.max + 10, small.scale.step)  # no line ends
    lines = [some_line(small, level) for level in (3.2, 4.2)]
    low = fit_crowd(replaced(small, small.values, scale=scale), kind, lines[0])
    high = fit_crowd(replaced(small, small.values + 1, scale=scale), kind, lines[1])
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
    line = some_line(small)
    crowd = fit_crowd(small, kind, line)
    together = FittedMasks.together([fit_alone(small, user, kind, line) for user in range(60)])
    assert together.population is crowd.population is line
    assert np.array_equal(together.indptr, crowd.indptr)
    np.testing.assert_allclose(together.theta, crowd.theta, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(together.j_train, crowd.j_train, rtol=1e-6)
    np.testing.assert_allclose(together.variances, crowd.variances, rtol=1e-9)
    np.testing.assert_allclose(together.masked_ratings, crowd.masked_ratings, atol=1e-5)


@every_family
def test_a_family_says_how_many_parameters_it_has(small, kind):
    family, features = FAMILIES[kind], content_features(small)
    assert family.name == kind
    assert fit_crowd(small, kind).theta.shape == (60, family.n_parameters(features.shape[1]))
    if kind == "mean":
        assert family.default_strength is None  # the shrinkage
    else:
        assert family.default_strength > 0
    assert min(family.strengths) > 0


def test_an_unknown_mask_is_named():
    with pytest.raises(UnknownNameError, match="no mask called 'gp'; there are none, mean, lr"):
        FAMILIES["gp"]


@every_family
def test_one_user_through_the_catalogue_is_what_pairs_give(small, kind):
    masks, features = fit_crowd(small, kind, some_line(small)), content_features(small)
    everybody = np.arange(masks.theta.shape[0] + 1) * small.n_items
    lists = RatedItems(everybody, np.tile(np.arange(small.n_items), len(masks.theta)))
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


@pytest.fixture
def own_mask():
    """Register a mask of somebody's own, made from parts of the mean."""
    made = []

    def register(**parts):
        FAMILIES.register("own", replace(FAMILIES["mean"], name="own", helpers=None, **parts))
        made.append("own")

    yield register
    for name in made:
        FAMILIES.unregister(name)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"fit": lambda x, y, strength, pull: np.full(1, np.nan)},
            "finite numbers from fit; got nan",
        ),
        (
            {"predict": lambda x, theta: np.full(len(x), np.inf)},
            "finite numbers from predict; got inf",
        ),
        ({"fit": lambda x, y, strength, pull: np.zeros(3)}, r"shape \(1,\) from fit.*; got \(3,\)"),
        ({"fit": lambda x, y, strength, pull: 0.5}, r"shape \(1,\) from fit.*; got \(\)"),
        ({"predict": lambda x, theta: theta}, r"shape \(\d+,\) from predict.*; got \(1,\)"),
        ({"predict": lambda x, theta: x @ np.ones((x.shape[1], 2))}, r"predict.*; got \(\d+, 2\)"),
    ],
)
def test_a_mask_of_ones_own_that_is_wrong_is_named_with_what_was_required(
    small, own_mask, parts, words
):
    own_mask(**parts)
    with pytest.raises(SettingsError, match=f"the mask 'own' must return .*{words}"):
        FedMMF(mask="own", rounds=2, factors=2).fit(small)


def test_a_mask_that_fails_for_a_later_user_is_named_too(small, own_mask):
    sizes = np.diff(small.by_user)
    assert sizes[0] < sizes.max()
    own_mask(fit=lambda x, y, *rest: np.full(1, np.nan if len(y) == sizes.max() else 0.0))
    with pytest.raises(SettingsError, match="the mask 'own' must return finite numbers from fit"):
        FedMMF(mask="own", rounds=2, factors=2, held_out=0.0).fit(small)
