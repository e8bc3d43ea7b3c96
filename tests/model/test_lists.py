"""Lists: whose, of which items, in which order; and how good they are, beside popularity."""

import re
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings, RatingScale, load
from fedmmf.data.features import content_features
from fedmmf.data.synthetic import synthetic
from fedmmf.errors import FedMMFWarning, SettingsError, UnknownNameError
from fedmmf.model.lists import ListRequest, each_list, lists_for, what_ranks
from fedmmf.reports.list_scores import ListScores, RankingScores, metric_title

from .conftest import base_of

PAGE = Path(__file__).parents[2] / "experiments" / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def model(small):
    return FedMMF(mask="lr", factors=4, rounds=20).fit(small)


@pytest.fixture(scope="module")
def parts(small):
    return small.split(0.3, seed=1)


@pytest.fixture(scope="module")
def fitted(parts):
    return FedMMF(mask="lr", factors=4, rounds=20).fit(parts[0])


def unclipped(model, user):
    """q_i . p_u + f_u(i) of the whole catalogue; the mask is lr, the scale 1..5."""
    theta, learned = model.learned.theta[user], model.learned
    mask = base_of(learned)[:-1] + 4.0 * (theta[0] + learned.features[:-1] @ theta[1:])
    return np.float32(model.item_factors @ model.user_factors[user] + mask)


def rated_by(ratings, user):
    return set(ratings.item_codes[ratings.user_codes == user].tolist())


def slow_list(scores, allowed, n):
    return sorted(allowed, key=lambda item: (-scores[item], item))[:n]


def test_recommendations_are_the_best_unrated_items(model, small):
    user = small.user_ids[11]
    best = model.recommend(user=int(user), n=10)
    assert best.columns == ["item_id", "title", "prediction"]
    scores = unclipped(model, 11)
    expected = slow_list(scores, set(range(small.n_items)) - rated_by(small, 11), 10)
    assert best["item_id"].to_list() == small.item_ids[expected].tolist()
    np.testing.assert_allclose(best["prediction"], np.clip(scores[expected], 1, 5), rtol=1e-5)
    assert model.recommend(user).equals(best)


def test_what_clipping_makes_equal_is_still_in_order(small):
    """Everybody who likes everything: all predictions are 5, and the item ids are no ranking."""
    frame = small.to_frame().with_columns(rating=pl.lit(5.0))
    model = FedMMF(mask="lr", factors=4, rounds=20).fit(
        Ratings.from_frame(frame, scale=RatingScale(1, 5, 1), features=small.features)
    )
    model.learned.user_factors[3] *= 100  # far over the end of the scale
    scores = unclipped(model, 3)
    best = model.recommend(small.user_ids[3], n=10, seen=True)
    over = scores[slow_list(scores, range(small.n_items), 10)]
    assert over.min() > 5
    assert len(set(over.tolist())) > 5
    assert best["prediction"].to_list() == [5.0] * 10
    expected = slow_list(scores, range(small.n_items), 10)
    assert best["item_id"].to_list() == small.item_ids[expected].tolist()


def test_equal_scores_are_in_the_order_of_items(small):
    model = FedMMF(mask="mean", factors=2, rounds=1).fit(small)
    model.learned.item_factors[:] = 0.0
    for user in (0, 5):
        unrated = sorted(set(range(small.n_items)) - rated_by(small, user))
        best = model.recommend(small.user_ids[user], n=8)
        assert best["item_id"].to_list() == small.item_ids[unrated[:8]].tolist()


@pytest.mark.parametrize("mask", ["none", "mean", "fm", "nn"])
def test_many_users_get_what_each_of_them_gets_alone(small, mask):
    model = FedMMF(mask=mask, solver="vb", factors=3, rounds=4, ensemble=2).fit(small)
    users = small.user_ids[[41, 2, 17]].tolist()
    together = model.recommend(users=users, n=7)
    assert together.columns == ["user_id", "rank", "item_id", "title", "prediction"]
    assert together["user_id"].to_list() == np.repeat(users, 7).tolist()
    assert together["rank"].to_list() == [1, 2, 3, 4, 5, 6, 7] * 3
    for user in users:
        alone = model.recommend(user, n=7)
        assert together.filter(user_id=user).drop("user_id", "rank").equals(alone)
        predicted = model.predict([user] * 7, alone["item_id"])
        np.testing.assert_allclose(alone["prediction"], predicted, rtol=1e-5)


