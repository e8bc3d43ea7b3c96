"""Published splits, and newcomers."""

import zipfile

import numpy as np
import polars as pl
import pytest

from fedmmf import Ratings, RatingScale, load, load_split
from fedmmf.data import read_split, split_newcomers
from fedmmf.errors import DataError, SettingsError, UnknownNameError


@pytest.mark.parametrize(("split", "n_test"), [("u1", 20_000), ("u5", 20_000), ("ua", 9_430)])
def test_publishers_splits_of_ml_100k(public_data, split, n_test):
    whole = load("ml-100k")
    train, test = load_split("ml-100k", split)
    assert (len(train), len(test)) == (100_000 - n_test, n_test)
    assert train.n_users == test.n_users == whole.n_users
    assert train.scale == whole.scale
    assert train.profiles.names == whole.profiles.names
    both = pl.concat([train.to_frame(), test.to_frame()]).sort("user_id", "item_id")
    assert both.equals(whole.to_frame())


def test_they_are_what_the_files_say(public_data, tmp_path):
    with zipfile.ZipFile(public_data / "ml-100k.zip") as archive:
        for ending in ("base", "test"):
            (tmp_path / f"u2.{ending}").write_bytes(archive.read(f"ml-100k/u2.{ending}"))
    by_path = load_split(public_data / "ml-100k.zip", "u2", implicit=True)
    for part, again in zip(
        by_path, read_split(tmp_path / "u2.base", tmp_path / "u2.test"), strict=True
    ):
        assert part.is_implicit
        assert part.to_frame().drop("rating").equals(again.to_frame().drop("rating"))


def test_an_unknown_split_is_named_with_those_there_are(public_data):
    with pytest.raises(UnknownNameError, match=r"no split 'u9'.*: u1, u2, .*, ub\."):
        load_split("ml-100k", "u9")
    with pytest.raises(UnknownNameError, match="publisher: none"):
        load_split("synthetic", "u1")


def test_newcomers_are_held_out_whole(small):
    train, given, test = split_newcomers(small, share=0.2, n_given=5, seed=3)
    new = set(given.user_codes.tolist())
    assert len(new) == round(0.2 * small.n_users)
    assert new == set(test.user_codes.tolist())
    assert not new & set(train.user_codes.tolist())
    assert np.bincount(given.user_codes).max() == 5 == len(given) / len(new)
    assert len(train) + len(given) + len(test) == len(small)
    frames = [part.to_frame() for part in (train, given, test)]
    assert pl.concat(frames).sort("user_id", "item_id").equals(small.to_frame())
    assert train.n_users == small.n_users


def test_more_given_ratings_are_the_same_and_more(small):
    few, many = (split_newcomers(small, 0.2, n, seed=3)[1].to_frame() for n in (3, 8))
    assert few.join(many, on=["user_id", "item_id"], how="anti").is_empty()
    other = split_newcomers(small, 0.2, 3, seed=4)[1].to_frame()
    assert not other.equals(few)


def test_newcomers_can_only_say_what_is_on_the_scale(frame):
    strange = frame.with_columns(rating=pl.when(user_id=7).then(pl.lit(9.0)).otherwise("rating"))
    ratings = Ratings.from_frame(strange.filter(pl.col("user_id") != 9))
    parts = [split_newcomers(ratings, 0.5, 1, seed) for seed in range(9)]
    train, given, test = next(one for one in parts if one[1].user_codes[0] == 1)
    assert train.scale == given.scale == test.scale == RatingScale(3, 5, 2)
    assert (given.values.tolist(), test.values.tolist()) == ([5.0], [9.0])


@pytest.mark.parametrize(("share", "n_given"), [(0, 5), (1, 5), (0.2, 0), (0.001, 5)])
def test_newcomers_that_make_no_sense(small, share, n_given):
    with pytest.raises(SettingsError, match="share of the 60 users"):
        split_newcomers(small, share, n_given)


def test_newcomers_need_ratings_to_be_tested_on(small):
    with pytest.raises(SettingsError, match="need more than 500 ratings each; 0 users"):
        split_newcomers(small, 0.2, 500)


def test_a_test_file_shares_no_pair_with_the_training_file(tmp_path):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("user_id,item_id,rating\n1,1,3\n1,2,4\n2,1,5\n")
    test.write_text("user_id,item_id,rating\n1,2,4\n2,2,1\n")
    with pytest.raises(DataError, match=r"1 \(user, item\) pairs are in both.* user 1 and item 2"):
        read_split(train, test)
