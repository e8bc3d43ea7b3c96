"""Ways to split a set for a table."""

from dataclasses import replace

import numpy as np
import pytest

from fedmmf.data import load_split
from fedmmf.errors import DataError, SettingsError
from fedmmf_experiments.paper.splitting import Splitting


def test_random_splits_are_those_of_their_seeds(small):
    parts = list(Splitting(count=3, test=0.3, seed=5).parts(small))
    assert [part.seed for part in parts] == [5, 6, 7]
    assert len({part.name for part in parts}) == 3
    for part in parts:
        train, test = part.make()
        expected = small.split(0.3, seed=part.seed)
        assert np.array_equal(train.item_codes, expected[0].item_codes)
        assert np.array_equal(test.values, expected[1].values)


def test_windows_of_time_grow_and_test_on_what_comes_next(small):
    timed = replace(small, timestamps=np.random.default_rng(0).permutation(len(small)))
    n, tested = len(small), []
    for number, part in enumerate(Splitting("time", 5).parts(timed)):
        train, test = part.make()
        assert len(train) == round((0.5 + 0.1 * number) * n)
        assert train.timestamps.max() < test.timestamps.min()
        tested.append(test.timestamps)
    late = np.concatenate(tested)
    assert len(np.unique(late)) == len(late) == n - n // 2  # each late rating once
    with pytest.raises(DataError, match="needs timestamps"):
        next(Splitting("time", 1).parts(replace(small, timestamps=None))).make()


def test_published_splits_test_every_rating_once(ml_100k):
    parts = list(Splitting("published", 5).parts(ml_100k))
    tests = [part.make()[1] for part in parts]
    assert sum(map(len, tests)) == len(ml_100k)
    expected = load_split("ml-100k", "u3")[1]
    assert np.array_equal(tests[2].item_codes, expected.item_codes)


def test_there_are_no_other_ways_and_no_more_splits():
    with pytest.raises(SettingsError, match="random, published, time; got 'leave-one-out'"):
        Splitting("leave-one-out")
    with pytest.raises(SettingsError, match="5 at most; got 6"):
        Splitting("time", 6)
    assert [Splitting(way, 2, 0.1).shared for way in ("random", "published")] == [0.1, 0.2]


def test_the_share_over_windows_is_that_of_the_first_one(small):
    """It tests on the most, beside what it trains on: the side of caution."""
    timed = replace(small, timestamps=np.arange(len(small)))
    made = [part.make() for part in Splitting("time", 5).parts(timed)]
    shares = [len(test) / (len(train) + len(test)) for train, test in made]
    assert Splitting("time", 5).shared == pytest.approx(max(shares), abs=1e-3)
    assert shares[0] == max(shares)
