"""Models that rank, models of what was chosen, of levels, and of people: as a user meets them."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, RatingScale
from fedmmf.data import UserProfiles
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import DataError, SettingsError
from fedmmf.model.evaluation import rmse
from fedmmf.model.lists import what_ranks
from fedmmf.reports.results import TrainResult
from fedmmf.solvers.vb import VB
from fedmmf.solvers.vb.ordinal import expected_rating

from .conftest import base_of, effects_on_strangers

QUICK = {"factors": 4, "rounds": 12}


@pytest.fixture(scope="module")
def parts(small):
    return small.split(0.3, seed=1)


@pytest.fixture(scope="module")
def ranking(parts):
    return FedMMF(objective="ranking", mask="mean", **QUICK).fit(parts[0])


@pytest.fixture(scope="module")
def chosen(parts):
    """What was chosen, without ratings: to train on and to test on."""
    return tuple(part.as_implicit() for part in parts)


@pytest.fixture(scope="module")
def implicit(chosen):
    return FedMMF(objective="ranking", mask="none", **QUICK).fit(chosen[0])


@pytest.fixture(scope="module")
def peopled(parts):
    """The same ratings, by users of whom two things are known, whose means are not 0."""
    known = np.random.default_rng(2).normal((1.0, -2.0), 1.0, (parts[0].n_users, 2))
    return parts[0].with_profiles(UserProfiles(("age", "height"), known))


@pytest.fixture(scope="module")
def ordinal(parts):
    return FedMMF(solver="vb", likelihood="ordinal", mask="lr", **QUICK).fit(parts[0])


def scores_of(model, user):
    """q_i . p_u + f_u(i) of the whole catalogue, by the formula; the mask is mean or none."""
    learned = model.learned
    mask = 0.0
    if learned.mask == "mean":
        mask = base_of(learned)[0] + learned.scale.span * learned.theta[user, 0]
    return learned.item_factors[:-1] @ learned.user_factors[user] + mask


def read_back(model, tmp_path):
    model.save(tmp_path / "model")
    return FedMMF.load(tmp_path / "model")


# Ranking


def test_who_wants_lists_gets_a_solver_that_can():
    model = FedMMF(objective="ranking")
    assert (model.settings.solver, model.settings.objective) == ("vb", "ranking")
    assert repr(model) == "FedMMF(solver='vb', objective='ranking')"
    assert FedMMF(**model.get_params()).get_params() == model.get_params()
    assert FedMMF().set_params(objective="ranking").settings.solver == "vb"
    with pytest.raises(SettingsError, match="objective 'ranking' needs solver 'vb'; got 'sgd'"):
        FedMMF(objective="ranking", solver="sgd")
    assert what_ranks(model.settings) == ""


def test_predictions_of_a_model_that_ranks_are_scores(ranking, parts):
    """By the formula, and not clipped: what was not rated counts as the lowest rating."""
    train = parts[0]
    for user in (0, 7):
        ids = np.repeat(train.user_ids[user], train.n_items)
        found = ranking.predict(ids, train.item_ids)
        np.testing.assert_allclose(found, scores_of(ranking, user), rtol=1e-4, atol=1e-4)
    users, items = np.divmod(np.arange(train.n_users * train.n_items), train.n_items)
    everything = ranking.predict(train.user_ids[users], train.item_ids[items])
    assert everything.min() < train.scale.min
    rated = ranking.predict(train.user_ids[train.user_codes], train.item_ids[train.item_codes])
    assert rated.mean() > everything.mean() + 0.3


def test_a_model_that_ranks_is_judged_by_its_lists_alone(ranking, parts):
    found = ranking.evaluate(parts[1])
    assert set(found) == {"ranking"}
    scores = found["ranking"]
    assert scores.relevant_from == 4.0
    assert scores.metrics() == ranking.evaluate(parts[1], top=10)["ranking"].metrics()
    assert "ndcg_at_5" in ranking.evaluate(parts[1], top=5)["ranking"].metrics()
    assert ranking.evaluate(parts[1], relevant_from=3)["ranking"].relevant_from == 3.0
    with pytest.raises(SettingsError, match="top must be at least 1"):
        ranking.evaluate(parts[1], top=0)


def test_a_model_of_ratings_has_errors_and_lists_where_asked(parts):
    model = FedMMF(solver="vb", mask="mean", **QUICK).fit(parts[0])
    assert set(model.evaluate(parts[1])) == {"rmse", "mae"}
    assert set(model.evaluate(parts[1], top=3)) == {"rmse", "mae", "ranking"}


def test_lists_of_a_model_that_ranks_are_in_the_order_of_its_scores(ranking, parts):
    train = parts[0]
    best = ranking.recommend(train.user_ids[4], n=8)
    scores = scores_of(ranking, 4)
    scores[train.item_codes[train.user_codes == 4]] = -np.inf
    order = np.argsort(-scores, kind="stable")[:8]
    assert best["item_id"].to_list() == train.item_ids[order].tolist()
    np.testing.assert_allclose(best["prediction"], scores[order], rtol=1e-4, atol=1e-4)
    shown = ranking.predict(np.repeat(train.user_ids[4], 8), best["item_id"].to_numpy())
    np.testing.assert_allclose(best["prediction"], shown, rtol=1e-4, atol=1e-4)


def test_a_summary_of_a_model_that_ranks_has_no_errors(ranking, parts):
    found = ranking.summary(parts[1])
    assert (found.rmse, found.mae, tuple(found.baselines)) == (None, None, ())
    assert found.ranking is not None
    assert found.ranking.metrics() == ranking.evaluate(parts[1])["ranking"].metrics()
    assert found.settings["objective"] == "ranking"
    again = TrainResult.from_json_dict(found.to_json_dict())
    assert again.to_json_dict() == found.to_json_dict()
    alone = ranking.summary()
    assert (alone.rmse, alone.ranking) == (None, None)


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
def test_a_saved_model_that_ranks_does_so_again(parts, tmp_path, mask):
    train, test = parts
    model = FedMMF(objective="ranking", mask=mask, **QUICK).fit(train)
    again = read_back(model, tmp_path)
    assert again.learned.objective == "ranking"
    assert again.learned.update_shape == model.learned.update_shape
    users, items = train.user_ids[[0, 5, 9]], train.item_ids[[3, 80, 2]]
    assert np.array_equal(again.predict(users, items), model.predict(users, items))
    assert again.evaluate(test) == model.evaluate(test)
    assert again.recommend(users[1]).equals(model.recommend(users[1]))
    given = dict.fromkeys(train.item_ids[:5].tolist(), 5.0)
    found, expected = (one.join(given).predict(items) for one in (again, model))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "settings",
    [
        {"mask": "none"},
        {"mask": "mean"},
        {"mask": "lr"},
        {"mask": "mean", "ensemble": 2},
        {"mask": "lr", "item_statistics": True},
    ],
)
def test_who_joins_a_model_that_ranks_gets_scores_and_lists(parts, settings):
    """With the ratings of somebody who was there: nearly that user's list."""
    train = parts[0]
    model = FedMMF(objective="ranking", **QUICK, **settings).fit(train)
    overlaps = []
    for user in range(0, 60, 6):
        mine = train.user_codes == user
        items, values = train.item_ids[train.item_codes[mine]].tolist(), train.values[mine]
        newcomer = model.join(dict(zip(items, values.tolist(), strict=True)))
        best = newcomer.recommend(10)
        assert not set(best["item_id"]) & set(items)
        assert best["prediction"].to_list() == sorted(best["prediction"], reverse=True)
        shown = newcomer.predict(best["item_id"].to_numpy())
        np.testing.assert_allclose(best["prediction"], shown, rtol=1e-5)
        theirs = model.recommend(train.user_ids[user], n=10)["item_id"]
        overlaps.append(len(set(best["item_id"]) & set(theirs)) / 10)
    assert np.mean(overlaps) > 0.8


