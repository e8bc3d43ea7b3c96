"""`vb` under noise for lists: accuracy, masks, newcomers, files, and what any broadcast can ask."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given as with_examples
from hypothesis import settings as of_examples
from hypothesis import strategies as st

from fedmmf import FedMMF
from fedmmf.data import Ratings
from fedmmf.engines import ENGINES
from fedmmf.errors import DivergenceError, SettingsError, WireError
from fedmmf.settings import Settings
from fedmmf.simulation import prepare, train
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, ItemSums, UserData
from fedmmf.solvers.vb.private import PrivateShape, plan, write_variant
from fedmmf.solvers.vb.private.plan import UnratedPairs

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")

CLIP, N_ITEMS = 0.7, 12
VB = SOLVERS["vb"]


@pytest.fixture(scope="module")
def ratings():
    """People who look for one of four kinds of items, which an item's features say.

    In `synthetic` sets, what somebody rates depends on popularity alone: there is nothing to learn.
    """
    draws, n_users, n_items, n_each = np.random.default_rng(5), 500, 160, 25
    kind, popularity = np.arange(n_items) % 4, draws.exponential(1.0, n_items) + 0.05
    is_wanted = draws.integers(0, 4, n_users)[:, np.newaxis] == kind  # (n_users, n_items)
    chance = popularity * np.where(is_wanted, 8.0, 1.0)
    rated = [draws.choice(n_items, n_each, False, each / each.sum()) for each in chance]
    users, items = np.repeat(np.arange(n_users), n_each), np.concatenate(rated)
    values = np.where(is_wanted[users, items], 5, 3) - draws.integers(0, 2, len(items))
    frame = pl.DataFrame({"user_id": users, "item_id": items, "rating": values})
    kinds = {f"kind {n}": (kind == n).astype(float) for n in range(4)}
    features = pl.DataFrame({"item_id": np.arange(n_items), **kinds})
    return Ratings.from_frame(frame, scale=(1, 5), features=features)


@pytest.fixture(scope="module")
def parts(ratings):
    return ratings.split(test=0.2, seed=1)


def lists_of(**changes):
    return FedMMF(**{"aggregation": "dp", "objective": "ranking", "dp_epsilon": 50.0, **changes})


# Whatever is broadcast, and whoever answers

sizes = st.floats(1e-6, 1e6) | st.floats(1e-29, 1e29)
values = st.floats(-1e4, 1e4) | st.floats(-1e30, 1e30)


def broadcast_of(shape, draws, numbers, scale):
    """A broadcast that parties do not refuse, of numbers of any size."""
    rows = np.zeros((N_ITEMS, shape.broadcast_width), np.float32)
    blocks = shape.blocks["item_row"]
    rows[:, blocks.place("mean")] = scale * draws.standard_normal((N_ITEMS, shape.rank))
    spread = np.square(draws.standard_normal((N_ITEMS, shape.broadcast_width)))
    rows[:, blocks.place("covariance")] = spread[:, blocks.place("covariance")] * abs(scale)
    rows[:, blocks.place("weight")] = np.exp(5 * draws.standard_normal((N_ITEMS, 1)))
    parameters = shape.blocks["parameters"].join((), **numbers)
    return Broadcast(shape.rank, parameters, rows)


@of_examples(max_examples=150, deadline=None)
@with_examples(
    ranks=st.booleans(),
    stage=st.sampled_from([plan.COUNTS, plan.MEANS, plan.FACTORS]),
    positive=st.lists(sizes, min_size=4, max_size=4),
    level=values,
    weight=st.floats(1e-6, 1 - 1e-6),
    scale=st.floats(-1e3, 1e3) | st.floats(-1e18, 1e18),
    seed=st.integers(0, 10_000),
    told=st.lists(st.floats(-1e6, 1e6, width=32), min_size=0, max_size=N_ITEMS),
)
def test_no_broadcast_and_no_ratings_make_an_update_longer_than_the_clip(
    ranks, stage, positive, level, weight, scale, seed, told
):
    """Rows and totals together, before the engine clips them, or the user adds nothing at all."""
    shape, draws = PrivateShape.of(4, write_variant(2, ranks=ranks)), np.random.default_rng(seed)
    tau, unit, joint, usual = positive
    numbers = {"stage": stage, "n_active": draws.integers(0, 4), "tau": tau, "unit": unit}
    numbers |= {"clip": CLIP, "joint_mean": np.full(2, level)}
    numbers |= {"joint_precision": np.full(2, joint)}
    if ranks:
        numbers |= {"unrated_weight": weight, "unrated_value": level, "usual_weight": usual}
    else:
        numbers |= {"middle": level}
    told_numbers = {name: np.asarray(value, np.float64) for name, value in numbers.items()}
    broadcast = broadcast_of(shape, draws, told_numbers, scale)
    if ranks and stage == plan.MEANS:
        with pytest.raises(WireError, match="a release is one of counts, factors"):
            VB.check(shape, broadcast)
        return
    VB.check(shape, broadcast)
    items = np.sort(draws.permutation(N_ITEMS)[: len(told)])
    own = UserData(items, np.array(told, np.float32), np.zeros(0), np.zeros(0))
    with np.errstate(all="ignore"):
        reading = VB.reading(shape, broadcast, draws.standard_normal((N_ITEMS, 2)))
        try:
            rows, totals = VB.party(shape).update(own, reading, 1)
        except OverflowError:
            return  # the engine lets this user add zeros
    length = math.sqrt(np.sum(np.square(rows, dtype=np.float64)) + np.sum(np.square(totals)))
    assert length <= CLIP * (1 + 1e-6)


# Accuracy


def ndcg(parts, **changes):
    known, test = parts
    return lists_of(**changes).fit(known).evaluate(test, top=10)["ranking"].to_json_dict()


@pytest.mark.parametrize("rounds", [1, 18])
def test_lists_are_better_than_popularity(parts, rounds):
    found = ndcg(parts, rounds=rounds)
    assert found["ndcg_at_10"] > 1.05 * found["popularity"]["ndcg_at_10"]


def test_factors_know_more_than_popularity_where_nothing_is_known_of_items(parts):
    changes = {"mask": "mean", "item_prior": False}
    factors, counts = ndcg(parts, rounds=18, **changes), ndcg(parts, rounds=1, **changes)
    assert factors["ndcg_at_10"] > 1.05 * counts["ndcg_at_10"]


def test_a_small_epsilon_takes_counts_alone_unless_rounds_are_named():
    chosen = {"aggregation": "dp", "objective": "ranking"}
    assert Settings(**chosen, dp_epsilon=1.0).max_rounds == 1
    assert Settings(**chosen, dp_epsilon=1.0, rounds=18).max_rounds == 18
    assert Settings(**chosen, dp_epsilon=8.0).max_rounds == plan.OF_LISTS.rounds
    assert Settings(aggregation="dp", dp_epsilon=1.0).max_rounds == plan.OF_RATINGS.rounds
    assert Settings(**chosen).factors == plan.OF_LISTS.factors


@pytest.mark.parametrize("objective", ["rating", "ranking"])
@pytest.mark.parametrize("mask", ["none", "mean", "lr", "fm", "nn"])
def test_every_mask_learns_under_a_budget(parts, objective, mask):
    known, test = parts
    model = lists_of(objective=objective, mask=mask, rounds=8).fit(known)
    if objective == "ranking":
        found = model.evaluate(test, top=10)["ranking"].to_json_dict()
        assert found["ndcg_at_10"] > found["popularity"]["ndcg_at_10"]
    else:
        assert model.evaluate(test)["rmse"] < test.values.std()


def test_a_mask_of_too_many_columns_is_refused(parts):
    numbers = np.random.default_rng(3).standard_normal((160, 140))
    columns = {f"x{n}": numbers[:, n] for n in range(140)}
    many = parts[0].with_features(pl.DataFrame({"item_id": np.arange(160), **columns}))
    with pytest.raises(SettingsError, match=r"128 columns at most.*'lr' has 141"):
        lists_of(rounds=1).fit(many)


def test_implicit_feedback_learns_lists(parts):
    known, test = (part.as_implicit() for part in parts)
    found = lists_of(rounds=18).fit(known).evaluate(test, top=10)["ranking"].to_json_dict()
    assert found["ndcg_at_10"] > found["popularity"]["ndcg_at_10"]


def test_an_unrated_item_counts_below_the_lowest_rating_or_as_the_settings_say():
    chosen = Settings(aggregation="dp", objective="ranking")
    told = UnratedPairs.of(chosen, lowest=1.0, span=4.0, level=0.0)
    assert (told.weight, told.value, told.unit) == (plan.UNRATED_WEIGHT, -3.0, 5.0)
    named = chosen.changed(unrated_value=2.0, unrated_weight=0.4)
    told = UnratedPairs.of(named, lowest=1.0, span=4.0, level=3.0)
    assert (told.weight, told.value, told.unit) == (0.4, 2.0, 3.0)
    with pytest.raises(SettingsError, match="below the highest rating, 5"):
        UnratedPairs.of(chosen.changed(unrated_value=5.0), lowest=1.0, span=4.0, level=3.0)


# State


@pytest.mark.parametrize("objective", ["rating", "ranking"])
def test_the_same_seed_gives_the_same_model(parts, objective):
    first, second = (lists_of(objective=objective, rounds=6).fit(parts[0]) for _ in range(2))
    assert np.array_equal(first.item_factors, second.item_factors)
    assert np.array_equal(first.user_factors, second.user_factors)


def test_a_saved_model_gives_the_same_lists(parts, tmp_path):
    model = lists_of(rounds=8).fit(parts[0])
    model.save(tmp_path / "model.fedmmf")
    loaded = FedMMF.load(tmp_path / "model.fedmmf")
    users = parts[0].user_ids[:5].tolist()
    assert loaded.recommend(users=users, n=7).equals(model.recommend(users=users, n=7))


def test_training_resumes_where_it_stopped(ratings, tmp_path):
    settings = Settings(aggregation="dp", objective="ranking", rounds=8)
    whole = train(ratings, settings).members[0].broadcast
    run = prepare(ratings, settings)
    first, parties = run.coordinator(), run.parties()
    for _ in range(4):
        round_ = first.next_round()
        first.advance(round_, parties.sums(round_))
    second, others = run.coordinator(), run.parties()
    second.restore(first.state())
    others.restore(parties.state())
    while not second.is_finished:
        round_ = second.next_round()
        second.advance(round_, others.sums(round_))
    assert np.array_equal(second.result.item_rows, whole.item_rows)


def test_a_server_does_without_a_lost_round_but_not_without_counts(ratings):
    run = prepare(ratings, Settings(aggregation="dp", objective="ranking", rounds=8))
    half, halves = run.coordinator().half, ENGINES["numba"].halves(run.training_input)
    with pytest.raises(DivergenceError, match="all 1 releases of counts gave no sum"):
        half.lose()
    for t in range(1, 9):
        told = halves.update(half.broadcast(), t)
        scale = run.groups[0].cohort.scale
        counts = np.full(run.training_input.n_items, run.ratings.n_users)
        sums = ItemSums(told.rows[0] / scale, counts, told.totals[0] / scale, noise_std=1e-2)
        before = half.state()["mean"]
        half.lose() if t == 8 else half.advance(sums, t)
    assert np.array_equal(before, half.state()["mean"])
    assert int(half.state()["n_pending"]) == 0


# Newcomers


@pytest.mark.parametrize("objective", ["rating", "ranking"])
def test_newcomers_join_a_private_model_without_any_release(parts, objective):
    """Somebody with the ratings of a user gets what that user gets."""
    known, _ = parts
    model = lists_of(objective=objective, rounds=8).fit(known)
    mine = known.select(known.user_codes == 3)
    ratings = dict(zip(mine.item_ids[mine.item_codes].tolist(), mine.values.tolist(), strict=True))
    newcomer = model.join(ratings)
    pair = (known.user_ids[3].item(), known.item_ids.tolist())
    expected = model.predict(np.repeat(pair[0], len(pair[1])), np.array(pair[1]))
    np.testing.assert_allclose(newcomer.predict(pair[1]), expected, atol=2e-3)
    alone = newcomer.recommend(5)["item_id"].to_list()
    assert alone == model.recommend(user=pair[0], n=5)["item_id"].to_list()
    assert not set(alone) & set(ratings)


def test_a_list_of_one_item_is_enough_for_a_newcomer(parts):
    model = lists_of(rounds=8).fit(parts[0])
    one = model.join({parts[0].item_ids[0].item(): 5.0}).recommend(5)
    assert len(one) == 5
    assert np.isfinite(one["prediction"].to_numpy()).all()


def test_engines_agree_on_lists(ratings):
    """In floating point, over a whole run without noise."""
    found = []
    for name in ("numpy", "numba"):
        run = prepare(ratings, Settings(aggregation="dp", objective="ranking", rounds=6))
        half, given = run.coordinator().half, replace(run.training_input)
        halves, scale = ENGINES[name].halves(given), run.groups[0].cohort.scale
        counts = np.full(given.n_items, run.ratings.n_users)
        for t in range(1, 7):
            told = halves.update(half.broadcast(), t)
            half.advance(ItemSums(told.rows[0] / scale, counts, told.totals[0] / scale, 1e-2), t)
        found.append(half.broadcast().item_rows)
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