@pytest.mark.parametrize("as_what", [list, np.array, set, tuple, pl.Series], ids=str)
def test_candidates_may_be_given_or_excluded_with_or_without_seen_items(model, small, as_what):
    scores, rated = unclipped(model, 7), rated_by(small, 7)
    some, out = set(range(0, small.n_items, 2)), set(range(0, small.n_items, 6))
    user, ids = small.user_ids[7], small.item_ids
    asked = {
        "candidates": as_what(ids[sorted(some)].tolist()),
        "exclude": as_what(ids[sorted(out)].tolist()),
    }
    for seen in (False, True):
        left = some - out - (set() if seen else rated)
        best = model.recommend(user, 5, **asked, seen=seen)
        assert best["item_id"].to_list() == ids[slow_list(scores, left, 5)].tolist()
    assert (some - out) & rated & set(slow_list(scores, some - out, 40))


def test_candidates_in_any_order_and_twice_are_the_same_candidates(model, small):
    ids = small.item_ids[[30, 4, 50, 4]].tolist()
    best = model.recommend(small.user_ids[0], candidates=ids, seen=True)
    assert best.equals(model.recommend(small.user_ids[0], candidates=sorted(set(ids)), seen=True))
    assert len(best) == 3


def test_recommending_too_much_gives_what_there_is(model, small):
    user, rated = small.user_ids[0], rated_by(small, 0)
    assert len(model.recommend(user, n=10_000)) == small.n_items - len(rated)
    one = [small.item_ids[min(rated)].item()]
    nothing = model.recommend(user, candidates=one)
    assert nothing.columns == ["item_id", "title", "prediction"]
    assert len(nothing) == 0
    both = model.recommend(users=[user, small.user_ids[1]], candidates=one, exclude=one)
    assert (len(both), both.columns[:2]) == (0, ["user_id", "rank"])


def test_what_the_model_never_saw_may_be_excluded(model, small):
    best = model.recommend(small.user_ids[0], exclude=["no such item", 10**6])
    assert best.equals(model.recommend(small.user_ids[0]))


def test_mistakes_say_what_was_required_and_what_arrived(model, small):
    user = small.user_ids[0].item()
    known = rf"it knows {small.n_items}, such as {small.item_ids[0]}\."
    mistakes = [
        ({"user": 777}, UnknownNameError, "knows no user 777; it knows 60, such as"),
        ({"users": [user, 7001, 7002]}, UnknownNameError, "knows no user 7001, 7002; it knows"),
        ({"users": range(7001, 7009)}, UnknownNameError, "7005 and 3 more; it knows"),
        ({"users": []}, SettingsError, "users must name at least one user; got none"),
        ({}, SettingsError, r"user=ID for one list or users=\[ID, \.\.\.\] .* got neither"),
        ({"user": user, "users": [user]}, SettingsError, "got both"),
        ({"user": user, "n": 0}, SettingsError, "n must be at least 1; got 0"),
        ({"user": user, "candidates": []}, SettingsError, "at least one item; got none"),
        ({"user": user, "candidates": [10**6]}, UnknownNameError, rf"no item 1000000; {known}"),
        ({"user": user, "candidates": ["x"]}, UnknownNameError, rf"no item 'x'; {known}"),
    ]
    for asked, kind, message in mistakes:
        with pytest.raises(kind, match=message):
            model.recommend(**asked)


def test_a_newcomer_gets_lists_like_everybody(model, small):
    given = dict.fromkeys(small.item_ids[[3, 8, 20]].tolist(), 5.0)
    newcomer, ids = model.join(given), small.item_ids.tolist()
    assert len(newcomer.recommend(5)) == 5
    everything = newcomer.recommend(1000, seen=True)
    assert sorted(everything["item_id"]) == ids
    assert set(ids) - set(newcomer.recommend(1000)["item_id"]) == set(given)
    some = newcomer.recommend(candidates=ids[:10], exclude=ids[:2])["item_id"].to_list()
    left = set(ids[2:10]) - set(given)
    assert some == [item for item in everything["item_id"] if item in left]
    with pytest.raises(SettingsError, match="n must be at least 1"):
        newcomer.recommend(0)


def test_a_newcomers_list_is_made_before_clipping(model, small):
    newcomer = model.join(dict.fromkeys(small.item_ids[:30].tolist(), 5.0))
    party = newcomer.party
    newcomer.predict(small.item_ids[:1])  # lets it find its factors
    party.users.user_factors = 100 * party.user_factors
    party.join_late = lambda solver, variant, broadcast, population: None
    scores = party.scores(np.arange(small.n_items))
    best = newcomer.recommend(10, seen=True)
    expected = slow_list(scores, range(small.n_items), 10)
    assert scores[expected].min() > 5
    assert best["item_id"].to_list() == small.item_ids[expected].tolist()
    assert best["prediction"].to_list() == [5.0] * 10