def test_models_that_rank_beat_popularity_and_models_of_ratings(ml_100k):
    train, test = ml_100k.split(test=0.2, seed=0)
    found = {}
    for objective in ("rating", "ranking"):
        model = FedMMF(mask="mean", solver="vb", objective=objective, factors=10).fit(train)
        found[objective] = model.evaluate(test, top=10)["ranking"]
    popular = found["ranking"].popularity.ndcg_at_10
    assert found["rating"].ndcg_at_10 < popular
    assert found["ranking"].ndcg_at_10 > 1.8 * popular


# What was chosen


def test_what_was_chosen_has_no_ratings_to_predict(chosen):
    for settings in ({}, {"solver": "vb"}, {"objective": "rating"}):
        with pytest.raises(SettingsError, match=r"has no ratings to predict, .*rank instead"):
            FedMMF(**QUICK, **settings).fit(chosen[0])


def test_what_was_chosen_is_ranked(implicit, chosen):
    """Above what was not, for nearly every user; and better than popularity in the test."""
    train, test = chosen
    assert implicit.learned.scale == RatingScale(0, 1, 1)
    better = []
    for user in range(train.n_users):
        scores, mine = scores_of(implicit, user), train.item_codes[train.user_codes == user]
        others = np.setdiff1d(np.arange(train.n_items), mine)
        better.append(scores[mine].mean() > scores[others].mean() + 0.05)
    assert np.mean(better) > 0.95
    found = implicit.evaluate(test)
    assert set(found) == {"ranking"}
    assert found["ranking"].n_users == len(np.unique(test.user_codes))
    assert found["ranking"].hit_rate_at_10 > 0.3


