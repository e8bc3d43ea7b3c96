"""Somebody joins with few ratings: one does not hurt, in any objective, and from a file too."""

from dataclasses import replace
from functools import partial

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings, load, rng
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import CheckpointError
from fedmmf.model import Newcomer
from fedmmf.model.evaluation import ndcg
from fedmmf.storage import checkpoints

QUICK = {"solver": "vb", "factors": 4, "rounds": 12}
OBJECTIVES = {
    "ratings": {"mask": "mean"},
    "no mask": {"mask": "none"},
    "lr": {"mask": "lr"},
    "ordered": {"mask": "mean", "likelihood": "ordinal"},
    "ranking": {"mask": "mean", "objective": "ranking"},
    "ensemble": {"mask": "mean", "ensemble": 2},
}
each_objective = pytest.mark.parametrize("settings", OBJECTIVES.values(), ids=OBJECTIVES)


def with_prior_of_rounds(model):
    """The same model, as a file without sums for newcomers gives it."""
    old = FedMMF(**model.get_params())
    members = [
        replace(member, broadcast=replace(member.broadcast, newcomers=None))
        for member in model.learned.members
    ]
    old._learned = replace(model.learned, members=members)
    return old


def errors(model, unseen, known, first):
    """RMSE on what comes after each newcomer's first ratings, in random order, by known ones."""
    draw, squares = rng.stream(0, "order"), {n: [] for n in known}
    for user in np.unique(unseen.user_codes):
        mine = draw.permutation(np.arange(*unseen.by_user[user : user + 2]))
        ids, values = unseen.item_ids[unseen.item_codes[mine]], unseen.values[mine]
        for n in known:
            predict = partial(model.predict, np.full(len(ids[first:]), -1))
            if n:
                predict = model.join(dict(zip(ids[:n].tolist(), values[:n], strict=True))).predict
            squares[n] += list((predict(ids[first:]) - values[first:]) ** 2)
    return {n: float(np.sqrt(np.mean(some))) for n, some in squares.items()}


def unseen_part(ratings, n_folds=4):
    """Ratings of all but one fold of users, and those of that fold."""
    fold_of = rng.stream(1, "folds").permutation(ratings.n_users) % n_folds
    return ratings.split_at(fold_of[ratings.user_codes] == 0)


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_one_rating_does_not_hurt(likelihood):
    train, unseen = unseen_part(synthetic(300, 120, 12000, seed=5))
    model = FedMMF(mask="mean", likelihood=likelihood, **QUICK).fit(train)
    found = errors(model, unseen, (0, 1, 3, 10), 10)
    assert found[10] < found[3] < found[1] < found[0]
    old = errors(with_prior_of_rounds(model), unseen, (1, 3, 10), 10)
    assert all(found[n] < old[n] for n in old)


def list_quality(model, unseen, known, first):
    """Mean nDCG@10 of what comes after each newcomer's first items, by known ones."""
    draw, quality = rng.stream(0, "order"), {n: [] for n in known}
    nobody = model.learned.scorer(np.arange(model.learned.n_items))(model.learned.n_users)
    for user in np.unique(unseen.user_codes):
        mine = draw.permutation(np.arange(*unseen.by_user[user : user + 2]))
        items, values = unseen.item_codes[mine], unseen.values[mine]
        wanted = items[first:][values[first:] >= 4]
        for n in known if len(wanted) else ():
            own = dict(zip(unseen.item_ids[items[:n]].tolist(), values[:n].tolist(), strict=True))
            scores = np.array(model.join(own).scores(unseen.item_ids) if n else nobody)
            scores[items[:first]] = -np.inf
            quality[n].append(ndcg(np.isin(np.argsort(-scores)[:10], wanted), len(wanted), 10))
    return {n: float(np.mean(some)) for n, some in quality.items()}


def tastes(n_users=320, n_items=120, n_rated=25):
    """Ratings of people of four tastes: they choose, and like, mostly one group of items."""
    draw, rows = np.random.default_rng(6), []
    for user in range(n_users):
        likes = np.arange(n_items) % 4 == user % 4
        weight = np.where(likes, 5.0, 1.0) / (5 + np.arange(n_items))  # the first are popular
        items = draw.choice(n_items, n_rated, replace=False, p=weight / weight.sum())
        values = np.clip(draw.integers(1, 5, n_rated) + 2 * likes[items], 1, 5)
        rows += zip([user] * n_rated, items.tolist(), values.tolist(), strict=True)
    return Ratings.from_frame(pl.DataFrame(rows, ["user_id", "item_id", "rating"], orient="row"))


def test_one_known_item_does_not_hurt_a_list():
    train, unseen = unseen_part(tastes())
    model = FedMMF(mask="mean", objective="ranking", factors=4, rounds=12).fit(train)
    found = list_quality(model, unseen, (0, 1, 3, 10), 10)
    assert found[0] <= found[1] < found[10]
    assert found[0] < found[3] < found[10]
    old = list_quality(with_prior_of_rounds(model), unseen, (1,), 10)
    assert old[1] < found[1]