# How good they are


def slow_scores(lists, relevant, raters, n_users, top):
    """Every metric of the lists by user, word by word, at the usual lengths and at `top`."""

    def mean(of):
        return float(np.mean([of(lists[user], relevant[user]) for user in relevant]))

    def discounted(hits):
        return sum(hit / np.log2(rank + 1) for rank, hit in enumerate(hits, 1))

    def bits(item):
        return -np.log2(max(raters[item], 1) / n_users)

    found = {}
    for n in (10, 20, top):
        found[f"ndcg_at_{n}"] = mean(
            lambda best, good, n=n: (
                discounted([item in good for item in best[:n]])
                / discounted([True] * min(n, len(good)))
            )
        )
        found[f"recall_at_{n}"] = mean(
            lambda best, good, n=n: len(good.intersection(best[:n])) / len(good)
        )
        found[f"precision_at_{n}"] = mean(
            lambda best, good, n=n: len(good.intersection(best[:n])) / n
        )
        found[f"hit_rate_at_{n}"] = mean(
            lambda best, good, n=n: float(bool(good.intersection(best[:n])))
        )
        found[f"map_at_{n}"] = mean(
            lambda best, good, n=n: (
                sum(
                    len(good.intersection(best[:rank])) / rank
                    for rank, item in enumerate(best[:n], 1)
                    if item in good
                )
                / len(good)
            )
        )
        found[f"mrr_at_{n}"] = mean(
            lambda best, good, n=n: max(
                (1 / rank for rank, item in enumerate(best[:n], 1) if item in good), default=0.0
            )
        )
        found[f"novelty_at_{n}"] = mean(
            lambda best, good, n=n: np.mean([bits(item) for item in best[:n]])
        )
        shown = {item for user in relevant for item in lists[user][:n]}
        found[f"coverage_at_{n}"] = len(shown) / len(raters)
    return found


def slow_lists(model, train, test, relevant_from, n):
    """What there is to find, and the lists of the model and of popularity; all by codes."""
    raters = np.bincount(train.item_codes, minlength=train.n_items)
    relevant, ours, popular = {}, {}, {}
    for user in range(train.n_users):
        mine = (test.user_codes == user) & (test.values >= relevant_from)
        if mine.any():
            relevant[user] = set(test.item_codes[mine].tolist())
            left = set(range(train.n_items)) - rated_by(train, user)
            ours[user] = slow_list(unclipped(model, user), left, n)
            popular[user] = slow_list(raters, left, n)
    return relevant, ours, popular, raters


@pytest.mark.parametrize(("relevant_from", "top"), [(None, 10), (5, 3), (2.5, 45)])
def test_lists_are_scored_beside_popularity(fitted, parts, relevant_from, top):
    train, test = parts
    found = fitted.evaluate(test, top=top, relevant_from=relevant_from)["ranking"]
    assert isinstance(found, RankingScores)
    least = 4.0 if relevant_from is None else relevant_from
    relevant, ours, popular, raters = slow_lists(fitted, train, test, least, 45)
    assert (found.n_users, found.relevant_from) == (len(relevant), least)
    for lists, scores in ((ours, found), (popular, found.popularity)):
        slow = slow_scores(lists, relevant, raters, train.n_users, top)
        metrics = scores.metrics()
        assert {*ListScores.model_fields, f"map_at_{top}"} <= set(metrics)
        assert metrics == pytest.approx({name: slow[name] for name in metrics})


@pytest.mark.filterwarnings("ignore:.*unsafe cast")  # of numba, about ranx
def test_lists_and_popularity_are_scored_as_ranx_scores_them(fitted, parts):
    reason = "ranx is not installed: pip install 'fedmmf[dev]'"
    ranx = pytest.importorskip("ranx", reason=reason)
    train, test = parts
    found = fitted.evaluate(test, top=7)["ranking"]
    relevant, ours, popular, _ = slow_lists(fitted, train, test, 4.0, 20)
    judged = ranx.Qrels(
        {str(user): {str(item): 1 for item in own} for user, own in relevant.items()}
    )
    for lists, scores in ((ours, found), (popular, found.popularity)):
        run = ranx.Run(
            {
                str(user): {str(item): 1.0 / rank for rank, item in enumerate(best, 1)}
                for user, best in lists.items()
            }
        )
        names = [name for name in scores.metrics() if not name.startswith(("cover", "novel"))]
        theirs = ranx.evaluate(judged, run, [name.replace("_at_", "@") for name in names])
        assert {name.replace("@", "_at_"): value for name, value in theirs.items()} == (
            pytest.approx({name: scores.metrics()[name] for name in names})
        )