def test_who_is_unknown_to_a_model_of_what_was_chosen_is_the_mean_user(implicit, chosen):
    """As large as all users are: scores that only rank have no level."""
    learned = implicit.learned
    (member,) = learned.members
    mean = member.user_factors.mean(axis=0, dtype=np.float64)
    assert np.abs(mean[1:]).max() > 0.01
    np.testing.assert_allclose(learned.user_factors[-1], mean, rtol=1e-5)
    found = implicit.predict(["nobody"] * learned.n_items, chosen[0].item_ids)
    np.testing.assert_allclose(found, member.broadcast.item_factors @ mean, rtol=1e-4, atol=1e-6)


def test_a_model_of_what_was_chosen_is_saved_and_joined(implicit, chosen, tmp_path):
    train = chosen[0]
    again = read_back(implicit, tmp_path)
    user = train.user_ids[11]
    assert again.recommend(user).equals(implicit.recommend(user))
    mine = train.item_ids[train.item_codes[train.user_codes == 11]].tolist()
    newcomer = again.join(dict.fromkeys(mine, 1.0))
    theirs = set(implicit.recommend(user)["item_id"])
    assert len(theirs & set(newcomer.recommend(10)["item_id"])) >= 8
    with pytest.raises(DataError, match=r"on the scale 0\.\.1"):
        again.join(dict.fromkeys(mine, 5.0))


# People


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": "vb", "mask": "mean"},
        {"solver": "vb", "mask": "mean", "likelihood": "ordinal"},
        {"objective": "ranking", "mask": "mean"},
        {"solver": "vb", "mask": "mean", "ensemble": 2},
    ],
)
def test_a_stranger_is_the_mean_of_all_users(peopled, settings):
    """Profiles say what they can of users; of somebody without one, all users say more."""
    model = FedMMF(**QUICK, **settings).fit(peopled)
    learned, item = model.learned, 3
    assert learned.update_shape.n_profile == 2
    scores = []
    for member in learned.members:
        parts = learned.update_shape.blocks["parameters"].split(member.broadcast.parameters)
        weights = parts["user_weights"].reshape(-1, learned.update_shape.rank)[-2:]
        mean = parts["profile_mean"]
        np.testing.assert_allclose(mean, peopled.profiles.values.mean(axis=0), atol=1e-3)
        of_mean_profile = np.eye(len(weights[0]))[0] + mean @ weights
        default_user = member.user_factors.mean(axis=0, dtype=np.float64)
        k = learned.update_shape.rank
        assert np.abs(default_user[:k] - of_mean_profile).max() > 0.01
        np.testing.assert_allclose(parts["mean_user"], default_user[:k], rtol=1e-5)
        np.testing.assert_allclose(parts["joint_mean"], default_user[k:], rtol=1e-5, atol=1e-6)
        told = VB.default_user(learned.update_shape, member.broadcast)
        np.testing.assert_allclose(told, default_user, rtol=1e-5, atol=1e-6)
        factors = np.append(member.broadcast.item_factors[item], np.ones(len(default_user) - k))
        scores.append(factors @ default_user)
    score = base_of(learned)[item] + np.mean(scores) + effects_on_strangers(learned)[item]
    expected = learned.shown(np.array([score]))
    found = model.predict(["nobody"], [peopled.item_ids[item]])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("settings", [{}, {"likelihood": "ordinal"}, {"objective": "ranking"}])
