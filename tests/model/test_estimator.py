"""The estimator as a Python user meets it."""

import dataclasses
import inspect
import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

from fedmmf import FedMMF, Ratings, RatingScale, Settings, load
from fedmmf.cli.app import app
from fedmmf.errors import (
    CheckpointError,
    DataError,
    NotFittedError,
    SettingsError,
)
from fedmmf.reports.results import PrivacyGroups, ProtocolCost, RoundTraffic, TrainResult
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.sgd import AllUsers
from fedmmf.storage import checkpoints

from .conftest import base_of, effects_on_strangers


@pytest.fixture(scope="module")
def model(small):
    return FedMMF(mask="lr", factors=4, rounds=20).fit(small)


def test_settings_come_and_go():
    model = FedMMF(factors=7, mask="fm")
    assert model.get_params()["factors"] == 7
    assert FedMMF(**model.get_params()).get_params() == model.get_params()
    assert model.set_params(factors=9) is model
    assert repr(model) == "FedMMF(mask='fm', factors=9)"
    with pytest.raises(SettingsError, match="unknown setting 'k'"):
        model.set_params(k=3)
    assert list(inspect.signature(FedMMF).parameters) == list(Settings.model_fields)


def test_an_unfitted_model_says_so(small):
    for use in (lambda m: m.evaluate(small), lambda m: m.recommend(1), lambda m: m.save("x")):
        with pytest.raises(NotFittedError, match="call fit"):
            use(FedMMF())


def test_changing_settings_forgets_what_was_learned(small):
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(small)
    with pytest.raises(NotFittedError):
        model.set_params(factors=3).predict(1, 1)


def test_predictions_are_the_formula(model, small):
    """q_i . p_u + f_u(i), clipped, in whatever order the pairs come."""
    learned, base = model.learned, base_of(model.learned)
    assert len(learned.line) > 1
    assert base.std() > 0.01
    users, items = np.array([5, 0, 5, 59]), np.array([3, 3, 80, 0])
    slow = []
    for u, i in zip(users, items, strict=True):
        theta, x = learned.theta[u], learned.features[i]
        f = base[i] + 4.0 * (theta[0] + theta[1:] @ x)
        slow.append(np.clip(model.item_factors[i] @ model.user_factors[u] + f, 1, 5))
    predicted = model.predict(small.user_ids[users], small.item_ids[items])
    np.testing.assert_allclose(predicted, slow, rtol=1e-5)