def test_a_threshold_is_a_rating_also_where_floats_are_not_exact():
    frame = pl.DataFrame(
        {"user_id": [1, 1, 2, 2], "item_id": [1, 2, 1, 3], "rating": [0.7, 0.1, 0.6, 0.7]}
    )
    ratings = Ratings.from_frame(frame, scale=RatingScale(0.0, 1.0, 0.1))
    is_test = np.array([True, False, False, True])
    train, test = ratings.select(~is_test), ratings.select(is_test)
    model = FedMMF(mask="mean", factors=1, rounds=1, sharing="plain").fit(train)
    assert model.evaluate(test, top=1, relevant_from=0.7)["ranking"].n_users == 2
    assert model.evaluate(test, top=1)["ranking"].n_users == 0


def test_where_nobody_can_find_anything_there_are_no_figures(model, small):
    """All that is relevant was rated in training, and so is in nobody's list."""
    found = model.evaluate(small, top=10)["ranking"]
    assert found.n_users == 0
    assert set(found.metrics().values()) == {None}
    assert set(found.popularity.metrics().values()) == {None}


def test_unknown_users_and_items_are_nobodys_to_find(fitted, parts):
    _, test = parts
    strange = pl.DataFrame(
        {
            "user_id": [10**6, int(test.user_ids[0])],
            "item_id": [int(test.item_ids[0]), 10**6],
            "rating": [5.0, 5.0],
        }
    )
    frame = test.to_frame().select("user_id", "item_id", pl.col("rating").cast(pl.Float64))
    more = Ratings.from_frame(pl.concat([frame, strange]), scale=test.scale)
    assert fitted.evaluate(more, top=10)["ranking"] == fitted.evaluate(test, top=10)["ranking"]


def test_questions_about_lists_that_make_no_sense_are_refused(fitted, parts):
    test = parts[1]
    with pytest.raises(SettingsError, match="top must be at least 1; got 0"):
        fitted.evaluate(test, top=0)
    with pytest.raises(SettingsError, match="relevant_from is about lists; give top"):
        fitted.evaluate(test, relevant_from=4)
    for value in (0.5, 6, float("nan")):
        with pytest.raises(SettingsError, match=r"on the scale 1\.\.5 in steps of 1; got"):
            fitted.evaluate(test, top=3, relevant_from=value)


def test_progress_is_told(fitted, parts):
    told = []
    found = fitted.evaluate(parts[1], top=3, progress=lambda *words: told.append(words))
    n_users = found["ranking"].n_users
    n_test, each = len(parts[1]), range(1, n_users + 1)
    assert told == [
        ("test ratings", 0, n_test),
        ("test ratings", n_test, n_test),
        *(("popular lists", done, n_users) for done in each),
        *(("lists", done, n_users) for done in each),
    ]


