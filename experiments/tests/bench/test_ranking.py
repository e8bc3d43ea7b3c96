"""Rankers to compare with: their definitions; and one set of candidates and metrics for all."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedmmf import FedMMF
from fedmmf.aggregation.rare_items import raters_needed
from fedmmf.cli.app import app
from fedmmf.data import Ratings
from fedmmf.errors import UnknownNameError
from fedmmf.settings import Settings
from fedmmf_experiments.bench import list_speed, ranking
from fedmmf_experiments.bench.grids import MAX_WIDER, best_of, widened
from fedmmf_experiments.bench.rankers import (
    RANKERS,
    Ranker,
    chosen_matrix,
    ease,
    half_step,
    ials,
    item_knn,
    popularity,
)
from fedmmf_experiments.bench.ranking import RankingRun, behind, judged, tuned
from fedmmf_experiments.bench.ranking_peers import PEERS
from fedmmf_experiments.bookshop import bookshop, core
from fedmmf_experiments.cli import bench_ranking
from fedmmf_experiments.paired import paired_difference
from fedmmf_experiments.result_cache import ResultCache

LEAST = 4.0
QUICK = {"factors": 3, "rounds": 2}
OURS = [
    "fedmmf, strict",
    "fedmmf, ratings alone",
    "fedmmf, 3 runs averaged",
    "fedmmf, in the clear",
]


@pytest.fixture(autouse=True)
def no_peers(monkeypatch):
    monkeypatch.setattr(ranking, "installed_rankers", lambda: ())


@pytest.fixture(scope="module")
def parts(small):
    return small.split(0.2, seed=0)


def test_popularity_counts_raters(small):
    scores = popularity(small, LEAST)(np.array([0, 5]))
    assert scores.shape == (2, small.n_items)
    assert scores[1].tolist() == np.bincount(small.item_codes, minlength=small.n_items).tolist()


@pytest.mark.parametrize("chosen", ["rated", "liked", "value"])
def test_ease_is_ridge_regression_of_each_item_on_the_others(small, chosen):
    x = np.asarray(chosen_matrix(small, chosen, LEAST).todense(), np.float64)
    found = ease(small, LEAST, penalty=7.0, chosen=chosen)(np.arange(small.n_users))
    for item in (0, 11, 40):
        others = np.arange(small.n_items) != item
        normal = x[:, others].T @ x[:, others] + 7.0 * np.eye(others.sum())
        weights = np.linalg.solve(normal, x[:, others].T @ x[:, item])
        np.testing.assert_allclose(found[:, item], x[:, others] @ weights, atol=1e-4)


def test_ease_ranks_what_nobody_chose_last(small):
    rare = small.select(small.item_codes != 3)
    assert (ease(rare, LEAST, 7.0, "rated")(np.array([2]))[:, 3] == -np.inf).all()


@pytest.mark.parametrize("chosen", ["liked", "value"])
def test_a_half_step_of_ials_is_the_minimum_of_its_objective(small, chosen):
    """All entries are zeros with a weight; what was chosen counts on top of that."""
    x = chosen_matrix(small, chosen, LEAST)
    q = np.random.default_rng(0).standard_normal((small.n_items, 3))
    found = half_step(x, q, weight=0.1, penalty=0.02)

    def loss(user, p):
        mine = q[x[user].indices]
        shrinkage = 0.02 * (len(mine) + 0.1 * small.n_items)
        fit = 0.1 * np.sum((q @ p) ** 2) + np.sum((x[user].data - mine @ p) ** 2)
        return fit + shrinkage * (p @ p)

    for user in (0, 7):
        for step in 1e-3 * np.vstack((np.eye(3), -np.eye(3))):
            assert loss(user, found[user] + step) > loss(user, found[user])


def test_ials_takes_turns_until_lists_are_those_of_its_factors(small):
    about = {"factors": 4, "weight": 0.1, "penalty": 0.02, "chosen": "rated"}
    scores = ials(small, LEAST, **about)(np.arange(small.n_users))
    values = np.linalg.svd(scores, compute_uv=False)
    assert values[4] < 1e-9 * values[0] < values[3]
    rated = np.zeros(scores.shape, bool)
    rated[small.user_codes, small.item_codes] = True
    assert scores[rated].mean() > 2 * scores[~rated].mean()


def test_all_rank_the_same_candidates_by_the_same_metrics(parts, monkeypatch):
    train, test = parts
    grid = {"chosen": ["liked", "rated"], "penalty": [3.0, 20.0, 1e9]}
    monkeypatch.setattr(ranking, "RANKERS", (RANKERS[0], Ranker("EASE", ease, grid)))
    told: list[str] = []
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    rows = list(RankingRun([parts], settings, tell=told.append).rows())
    assert [row.name for row in rows] == ["popularity", "EASE", *OURS]
    assert told == [
        *(f"{name}, {what}" for name in ("popularity", "EASE") for what in ("tuned", "split-0")),
        *(f"{name}, split-0" for name in OURS),
    ]
    part, kept = train.split(0.1, seed=1)

    def quality(chosen, penalty):
        return judged(ease(part, LEAST, penalty, chosen), part, kept, LEAST)["ndcg_at_10"]

    mine = rows[1].splits[0].settings
    others = [(mine["chosen"], penalty) for penalty in grid["penalty"]]
    others += [(chosen, mine["penalty"]) for chosen in grid["chosen"]]
    found = {other: quality(*other) for other in others}
    assert len(set(found.values())) > 1
    assert found[mine["chosen"], mine["penalty"]] == max(found.values())
    model = FedMMF(**settings.model_dump()).fit(train)
    expected = model.evaluate(test, top=10)["ranking"]
    for name, value in rows[2].splits[0].metrics.items():
        assert value == pytest.approx(expected.metrics()[name], abs=1e-4)
        assert rows[0].mean(name) == pytest.approx(expected.popularity.metrics()[name], abs=1e-4)


def test_item_knn_scores_by_damped_cosines_with_the_nearest(small):
    x = np.asarray(chosen_matrix(small, "value", LEAST).todense(), np.float64)
    lengths = np.linalg.norm(x, axis=0)
    near = x.T @ x / (np.outer(lengths, lengths) + 3.0)
    np.fill_diagonal(near, 0.0)
    for row in near:
        row[row < np.sort(row)[-5]] = 0.0
    scores = item_knn(small, LEAST, neighbours=5, damping=3.0, chosen="value")(np.arange(4))
    np.testing.assert_allclose(scores, x[:4] @ near.T, atol=1e-4)


def test_splits_are_kept_paired_and_not_run_again(small, tmp_path, monkeypatch):
    monkeypatch.setattr(ranking, "RANKERS", RANKERS[:1])
    splits = [small.split(0.2, seed=seed) for seed in (0, 1, 2)]
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    first = list(RankingRun(splits, settings, ResultCache(tmp_path)).rows())
    assert [len(set(row.each())) for row in first] == 5 * [3]
    monkeypatch.setattr(ranking, "judged", lambda *_: 1 / 0)
    again = list(RankingRun(splits, settings, ResultCache(tmp_path)).rows())
    assert [row.to_json_dict() for row in again] == [row.to_json_dict() for row in first]
    found = behind(first, 0.2)["popularity"]
    differences = np.subtract(first[1].each(), first[0].each())
    assert found.mean == pytest.approx(differences.mean(), abs=1e-5)
    assert found == paired_difference(first[1].each(), first[0].each(), 0.2)
    assert found != paired_difference(first[1].each(), first[0].each(), 0.0)
    with pytest.raises(ZeroDivisionError):
        list(RankingRun(splits, settings.changed(factors=2), ResultCache(tmp_path)).rows())


def test_lists_have_nothing_that_was_rated_in_training(parts):
    train, test = parts
    rated = np.zeros((train.n_users, train.n_items))
    rated[train.user_codes, train.item_codes] = 1
    wanted = np.zeros_like(rated)
    wanted[test.user_codes, test.item_codes] = test.values >= LEAST
    perfect = judged(lambda users: 10 * rated[users] + wanted[users], train, test, LEAST)
    assert perfect["ndcg_at_10"] == perfect["mrr_at_10"] == 1.0
    worst = judged(lambda users: -wanted[users], train, test, LEAST)
    assert worst["recall_at_20"] < 0.1


def test_lists_may_be_held_to_the_items_that_strict_mode_sums(parts, monkeypatch):
    train, test = parts
    wanted = np.zeros((train.n_users, train.n_items))
    wanted[test.user_codes, test.item_codes] = test.values >= LEAST
    n_raters = np.bincount(train.item_codes, minlength=train.n_items)
    needed = int(np.median(n_raters))
    settings = Settings(mask="mean", solver="vb", objective="ranking", min_raters=needed, **QUICK)
    oracle = Ranker("oracle", lambda ratings, least: lambda users: wanted[users], {})
    monkeypatch.setattr(ranking, "RANKERS", (oracle,))
    found = next(RankingRun([parts], settings).rows())
    assert found.mean() == 1.0
    is_summed = n_raters >= raters_needed(needed)
    blind = judged(lambda users: wanted[users] * is_summed, train, test, LEAST, is_summed)
    assert found.mean_of("among_summed") == blind["ndcg_at_10"] < 0.9


def test_bytes_of_a_round_stand_beside_our_lists_alone(parts, monkeypatch):
    monkeypatch.setattr(ranking, "RANKERS", RANKERS[:1])
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    popular, ours, *_ = RankingRun([parts], settings).rows()
    assert popular.mean_of("up_bytes") == popular.mean_of("down_bytes") == 0
    traffic = FedMMF(**settings.model_dump()).fit(parts[0]).traffic()
    assert ours.mean_of("up_bytes") == pytest.approx(traffic.up_bytes_per_user_round, abs=0.1)
    assert ours.mean_of("down_bytes") == pytest.approx(traffic.down_bytes_per_user_round, abs=0.1)


def test_tuning_does_not_see_the_test_part(parts, monkeypatch):
    """What is chosen is the same whatever the test ratings are."""
    train, test = parts
    grid = {"chosen": ["rated"], "penalty": [1.0, 30.0, 1e4]}
    monkeypatch.setattr(ranking, "RANKERS", (Ranker("EASE", ease, grid),))
    turned = replace(test, values=test.scale.max + test.scale.min - test.values)
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    first, second = (
        next(RankingRun([(train, part)], settings).rows()).splits[0] for part in (test, turned)
    )
    assert first.settings == second.settings
    assert first.metrics != second.metrics


@pytest.mark.parametrize(
    ("package", "ranker", "chosen"),
    [(package, one, chosen) for package, one in PEERS for chosen in one.grid["chosen"]],
    ids=lambda value: getattr(value, "name", value),
)
def test_a_real_peer_ranks_what_was_chosen_above_the_rest(small, package, ranker, chosen):
    pytest.importorskip(package, reason=f"{package} is an optional peer")
    settings = {name: values[0] for name, values in ranker.grid.items()} | {"chosen": chosen}
    scores = ranker.fit(small, LEAST, **settings)(np.arange(small.n_users))
    is_chosen = chosen_matrix(small, chosen, LEAST).toarray() > 0  # (n_users, n_items)
    assert scores.shape == is_chosen.shape
    has_score = np.isfinite(scores)
    assert scores[is_chosen & has_score].mean() > scores[~is_chosen & has_score].mean()


def test_rankers_are_tuned_on_what_they_were_not_fitted_to(parts):
    train, _ = parts
    fitted = []

    def fit(ratings, least, memory):
        fitted.append(ratings)
        return popularity(ratings, least)

    tuned(Ranker("any", fit, {"memory": [1, 2, 3]}), train, LEAST)
    part, kept = train.split(ranking.VALIDATION, seed=1)
    assert fitted
    for seen in fitted:
        pairs = set(zip(seen.user_codes.tolist(), seen.item_codes.tolist(), strict=True))
        assert len(pairs) == len(part)
        assert not pairs & set(zip(kept.user_codes.tolist(), kept.item_codes.tolist(), strict=True))


def test_ratings_alone_see_neither_item_features_nor_profiles(parts, monkeypatch):
    """Its lists are those of a set that has no features at all."""
    train, test = parts
    monkeypatch.setattr(ranking, "RANKERS", ())
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    assert settings.item_prior
    assert settings.profile_prior
    ours, alone, *_ = RankingRun([parts], settings).rows()
    bare = replace(train, features=None)
    without, *_ = RankingRun([(bare, test)], settings).rows()
    assert alone.splits[0].metrics == without.splits[0].metrics != ours.splits[0].metrics


def test_rankers_are_chosen_by_name(parts):
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    rows = RankingRun([parts], settings, chosen=["popularity"]).rows()
    assert [row.name for row in rows] == ["popularity", *OURS]
    some = RankingRun([parts], settings, chosen=["fedmmf, in the clear", "popularity"]).rows()
    assert [row.name for row in some] == ["popularity", "fedmmf, strict", "fedmmf, in the clear"]
    only = RankingRun([parts], settings, chosen=["fedmmf, strict"]).rows()
    assert [row.name for row in only] == ["fedmmf, strict"]
    with pytest.raises(UnknownNameError, match=r"popularity.*got 'EAZE'"):
        list(RankingRun([parts], settings, chosen=["EAZE"]).rows())


def test_with_summed_items_alone_no_ranker_knows_another(parts, monkeypatch):
    """Neither in tuning, nor in training, nor in what is to be found."""
    train, test = parts
    n_raters = np.bincount(train.item_codes, minlength=train.n_items)
    needed = int(np.median(n_raters))
    is_summed = n_raters >= raters_needed(needed)
    settings = Settings(mask="mean", solver="vb", objective="ranking", min_raters=needed, **QUICK)
    fitted = []

    def fit(ratings, least, weight):
        fitted.append(ratings)
        scores = np.where(is_summed, weight * n_raters, 1e6)  # the others first, if there are any
        return lambda users: np.tile(scores, (len(users), 1))

    monkeypatch.setattr(ranking, "RANKERS", (Ranker("any", fit, {"weight": [-1.0, 0.5, 1.0]}),))
    first, ours, *_ = RankingRun([parts], settings, only_summed=True).rows()
    assert first.splits[0].settings == {"weight": 0.5}
    assert len(fitted) > 3
    assert all(is_summed[ratings.item_codes].all() for ratings in fitted)
    assert not is_summed[train.item_codes].all()
    for row in (first, ours):
        assert row.mean_of("among_summed") == row.mean() > 0
    found = test.select(is_summed[test.item_codes])
    popular = popularity(train, LEAST)
    expected = judged(popular, train, found, LEAST, is_summed)
    assert first.splits[0].metrics == expected


def test_a_grid_grows_until_the_best_is_inside():
    asked = []

    def quality(settings):
        asked.append(dict(settings))
        nearness = -abs(np.log(settings["penalty"] / 700)) - abs(settings["neighbours"] - 3.5)
        return nearness + (settings["chosen"] == "liked")

    grid = {"chosen": ["rated", "liked"], "penalty": [1.0, 10.0], "neighbours": [8, 16, 32]}
    best = best_of(grid, quality)
    assert best == {"chosen": "liked", "penalty": 1000.0, "neighbours": 4}
    assert {one["penalty"] for one in asked} == {1.0, 10.0, 100.0, 1e3, 1e4}
    assert {one["neighbours"] for one in asked} == {32, 16, 8, 4, 2}
    assert len({tuple(one.values()) for one in asked}) == len(asked)
    assert grid["penalty"] == [1.0, 10.0]


def test_a_grid_does_not_grow_for_ever():
    asked = []

    def quality(settings):
        asked.append(settings["penalty"])
        return settings["penalty"]

    assert best_of({"penalty": [1.0, 2.0]}, quality)["penalty"] == 2.0 ** (1 + MAX_WIDER)
    assert len(asked) == 2 + MAX_WIDER


@pytest.mark.parametrize(
    ("name", "values", "best"),
    [
        ("damping", [0.0, 3.0], 0.0),
        ("chosen", ["rated", "liked"], "rated"),
        ("factors", [64, 128, 256], 256),
        ("neighbours", [1, 2], 1),
        ("penalty", [1.0, 2.0, 4.0], 2.0),
        ("penalty", [3.0], 3.0),
    ],
)
def test_where_numbers_end_a_grid_ends(name, values, best):
    assert widened(name, values, best) == []


def test_speed_is_measured_beside_ials_with_as_many_factors(small, monkeypatch):
    sizes = []

    def counted(ratings, least, factors, *about):
        sizes.append(factors)
        return ials(ratings, least, factors, *about)

    monkeypatch.setattr(list_speed, "ials", counted)
    settings = Settings(mask="mean", solver="vb", objective="ranking", **QUICK)
    turns = []
    theirs, ours = list_speed.measure(small, settings, 0.2, 2, lambda *seen: turns.append(seen))
    assert (theirs.name, ours.name) == ("iALS", "fedmmf, strict")
    assert sizes == 3 * [settings.factors]
    assert [done for _, done, _ in turns] == [0, 1, 2]
    assert theirs.cpu_over_ials == theirs.seconds_over_ials == 1.0
    train, test = small.split(0.2, seed=0)
    model = FedMMF(**settings.model_dump()).fit(train)
    assert ours.ndcg_at_10 == pytest.approx(
        model.evaluate(test, top=10)["ranking"].ndcg_at_10, abs=1e-4
    )
    assert ours.ndcg_at_10 != theirs.ndcg_at_10


def test_ratios_are_medians_over_turns():
    taken = {
        "iALS": [(2.0, 1.0), (4.0, 2.0), (1.0, 1.0)],
        "ours": [(8.0, 1.0), (4.0, 6.0), (5.0, 2.0)],
    }
    _, row = list_speed.speeds(taken, {"iALS": 0.1, "ours": 0.2}, 3)
    assert (row.seconds_over_ials, row.cpu_over_ials) == (4.0, 2.0)
    assert (row.seconds, row.cpu_seconds, row.ndcg_at_10) == (5.0, 2.0, 0.2)


@pytest.mark.parametrize("implicit", [False, True])
def test_the_command(small, tmp_path, monkeypatch, implicit):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    monkeypatch.setattr(ranking, "RANKERS", RANKERS[:1])
    options = ["bench", "ranking", "--data", str(path), "--factors", "3", "--rounds", "2"]
    options += ["--implicit"] * implicit
    done = CliRunner().invoke(app, options, catch_exceptions=False)
    assert done.exit_code == 0
    assert "popularity" in done.stdout
    found = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    ours = found["rows"][-4]
    assert ours["name"] == "fedmmf, strict"
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("| fedmmf, strict"))
    assert f"{ours['metrics']['ndcg_at_10']:.4f}" in line
    assert f"{ours['up_bytes'] / 1e3:,.0f}, {ours['down_bytes'] / 1e3:,.0f}" in line
    assert "factors 3" in line


def test_the_command_takes_the_bookshop(monkeypatch):
    few = bookshop(600, 900, 9000)
    monkeypatch.setattr(bench_ranking, "bookshop", lambda: few)
    options = ["--data", "bookshop", "--ranker", "popularity", "--factors", "2", "--rounds", "1"]
    done = CliRunner().invoke(
        app, ["bench", "ranking", *options, "--only-summed"], catch_exceptions=False
    )
    assert done.exit_code == 0
    small = core(few)
    assert f"(synthetic): {small.n_users:,} users, {small.n_items:,} items" in done.stdout
    assert "lists of the items that strict mode sums" in done.stdout


def test_the_command_tries_settings_on_a_part_of_the_training_ratings(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    options = ["bench", "ranking", "--data", str(path), "--seed", "10", "--validation", "--json"]
    options += ["--ranker", "popularity", "--factors", "2", "--rounds", "1"]
    found = json.loads(CliRunner().invoke(app, options, catch_exceptions=False).stdout)
    assert found["validation"] is True
    train, test = Ratings.from_frame(small.to_frame()).split(0.2, seed=10)
    part, kept = train.split(0.1, seed=1)
    popular = found["rows"][0]["metrics"]
    assert popular == judged(popularity(part, LEAST), part, kept, LEAST)
    assert popular != judged(popularity(train, LEAST), train, test, LEAST)


def test_the_command_for_speed(small, tmp_path):
    path = tmp_path / "ratings.csv"
    small.to_frame().write_csv(path)
    options = ["bench", "list-speed", "--data", str(path), "--factors", "2", "--rounds", "1"]
    done = CliRunner().invoke(app, [*options, "--repeats", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    assert [line.split(" | ")[0] for line in done.stdout.splitlines()[:4]] == [
        "| trainer",
        "| ---",
        "| iALS",
        "| fedmmf, strict",
    ]