@pytest.mark.parametrize("engine", ["numba", "numpy"])
def test_a_newcomer_needs_no_profile(peopled, settings, engine, tmp_path):
    """And is served nearly as somebody with the same ratings whose profile is known."""
    model = FedMMF(solver="vb", mask="mean", engine=engine, **QUICK, **settings).fit(peopled)
    differences = []
    for user in range(0, 60, 10):
        mine = peopled.user_codes == user
        items, values = peopled.item_ids[peopled.item_codes[mine]], peopled.values[mine]
        given = dict(zip(items.tolist(), values.tolist(), strict=True))
        found = model.join(given).predict(peopled.item_ids)
        assert np.isfinite(found).all()
        ids = np.repeat(peopled.user_ids[user], peopled.n_items)
        differences.append(rmse(model.predict(ids, peopled.item_ids), found))
    assert max(differences) < 0.35
    again = read_back(model, tmp_path)
    assert np.array_equal(again.join(given).predict(peopled.item_ids), found)


# Levels


def test_predictions_of_levels_are_means_over_the_scale(ordinal, parts):
    """On the scale by themselves, and by the formula with the public cut points."""
    train, test = parts
    learned = ordinal.learned
    assert learned.update_shape.n_levels == 5
    numbers = learned.update_shape.blocks["parameters"].split(
        learned.members[0].broadcast.parameters
    )
    users, items = np.divmod(np.arange(train.n_users * train.n_items), train.n_items)
    found = ordinal.predict(train.user_ids[users], train.item_ids[items])
    assert found.min() >= 1.0
    assert found.max() <= 5.0
    assert ((found > 1.0) & (found < 5.0)).mean() > 0.99  # a mean is at an end where all is
    scores = learned.scorer(np.arange(train.n_items))(7)
    expected = expected_rating(scores, numbers["cuts"], float(numbers["tau"][0]), train.scale)
    np.testing.assert_allclose(found[users == 7], expected, rtol=1e-4)
    assert not np.allclose(numbers["cuts"], [1.5, 2.5, 3.5, 4.5])
    accuracy = ordinal.evaluate(test)
    gaussian = FedMMF(solver="vb", mask="lr", **QUICK).fit(train).evaluate(test)
    assert accuracy["rmse"] == pytest.approx(gaussian["rmse"], rel=0.05)


def test_lists_of_levels_are_in_the_order_of_scores(ordinal, parts):
    best = ordinal.recommend(parts[0].user_ids[3], n=10)
    predicted = best["prediction"].to_list()
    assert predicted == sorted(predicted, reverse=True)
    assert max(predicted) < 5.0


@pytest.mark.parametrize("ensemble", [1, 2])
def test_a_saved_model_of_levels_predicts_the_same(parts, tmp_path, ensemble):
    train = parts[0]
    settings = {"solver": "vb", "likelihood": "ordinal", "mask": "mean", "ensemble": ensemble}
    model = FedMMF(**settings, **QUICK).fit(train)
    again = read_back(model, tmp_path)
    users, items = train.user_ids[[0, 5, 9]], train.item_ids[[3, 80, 2]]
    assert np.array_equal(again.predict(users, items), model.predict(users, items))
    strange = again.predict(["nobody", users[0]], [items[0], 10**6])
    assert ((strange > 1) & (strange < 5)).all()
    given = dict(zip(items.tolist(), [5.0, 1.0, 4.0], strict=True))
    found, expected = (one.join(given).predict(train.item_ids) for one in (again, model))
    assert np.array_equal(found, expected)
    assert ((found >= 1) & (found <= 5)).all()


def test_who_joins_a_model_of_levels_is_served_like_the_others(ordinal, parts):
    train = parts[0]
    for user in range(0, 60, 12):
        mine = train.user_codes == user
        items, values = train.item_ids[train.item_codes[mine]], train.values[mine]
        newcomer = ordinal.join(dict(zip(items.tolist(), values.tolist(), strict=True)))
        theirs = ordinal.predict(np.repeat(train.user_ids[user], train.n_items), train.item_ids)
        assert rmse(theirs, newcomer.predict(train.item_ids)) < 0.3