def test_the_page_on_lists_has_the_figures_of_real_ratings(ml_100k):
    """Those of popularity exactly, those of the model as far as solvers stay what they are."""
    train, test = ml_100k.split(test=0.2, seed=0)
    model = FedMMF(mask="mean", solver="vb", seed=0).fit(train)
    found = model.evaluate(test, top=10)["ranking"]
    ours, popular = found.metrics(), found.popularity.metrics()
    rows = re.findall(r"^\| (.+@.+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    names = {metric_title(name): name for name in ours}
    assert len(rows) == 7
    for title, of_model, of_popularity in rows:
        assert float(of_model) == pytest.approx(ours[names[title]], rel=0.1)
        assert of_popularity == f"{popular[names[title]]:.3f}"


# Memory

WIDE = {"n_users": 240, "n_items": 20_000, "n_ratings": 30_000}


@pytest.fixture(scope="module")
def wide():
    ratings = synthetic(*WIDE.values(), seed=1)
    return ratings, FedMMF(mask="mean", factors=2, rounds=1).fit(ratings)


def peak_of(work):
    work()  # what is cached is cached
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_number_of_users(wide):
    """Scores of all items for 240 users are 19 MB; nobody's are kept."""
    ratings, model = wide
    learned = model.learned
    wanted = ListRequest.checked(learned, 10, None, (), False)

    def peak(n_users):
        ids = ratings.user_ids[:n_users]
        return peak_of(lambda: lists_for(learned, ids, wanted))

    few, many = peak(24), peak(240)
    assert many - few < 1_000 * (240 - 24)  # the lists themselves; scores would be 80,000 each


def test_memory_of_an_evaluation_does_not_grow_with_the_number_of_users(wide):
    ratings, _ = wide
    train, test = ratings.split(0.2, seed=0)
    model = FedMMF(mask="mean", factors=2, rounds=1).fit(train)

    def peak(n_users):
        part = test.select(test.user_codes < n_users)
        return peak_of(lambda: model.evaluate(part, top=10))

    few, many = peak(24), peak(240)
    assert many - few < 5_000 * (240 - 24)  # test ratings; a user's scores alone would be 80,000


def test_a_list_is_made_when_it_is_asked_for(wide):
    """A caller may write lists away as they come."""
    _, model = wide
    asked = []

    def score(user):
        asked.append(int(user))
        return np.arange(model.learned.n_items, dtype=np.float32)

    wanted = ListRequest(3, np.arange(model.learned.n_items), model.learned.n_items)
    lists = each_list(model.learned, score, np.array([5, 9]), wanted)
    assert asked == []
    next(lists)
    assert asked == [5]


def test_the_features_of_an_item_are_used(small):
    """A mask sees every item's own features, whatever the candidates are."""
    model = FedMMF(mask="lr", factors=2, rounds=1).fit(small)
    model.learned.item_factors[:] = 0.0
    ids = small.item_ids[[5, 60, 33]].tolist()
    best = model.recommend(small.user_ids[2], candidates=ids, seen=True)
    theta = model.learned.theta[2]
    by_mask = base_of(model.learned)[:-1] + 4.0 * (theta[0] + content_features(small) @ theta[1:])
    np.testing.assert_allclose(
        sorted(best["prediction"]), np.sort(np.clip(by_mask[[5, 60, 33]], 1, 5)), rtol=1e-5
    )


def test_a_model_of_ratings_says_that_it_is_one():
    assert "'ranking'" in what_ranks(FedMMF().settings)


def test_lists_of_a_rating_model_are_warned_of_once(parts):
    train, test = parts
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(train)
    user = train.user_ids[0]
    with pytest.warns(FedMMFWarning, match=r"not measured; .* the objective 'ranking'"):
        model.recommend(user)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.recommend(user)
        FedMMF(objective="ranking", factors=2, rounds=2).fit(train).recommend(user)
    assert caught == []
    found = model.fit(train).evaluate(test, top=10)["ranking"]
    figures = f"{found.ndcg_at_10:.4f}, the most popular items {found.popularity.ndcg_at_10:.4f}"
    with pytest.warns(FedMMFWarning, match=f"predicted ratings: nDCG@10 {figures}"):
        model.recommend(user)


def test_the_warning_is_no_error_where_warnings_are(parts, caplog):
    """As in this project's tests, and in those of many users."""
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(parts[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(model.recommend(parts[0].user_ids[0], n=3)) == 3
    assert "lists are of predicted ratings" in caplog.text


def test_what_was_measured_is_kept_with_the_model(parts, tmp_path):
    train, test = parts
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(train)
    model.save(tmp_path / "untested")
    assert FedMMF.load(tmp_path / "untested").list_scores is None
    scores = model.evaluate(test, top=5)["ranking"]
    model.evaluate(test)  # without lists: nothing new is known of them
    model.save(tmp_path / "tested")
    assert FedMMF.load(tmp_path / "tested").list_scores == scores
    assert model.fit(train).list_scores is None


def test_lists_of_a_loaded_model_are_the_same(fitted, parts, tmp_path):
    fitted.save(tmp_path / "model")
    again = FedMMF.load(tmp_path / "model")
    users = parts[0].user_ids[:5]
    assert again.recommend(users=users).equals(fitted.recommend(users=users))
    assert again.evaluate(parts[1], top=5) == fitted.evaluate(parts[1], top=5)


def test_many_who_get_nothing_but_fives_get_them_in_order(ml_100k):
    """In version 0.1, 72 of 943 users got ten items at 5.00 in the order of their ids."""
    model = FedMMF(mask="lr", solver="sgd", factors=20, seed=0).fit(ml_100k.split(0.2, seed=0)[0])
    lists = model.recommend(users=ml_100k.user_ids)
    flat = lists.group_by("user_id").agg(
        (pl.col("prediction") == 5.0).all().alias("is_flat"),
        (pl.col("item_id").diff() > 0).all().alias("by_id"),
    )
    assert flat["is_flat"].sum() > 20
    assert flat.filter("is_flat")["by_id"].sum() < 3


def test_synthetic_users_are_found_by_their_text_too():
    ratings = load("synthetic")
    model = FedMMF(mask="mean", factors=2, rounds=2).fit(ratings)
    user = ratings.user_ids[4].item()
    assert model.recommend(str(user)).equals(model.recommend(user))
    assert model.recommend(users=[str(user)])["user_id"].unique().to_list() == [user]
