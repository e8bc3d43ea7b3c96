"""Lists against epsilon."""

import math

import numpy as np
import polars as pl
import pytest

from fedmmf.data import Ratings
from fedmmf.data.synthetic import synthetic
from fedmmf_experiments.private import curve, lists
from fedmmf_experiments.private.noise import Privacy, multiplier
from fedmmf_experiments.private.pairs import Pairs
from fedmmf_experiments.private.rows import DpTrial, rows_called
from fedmmf_experiments.result_cache import ResultCache

pytest.importorskip("dp_accounting", reason="the extra `dp`")


@pytest.fixture(scope="module")
def ratings():
    return synthetic(120, 80, 2600, seed=4)


def trial_of(ratings, epsilon, seed=0):
    return DpTrial(*ratings.split(0.2, seed=0), Privacy(epsilon, 1e-5), seed)


def test_without_noise_popularity_is_a_count_that_no_user_dominates(ratings):
    found = lists.noisy_popularity(trial_of(ratings, math.inf))
    counts = np.bincount(ratings.split(0.2, seed=0)[0].item_codes, minlength=80)
    assert np.corrcoef(found, counts)[0, 1] > 0.97
    assert found.sum() == pytest.approx(counts.sum(), rel=0.3)


def test_noise_of_popularity_has_the_whole_budget_and_users_a_length_of_one(ratings):
    """The spread over runs, of items whose counts are far above 0."""
    exact = lists.noisy_popularity(trial_of(ratings, math.inf))
    runs = np.stack([lists.noisy_popularity(trial_of(ratings, 8.0, seed)) for seed in range(200)])
    pairs = Pairs.of(ratings.split(0.2, seed=0)[0])
    scale = np.sqrt(pairs.sizes).mean()  # counts are brought to the scale of raters
    often = exact / scale > 6 * multiplier(8.0, 1e-5)
    assert often.sum() > 5
    assert runs[:, often].std(axis=0).mean() / scale == pytest.approx(
        multiplier(8.0, 1e-5), rel=0.1
    )


def test_the_mask_alone_finds_what_users_like_of_public_features():
    """Two kinds of users, who rate items of their own kind: popularity cannot tell them apart."""
    stream = np.random.default_rng(0)
    rated = [2 * stream.choice(30, 14, replace=False) + user % 2 for user in range(80)]
    frame = pl.DataFrame(
        {
            "user_id": np.repeat(np.arange(80), 14),
            "item_id": np.concatenate(rated),
            "rating": np.full(80 * 14, 4.0),
        }
    )
    kinds = pl.DataFrame({"item_id": np.arange(60), "is_odd": np.arange(60) % 2})
    ratings = Ratings.from_frame(frame, scale=(1, 5)).with_features(kinds)
    [mask] = rows_called(["mask"], lists.LIST_ROWS)
    trial = trial_of(ratings, 2.0)
    assert mask.score(trial, {}) > 1.5 * lists.popularity(trial, {})


def test_more_is_better_in_a_table_of_lists(ratings):
    rows = rows_called(["mask", "popularity", "popularity-no-noise"], lists.LIST_ROWS)
    plan = curve.DpPlan([0.2, 50.0], rows, splits=2, metric=curve.NDCG)
    report = curve.run(ratings, plan, ResultCache(), lambda done, of: None)
    assert report.metric == "nDCG@10"
    for name in ("mask", "popularity"):
        tight, loose = report.of(name)
        assert loose.mean > tight.mean