@pytest.mark.parametrize(
    ("scale", "n_levels"), [(RatingScale(0.5, 5, 0.5), 10), (RatingScale(0, 1, 1), 2)]
)
def test_levels_are_those_of_the_scale(scale, n_levels):
    ratings = synthetic(60, 90, 1800, seed=3, scale=scale)
    model = FedMMF(solver="vb", likelihood="ordinal", mask="mean", **QUICK).fit(ratings)
    assert model.learned.update_shape.n_levels == n_levels
    found = model.evaluate(ratings)
    spread = float(np.std(ratings.values))
    assert found["rmse"] < spread
    predicted = model.predict(ratings.user_ids[ratings.user_codes[:500]],
                              ratings.item_ids[ratings.item_codes[:500]])  # fmt: skip
    assert scale.min <= predicted.min() <= predicted.max() <= scale.max


def test_numbers_that_are_no_levels_are_refused(small):
    fine = small.with_scale(RatingScale(1, 5, 0.0005))
    with pytest.raises(SettingsError, match=r"4,096 levels at most; 1\.\.5 .* has 8,001"):
        FedMMF(solver="vb", likelihood="ordinal", **QUICK).fit(fine)


@pytest.mark.parametrize(
    "settings", [{"objective": "ranking"}, {"solver": "vb", "likelihood": "ordinal"}]
)
def test_a_real_run_gives_what_the_simulation_gives(settings):
    few = synthetic(12, 20, 200, seed=4, min_per_user=8)
    chosen = {"mask": "mean", "factors": 2, "rounds": 11, **settings}
    simulated, real = (FedMMF(**chosen).fit(few, real=is_real) for is_real in (False, True))
    users, items = few.user_ids[few.user_codes], few.item_ids[few.item_codes]
    np.testing.assert_allclose(
        real.predict(users, items), simulated.predict(users, items), rtol=1e-4, atol=1e-4
    )


# What people have their ratings in


def test_who_joins_brings_a_dictionary_or_a_frame(ranking, parts):
    items = parts[0].item_ids[:5].tolist()
    ratings = dict(zip(items, [5.0, 4.0, 1.0, 2.0, 3.0], strict=True))
    frame = pl.DataFrame({"item_id": items, "rating": list(ratings.values())})
    expected = ranking.join(ratings).recommend(4)["item_id"].to_list()
    for given in (frame, frame.to_pandas()):
        assert ranking.join(given).recommend(4)["item_id"].to_list() == expected
    with pytest.raises(DataError, match=r"a dictionary, rating by item, a frame .* got list"):
        ranking.join(items)
    with pytest.raises(DataError, match="missing: rating; arrived: item_id"):
        ranking.join(frame.drop("rating"))


def test_who_joins_a_model_of_what_was_chosen_brings_items(implicit, chosen):
    items = chosen[0].item_ids[:5].tolist()
    assert implicit.learned.is_implicit
    expected = implicit.join(dict.fromkeys(items, 1.0)).recommend(4)["item_id"].to_list()
    assert implicit.join(items).recommend(4)["item_id"].to_list() == expected
    rated = pl.DataFrame({"item_id": items, "rating": [5.0, 4.0, 1.0, 2.0, 3.0]})
    assert implicit.join(rated).recommend(4)["item_id"].to_list() == expected
    with pytest.raises(DataError, match="got str"):
        implicit.join("item")


@pytest.mark.parametrize("value", [-3.5, 5.5, 99.0])
def test_an_unrated_item_counts_as_a_low_rating(small, value):
    with pytest.raises(SettingsError, match=r"between -3 and 5 on the scale 1\.\.5"):
        FedMMF(objective="ranking", mask="mean", unrated_value=value, **QUICK).fit(small)


@pytest.mark.parametrize("factor", [1e-4, 1e5])
def test_scales_that_sums_have_no_digits_for_are_refused(small, factor):
    scale = RatingScale(factor, 5 * factor, factor)
    scaled = replace(small, values=(factor * small.values).astype(np.float32), scale=scale)
    with pytest.raises(SettingsError, match=r"span between 0.001 and 10000.* Divide the ratings"):
        FedMMF(mask="mean", solver="vb", **QUICK).fit(scaled)


@pytest.mark.parametrize("shift", [-50.0, 90.0])
def test_ratings_far_from_zero_are_learned_without_a_mask(small, shift):
    """What an item starts from is no limit of what it may be."""
    scale = RatingScale(1 + shift, 5 + shift, 1)
    moved = replace(small, values=small.values + np.float32(shift), scale=scale)
    found, usual = (
        FedMMF(mask="none", solver="vb", **QUICK).fit(part).evaluate(part)["rmse"]
        for part in (moved, small)
    )
    assert found < 1.1 * usual