def test_evaluation_is_over_pairs(model, small):
    predicted = model.predict(small.user_ids[small.user_codes], small.item_ids[small.item_codes])
    error = small.values - predicted
    scores = model.evaluate(small)
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-6)
    assert scores["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-6)


def test_evaluation_finds_ids_in_other_vocabularies(model, small):
    frame = small.to_frame().filter(pl.col("user_id") > 30)
    part = Ratings.from_frame(frame, scale=small.scale)
    direct = model.predict(frame["user_id"].to_numpy(), frame["item_id"].to_numpy())
    expected = np.sqrt(np.mean((frame["rating"].to_numpy() - direct) ** 2))
    assert model.evaluate(part)["rmse"] == pytest.approx(expected, rel=1e-6)


def test_strangers_and_unknown_items_have_a_documented_answer(model, small):
    known_user, known_item = small.user_ids[0], small.item_ids[0]
    default_user = model.predict(10**6, known_item)[0]
    base, features = base_of(model.learned), model.learned.features
    assert abs(base.mean() - small.values.mean()) < 0.2
    assert base.std() > 0.01
    (member,) = model.learned.members
    somebody = AllUsers.of(member.broadcast).mean  # as the round before the last summed them
    np.testing.assert_allclose(somebody, member.user_factors.mean(axis=0), atol=0.02)
    assert np.abs(somebody[1:]).max() > 1e-3
    score = model.item_factors[0] @ somebody
    assert default_user == pytest.approx(np.clip(base[0] + score, 1, 5), rel=1e-6)
    # An unknown item is a mean one: of features, and of factors.
    np.testing.assert_allclose(features[-1], features[:-1].mean(axis=0))
    unknown = model.learned.item_factors[-1]
    np.testing.assert_allclose(unknown, model.item_factors.mean(axis=0), atol=1e-6)
    nobody = model.predict("nobody", "nothing")[0]
    assert nobody == pytest.approx(base[-1] + unknown @ somebody, rel=1e-6)
    theta = model.learned.theta[0]
    mask = base[-1] + 4.0 * (theta[0] + features[-1] @ theta[1:])
    average = model.predict(known_user, 10**6)[0]
    assert average == pytest.approx(mask + unknown @ model.user_factors[0], rel=1e-6)
    mixed = model.predict(["nobody", str(known_user)], [known_item] * 2)
    assert mixed.tolist() == [default_user, model.predict(known_user, known_item)[0]]


@pytest.mark.parametrize("mask", ["none", "mean", "lr"])
@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_who_has_rated_nothing_is_a_stranger(small, solver, mask):
    model = FedMMF(mask=mask, solver=solver, factors=3, rounds=6, ensemble=2)
    learned = model.fit(small.select(small.user_codes != 5)).learned
    assert learned.n_users == small.n_users
    assert np.array_equal(learned.user_factors[5], learned.user_factors[-1])
    (others,) = np.where(np.arange(small.n_users) != 5)
    trained = np.hstack([member.user_factors for member in learned.members])
    assert np.array_equal(learned.user_factors[others], trained[others])
    assert not np.isclose(trained[others, 1], learned.user_factors[-1, 1], rtol=1e-3).any()
    assert not learned.theta[5].any()
    found = model.predict(np.repeat(small.user_ids[5], small.n_items), small.item_ids)
    expected = model.predict(["nobody"] * small.n_items, small.item_ids)
    assert np.array_equal(found, expected)
    assert found.std() > 0.01


@pytest.mark.parametrize(
    "settings", [{"solver": "sgd"}, {"solver": "vb"}, {"solver": "vb", "ensemble": 2}]
)
def test_without_masks_strangers_give_what_users_give(small, settings):
    """The mean user, made so much larger or smaller; their mean is over what was rated."""
    model = FedMMF(mask="none", factors=4, rounds=12, **settings).fit(small)
    learned, k = model.learned, model.learned.update_shape.rank
    of_users = np.bincount(small.user_codes, small.values) / np.diff(small.by_user)
    assert learned.line == pytest.approx(of_users.mean(), abs=0.05)  # some are held out
    solver = SOLVERS[learned.solver]
    effects = effects_on_strangers(learned)
    for number, member in enumerate(learned.members):
        default_user = learned.user_factors[-1, number * k : (number + 1) * k]
        given = member.broadcast.item_factors @ default_user + effects
        assert given[small.item_codes].mean() == pytest.approx(learned.line[0], rel=1e-5)
        mean = solver.default_user(learned.update_shape, member.broadcast)
        larger = default_user[0] / mean[0]
        assert abs(larger - 1) > 1e-4
        np.testing.assert_allclose(default_user, larger * mean, rtol=1e-5, atol=1e-6)
    found = model.predict(["nobody"] * small.n_items, small.item_ids)
    scores = learned.item_factors[:-1] @ learned.user_factors[-1]
    expected = np.clip(scores + effects, 1, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_pairs_must_match(model):
    with pytest.raises(SettingsError, match="lists of one length"):
        model.predict([1, 2], [1])


SGD = {"solver": "sgd"}
VB = {"solver": "vb", "factors": 8}


@pytest.mark.parametrize(
    ("mask", "settings"),
    [
        ("none", SGD),
        ("none", {"biases": True}),
        ("mean", SGD),
        ("lr", SGD),
        ("fm", SGD),
        ("nn", SGD),
        ("none", VB),
        ("mean", VB),
        ("lr", {**VB, "ensemble": 2}),
        ("lr", {"item_statistics": True}),
    ],
)
def test_who_joins_later_is_served_like_the_others(mask, settings):
    """Fold in half of a user's ratings; predict the other half better than the user's mean does."""
    ratings = load("synthetic")
    newcomers = np.arange(0, ratings.n_users, 12)
    is_new = np.isin(ratings.user_codes, newcomers)
    model = FedMMF(mask=mask, **settings).fit(ratings.select(~is_new))
    model_errors, mean_errors = [], []
    for user in newcomers:
        mine = np.flatnonzero(ratings.user_codes == user)
        known, hidden = mine[::2], mine[1::2]
        given = dict(
            zip(ratings.item_ids[ratings.item_codes[known]], ratings.values[known], strict=True)
        )
        newcomer = model.join(given)
        predicted = newcomer.predict(ratings.item_ids[ratings.item_codes[hidden]])
        model_errors.extend(ratings.values[hidden] - predicted)
        mean_errors.extend(ratings.values[hidden] - ratings.values[known].mean())
        assert not set(newcomer.recommend(5)["item_id"]) & set(given)
    assert np.mean(np.square(model_errors)) < 0.9 * np.mean(np.square(mean_errors))


@pytest.mark.parametrize("sharing", ["strict", "adaptive"])
@pytest.mark.parametrize("mask", ["mean", "lr"])
def test_a_newcomers_mask_shrinks_towards_what_users_have_in_common(small, tmp_path, mask, sharing):
    """As that of somebody with the same ratings did, who was there."""
    model = FedMMF(mask=mask, sharing=sharing, factors=2, rounds=1, held_out=0.0).fit(small)
    model.save(tmp_path / "model")
    again = FedMMF.load(tmp_path / "model")
    for user in (3, 17):
        mine = small.user_codes == user
        given = dict(zip(small.item_ids[small.item_codes[mine]], small.values[mine], strict=True))
        newcomer = again.join(given)
        newcomer.predict(small.item_ids[:1])
        masks = newcomer.party.masks
        np.testing.assert_allclose(masks.theta[0], model.learned.theta[user], rtol=1e-6, atol=1e-9)
        assert masks.population.is_like(model.learned.population)


def test_items_that_the_model_does_not_know_are_counted_and_left_out(model, small, caplog):
    first, second = small.item_ids[:2].tolist()
    joined = model.join({999_999: 9.0, second: 2.0, first: 4.0, 999_998: 3.0})
    (line,) = caplog.messages
    assert line.startswith("2 of 4 rated items are unknown to the model and left out, such as 9999")
    alone = model.join({first: 4.0, second: 2.0})
    np.testing.assert_array_equal(joined.predict(small.item_ids), alone.predict(small.item_ids))


def test_a_newcomers_mistakes_are_named(model, small):
    item = int(small.item_ids[0])
    with pytest.raises(DataError, match=r"none is known of: 999999, 999998\. Use the ids"):
        model.join({999_999: 4.0, 999_998: 3.0})
    with pytest.raises(DataError, match="none is known of: no rating"):
        model.join({})
    two = pl.DataFrame({"user_id": [1, 2], "item_id": [item, item], "rating": [4.0, 1.0]})
    with pytest.raises(DataError, match="of one person; its user_id has 2 values"):
        model.join(two)
    for value in (9.0, float("nan")):
        with pytest.raises(DataError, match="must be on the scale"):
            model.join({item: value})


def test_an_ensemble_predicts_the_mean_of_its_runs(small):
    ensemble = FedMMF(mask="mean", solver="vb", factors=3, rounds=5, ensemble=3).fit(small)
    learned = ensemble.learned
    assert not learned.theta.any()  # a joint mask: what is a user's own belongs to p_u
    scores = [
        member.broadcast.item_factors[7] @ member.user_factors[2, :4] + member.user_factors[2, 4]
        for member in learned.members
    ]
    expected = np.clip(base_of(learned)[7] + np.mean(scores), 1, 5)
    predicted = ensemble.predict(small.user_ids[2], small.item_ids[7])[0]
    assert predicted == pytest.approx(expected, rel=1e-5)


def test_a_saved_ensemble_predicts_the_same(small, tmp_path):
    model = FedMMF(mask="lr", solver="vb", factors=3, rounds=5, ensemble=2).fit(small)
    model.save(tmp_path / "model.fedmmf")
    assert FedMMF.load(tmp_path / "model.fedmmf").evaluate(small) == model.evaluate(small)


def test_a_saved_model_predicts_the_same(model, small, tmp_path):
    model.save(tmp_path / "model.fedmmf")
    again = FedMMF.load(tmp_path / "model.fedmmf")
    assert again.get_params() == model.get_params()
    assert again.evaluate(small) == model.evaluate(small)
    assert again.recommend(small.user_ids[3]).equals(model.recommend(small.user_ids[3]))
    assert again.privacy() == model.privacy()
    assert again.traffic() == model.traffic()
    assert again.cost() == model.cost()
    assert again.learned.is_simulated
    assert again.tradeoff() == model.tradeoff()


def test_text_ids_work(tmp_path):
    frame = pl.DataFrame(
        {
            "user_id": ["ann", "bob", "ann", "eve"],
            "item_id": ["x", "x", "yy", "yy"],
            "rating": [1, 5, 4, 2],
        }
    )
    model = FedMMF(mask="mean", factors=2, rounds=3, min_raters=1).fit(Ratings.from_frame(frame))
    model.save(tmp_path / "m")
    again = FedMMF.load(tmp_path / "m")
    assert again.recommend("bob")["item_id"].to_list() == ["yy"]
    assert again.predict(["ann", "anna"], ["x", "yyy"]).shape == (2,)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="there is no model at"):
        FedMMF.load(tmp_path / "nothing")
    (tmp_path / "noise").write_bytes(b"noise")
    with pytest.raises(CheckpointError, match="is not a fedmmf model"):
        FedMMF.load(tmp_path / "noise")


@pytest.mark.parametrize("missing", ["engine", "scale", "settings"])
def test_a_file_of_another_version_says_so(model, tmp_path, missing):
    """Version 0.1 wrote models without an engine, for one."""
    arrays, about = model.learned.to_arrays()
    meta = {"kind": "model", "version": "0.0.9", "settings": model.get_params(), **about}
    del meta[missing]
    checkpoints.save(tmp_path / "older", arrays, meta)
    with pytest.raises(CheckpointError, match=rf"another version .*0\.0\.9.* no '{missing}'"):
        FedMMF.load(tmp_path / "older")


def test_a_file_without_an_array_says_so(model, tmp_path):
    arrays, about = model.learned.to_arrays()
    del arrays["variances"]
    meta = {"kind": "model", "version": "0.0.9", "settings": model.get_params(), **about}
    checkpoints.save(tmp_path / "older", arrays, meta)
    with pytest.raises(CheckpointError, match="no 'variances'"):
        FedMMF.load(tmp_path / "older")


def test_privacy_counts_the_two_groups(model, small):
    j = model.learned.j_train
    privacy = model.privacy()
    assert isinstance(privacy, PrivacyGroups)
    assert privacy.secure_users == sum(value <= privacy.threshold_j for value in j)
    assert privacy.secure_users + privacy.insecure_users == small.n_users
    assert privacy.mean_j == pytest.approx(j.mean())
    assert privacy.mean_j < privacy.mean_j_out_of_fold
    assert privacy.users_in_clear == 0


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_j_stands_beside_the_variance_of_the_ratings_it_is_about(small, solver):
    """Of ratings less those held out; of all of them where masks belong to p_u."""
    values = small.values.copy()
    values[slice(*small.by_user[:2])] = 4.0  # somebody who never varies
    calm = dataclasses.replace(small, values=values)
    model = FedMMF(mask="lr", solver=solver, factors=2, rounds=2, held_out=0.0).fit(calm)
    learned, privacy = model.learned, model.privacy()
    variances = [np.var((values[calm.user_codes == user] - 1) / 4) for user in range(60)]
    np.testing.assert_allclose(learned.variances, variances, rtol=1e-6, atol=1e-12)
    assert learned.variances[0] == 0
    relative = [j / v for j, v in zip(learned.j_train[1:], variances[1:], strict=True)]
    assert privacy.mean_relative_j == pytest.approx(np.mean(relative))
    expected = spearmanr(learned.j_train, learned.variances).statistic
    assert privacy.j_follows_variance == pytest.approx(expected)
    assert 0.5 < expected < 1


def test_where_nobody_varies_j_is_relative_to_nothing(small):
    equal = dataclasses.replace(small, values=np.full_like(small.values, 3.0))
    privacy = FedMMF(mask="mean", factors=2, rounds=2).fit(equal).privacy()
    assert privacy.mean_relative_j is privacy.j_follows_variance is None
    assert privacy.to_json_dict()["mean_relative_j"] is None


def test_one_rating_is_enough_to_train():
    frame = pl.DataFrame({"user_id": [1], "item_id": [1], "rating": [4.0]})
    ratings = Ratings.from_frame(frame, scale=RatingScale(1, 5, 1))
    model = FedMMF(mask="mean", rounds=2, sharing="plain").fit(ratings)
    assert 1 <= model.predict(1, 1)[0] <= 5
    with pytest.raises(SettingsError, match="at least 3 users; got 1"):
        FedMMF(mask="mean", rounds=2, min_raters=1).fit(ratings)
    with pytest.raises(DataError, match="no item has the 5 raters"):
        FedMMF(mask="mean", rounds=2).fit(ratings)


@pytest.mark.parametrize("solver", ["sgd", "vb"])
def test_a_real_run_gives_what_the_simulation_gives(small, solver):
    model = FedMMF(mask="lr", solver=solver, factors=3, rounds=3)
    simulated = model.fit(small).predict(small.user_ids[:20], small.item_ids[:20])
    real = model.fit(small, real=True)
    np.testing.assert_allclose(
        real.predict(small.user_ids[:20], small.item_ids[:20]), simulated, atol=1e-3
    )
    assert not real.learned.is_simulated
    assert "counted among real parties" in real.cost().how
    with pytest.raises(SettingsError, match="keeps no checkpoint"):
        model.fit(small, real=True, checkpoint="nowhere")


def test_a_real_run_refuses_variational_updates_in_the_clear(small):
    with pytest.raises(SettingsError, match="use sharing 'strict'"):
        FedMMF(mask="mean", solver="vb", sharing="plain", rounds=2).fit(small, real=True)


def test_fewer_bytes_go_up_as_more_users_share_in_the_clear(small):
    points = FedMMF(mask="lr", rounds=2).fit(small).tradeoff()
    shares = [point.share_in_clear for point in points]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert points[0].up_bytes_per_user_round > 2 * points[-1].up_bytes_per_user_round


def test_a_saved_real_run_stays_real(small, tmp_path):
    """Its cost was counted, and is not worked out again."""
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(small, real=True)
    model.save(tmp_path / "model.fedmmf")
    again = FedMMF.load(tmp_path / "model.fedmmf")
    assert not again.learned.is_simulated
    assert again.learned.counted_cost == model.learned.counted_cost
    assert again.cost() == model.cost()
    assert again.summary().simulated is False


def test_traffic_and_cost_are_those_of_the_run(model, small):
    expected = prepare(small, model.settings).cost()
    traffic, cost = model.traffic(), model.cost()
    assert isinstance(traffic, RoundTraffic)
    assert isinstance(cost, ProtocolCost)
    assert traffic.up_bytes_per_user_round == round(expected.up_bytes, 1)
    assert traffic.down_bytes_per_user_round == round(expected.down_bytes, 1)
    assert (cost.party_cpu_s, cost.server_cpu_s) == (expected.party_s, expected.server_s)


@pytest.fixture(scope="module")
def parts():
    return load("synthetic").split(test=0.2, seed=0)


@pytest.fixture(scope="module")
def fitted(parts):
    return FedMMF(mask="mean", factors=3, rounds=4).fit(parts[0])


class TestSummary:
    """What `fedmmf train --json` prints."""

    def test_it_has_the_keys_that_the_command_prints(self, fitted, parts):
        options = ["--data", "synthetic", "--mask", "mean", "--factors", "3", "--rounds", "4"]
        done = CliRunner().invoke(app, ["train", *options, "--test", "0.2", "--json"])
        assert done.exit_code == 0, done.stderr
        printed = json.loads(done.stdout)
        found = fitted.summary(parts[1]).to_json_dict()
        assert list(found) == list(printed)
        timed = ("seconds", "made", "command")
        assert {name: found[name] for name in found if name not in timed} == {
            name: printed[name] for name in printed if name not in timed
        }

    def test_it_says_what_the_model_says(self, fitted, parts):
        training, testing = parts
        found = fitted.summary(testing, top=10, total_seconds=9.5)
        assert isinstance(found, TrainResult)
        scores = fitted.evaluate(testing, top=10)
        assert set(scores) == {"rmse", "mae", "ranking"}
        assert {name: getattr(found, name) for name in scores} == scores
        assert found.test_fraction == pytest.approx(0.2, abs=0.01)
        assert found.n_ratings == len(training) + len(testing)
        assert (found.rounds, len(found.history), found.simulated) == (4, 4, True)
        assert found.privacy == fitted.privacy()
        assert found.traffic == fitted.traffic()
        assert found.cost == fitted.cost()
        assert found.settings == fitted.get_params()
        assert found.seconds.total == 9.5
        assert sum(found.j.counts) == training.n_users
        assert found.protection
        names = [baseline.name for baseline in found.baselines]
        assert names == ["global mean", "user mean", "item mean", "mask alone"]

    def test_without_test_ratings_there_is_no_accuracy(self, fitted, parts):
        found = fitted.summary()
        assert (found.rmse, found.mae, found.test_fraction) == (None, None, 0.0)
        assert found.baselines == ()
        assert found.to_json_dict()["rmse"] is None

    def test_it_is_read_back_as_it_was_printed(self, fitted, parts):
        found = fitted.summary(parts[1], top=5)
        text = json.dumps(found.to_json_dict(), allow_nan=False)
        assert TrainResult.from_json_dict(json.loads(text)) == found

    def test_the_masks_alone_are_what_is_left_without_factors(self, fitted, parts):
        _, testing = parts
        rows = fitted.summary(testing).baselines
        by_name = {row.name: row.rmse for row in rows}
        learned = fitted.learned
        users = learned.user_codes(testing.user_ids)[testing.user_codes]
        mask = base_of(learned)[0] + 4.0 * learned.theta[users, 0]  # the same of every item
        expected = np.sqrt(np.mean((testing.values - np.clip(mask, 1, 5)) ** 2))
        assert by_name["mask alone"] == pytest.approx(expected, rel=1e-5)
        assert fitted.evaluate(testing)["rmse"] < by_name["user mean"]

    def test_a_variational_run_has_no_tradeoff(self, parts):
        """Its updates never leave in the clear."""
        fitted = FedMMF(mask="mean", solver="vb", factors=2, rounds=2).fit(parts[0])
        assert fitted.summary().tradeoff == ()


@pytest.mark.parametrize("engine", ["numba", "numpy"])
def test_every_engine_predicts_the_same(model, small, engine):
    other = FedMMF(**{**model.get_params(), "engine": engine}).fit(small)
    expected = model.predict(small.user_ids[:40], small.item_ids[:40])
    found = other.predict(small.user_ids[:40], small.item_ids[:40])
    np.testing.assert_allclose(found, expected, rtol=1e-4)