@pytest.mark.parametrize("mask", ["mean", "lr"])
def test_one_rating_does_not_hurt_on_ml_100k(public_data, mask):
    train, unseen = unseen_part(load("ml-100k"), n_folds=5)
    model = FedMMF(mask=mask, solver="vb").fit(train)
    found = errors(model, unseen, (0, 1, 3, 10, 30), 30)
    assert found[30] < found[10] - 0.02
    assert found[10] < found[3] - 0.02
    assert found[3] < found[1] - 0.01
    assert found[1] < found[0]
    old = errors(with_prior_of_rounds(model), unseen, (1, 30), 30)
    assert old[1] > found[1] + 0.01
    assert old[30] > found[30] + 0.003


def test_who_rates_an_item_is_counted_in_predictions(public_data):
    """Errors fall where nothing or little is known, beside scores that do not count it."""
    train, unseen = unseen_part(load("ml-100k"), n_folds=5)
    model = FedMMF(mask="mean", solver="vb").fit(train)
    found = errors(model, unseen, (0, 1, 3), 30)
    model.learned.__dict__["_default_effects"] = np.zeros(train.n_items + 1, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Newcomer, "predict", lambda self, ids: self._learned.shown(self.scores(ids)))
        without = errors(model, unseen, (0, 1, 3), 30)
    assert all(found[n] < without[n] - 0.003 for n in found)


def test_lists_and_known_users_are_as_they_were(small):
    """That somebody rates an item is no reason to recommend it."""
    model = FedMMF(**OBJECTIVES["ratings"], **QUICK).fit(small)
    newcomer = model.join({small.item_ids[3].item(): 5.0})
    scores = newcomer.scores(small.item_ids)
    best = small.item_ids[np.argsort(-scores, kind="stable")]
    listed = newcomer.recommend(5)["item_id"].to_numpy()
    assert np.array_equal(listed, best[best != small.item_ids[3]][:5])
    predicted, usual = newcomer.predict(small.item_ids), model.learned.shown(scores)
    assert predicted[3] == usual[3]  # its rating is known
    assert np.abs(predicted - usual).max() > 1e-3
    learned = model.learned
    users, items = small.user_codes[:50], small.item_codes[:50]
    scores = [learned.scorer(items[n : n + 1])(users[n])[0] for n in range(50)]
    np.testing.assert_allclose(
        learned.predict(users, items), learned.shown(np.array(scores)), rtol=1e-5
    )


@each_objective
def test_joins_are_the_same_from_a_file(small, tmp_path, settings):
    model = FedMMF(**{**QUICK, **settings}).fit(small)
    own, items = {small.item_ids[3].item(): 5.0}, small.item_ids
    model.save(tmp_path / "model")
    again = FedMMF.load(tmp_path / "model")
    scores = model.join(own).scores(items)
    assert np.array_equal(again.join(own).scores(items), scores)
    assert np.array_equal(again.join(own).predict(items), model.join(own).predict(items))
    assert again.predict(10**6, items[0]) == model.predict(10**6, items[0])
    old = with_prior_of_rounds(model)
    old.save(tmp_path / "old")
    assert not any("newcomers" in name for name in checkpoints.load(tmp_path / "old", "model")[0])
    usual = FedMMF.load(tmp_path / "old").join(own).scores(items)
    assert np.array_equal(usual, old.join(own).scores(items))
    assert np.abs(usual - scores).max() > 1e-3
    assert len(model.join(own).recommend(5)) == 5


@pytest.mark.parametrize("damage", ["short", "not finite", "float32"])
def test_a_damaged_prior_is_named(small, tmp_path, damage):
    model = FedMMF(mask="mean", **QUICK).fit(small)
    arrays, about = model.learned.to_arrays()
    told = arrays["member0/newcomers"].copy()
    told = {
        "short": told[:-1],
        "not finite": np.where(np.arange(len(told)) == 3, np.nan, told),
        "float32": told.astype(np.float32),
    }[damage]
    meta = {"kind": "model", "version": "0", "settings": model.settings.to_dict(), **about}
    checkpoints.save(tmp_path / "model", {**arrays, "member0/newcomers": told}, meta)
    with pytest.raises(CheckpointError, match="prior of newcomers"):
        FedMMF.load(tmp_path / "model")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"signed": True},
        {"objective": "ranking"},
        {"likelihood": "ordinal"},
        {"aggregation": "homomorphic-ckks"},
    ],
    ids=str,
)
def test_real_parties_give_the_sums_of_the_simulation(small, settings):
    if "aggregation" in settings:
        pytest.importorskip("tenseal", reason="the extra `ckks`")
    few, _ = unseen_part(small)
    about = {
        "mask": "mean",
        "solver": "vb",
        "factors": 2,
        "rounds": 6,
        "engine": "numpy",
        **settings,
    }
    simulated, real = FedMMF(**about).fit(few), FedMMF(**about).fit(few, real=True)
    (one,), (other,) = (model.learned.members for model in (simulated, real))
    assert one.broadcast.newcomers[0] == pytest.approx(few.n_users * 3 / 4, abs=few.n_users / 4)
    scale = np.abs(one.broadcast.newcomers).max()
    np.testing.assert_allclose(
        other.broadcast.newcomers, one.broadcast.newcomers, atol=1e-5 * scale
    )
    own = {few.item_ids[3].item(): 5.0}
    np.testing.assert_allclose(
        real.join(own).predict(few.item_ids), simulated.join(own).predict(few.item_ids), atol=1e-3
    )


def test_sgd_has_no_such_sum(small):
    model = FedMMF(mask="mean", factors=2, rounds=3).fit(small)
    assert model.learned.members[0].broadcast.newcomers is None
