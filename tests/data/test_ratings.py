import dataclasses

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmmf.data import ItemFeatures, Ratings, RatingScale, read_split
from fedmmf.errors import DataError, SettingsError, UnknownNameError


def random_frame(n=500, seed=0):
    generator = np.random.default_rng(seed)
    pairs = generator.choice(40 * 30, n, replace=False)
    return pl.DataFrame(
        {
            "user_id": pairs // 30,
            "item_id": pairs % 30,
            "rating": generator.integers(1, 6, n).astype(float),
            "timestamp": generator.integers(0, 100, n),
        }
    )


def test_codes_are_in_canonical_order(frame):
    ratings = Ratings.from_frame(frame)
    assert ratings.user_ids.tolist() == [3, 7, 9]
    assert ratings.item_ids.tolist() == [10, 20, 30]
    assert ratings.user_codes.tolist() == [0, 0, 1, 1, 2]
    assert ratings.item_codes.tolist() == [0, 2, 0, 1, 1]
    assert ratings.values.tolist() == [5, 3, 1, 4, 2]
    assert ratings.timestamps.tolist() == [10, 30, 40, 50, 20]
    kinds = (ratings.user_codes.dtype, ratings.item_codes.dtype, ratings.values.dtype)
    assert kinds == (np.int32, np.int32, np.float32)
    assert (ratings.n_users, ratings.n_items, ratings.n_ratings, len(ratings)) == (3, 3, 5, 5)


def test_nothing_can_be_changed(frame):
    ratings = Ratings.from_frame(frame)
    arrays = [getattr(ratings, field.name) for field in dataclasses.fields(ratings)]
    arrays += [ratings.by_user, ratings.by_item.indptr, ratings.by_item.order]
    for array in arrays:
        if isinstance(array, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = array[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        ratings.name = "other"


def test_repr_is_short_and_honest(frame):
    ratings = Ratings.from_frame(frame, name="mine")
    assert repr(ratings) == "<Ratings 'mine': 5 ratings 1..5 in steps of 1, 3 users, 3 items>"
    assert "synthetic" in repr(dataclasses.replace(ratings, synthetic=True))


def test_by_user_and_by_item_agree_with_a_loop():
    ratings = Ratings.from_frame(random_frame())
    for user in range(ratings.n_users):
        mine = [at for at in range(len(ratings)) if ratings.user_codes[at] == user]
        assert list(range(*ratings.by_user[user : user + 2])) == mine
    index = ratings.by_item
    for item in range(ratings.n_items):
        mine = [at for at in range(len(ratings)) if ratings.item_codes[at] == item]
        assert index.order[index.indptr[item] : index.indptr[item + 1]].tolist() == mine
    assert index.order.dtype == index.indptr.dtype == ratings.by_user.dtype == np.int64


def test_by_item_counts_items_without_ratings(frame):
    ratings = Ratings.from_frame(frame)
    kept = ratings.select(ratings.item_codes != 1)
    assert np.diff(kept.by_item.indptr).tolist() == [2, 0, 1]
    assert np.diff(kept.by_user).tolist() == [2, 1, 0]


def test_codes_by_id(frame):
    ratings = Ratings.from_frame(frame)
    assert ratings.user_code(7) == ratings.user_code("7") == 1
    assert ratings.item_code(np.int64(30)) == 2
    for unknown in (8, "8", "anna", 10**30):
        with pytest.raises(UnknownNameError, match="include 3"):
            ratings.user_code(unknown)


def test_codes_by_text_id():
    frame = {"user_id": ["ann", "bob"], "item_id": ["x1", "é2"], "rating": [1, 2]}
    ratings = Ratings.from_frame(pl.DataFrame(frame))
    assert ratings.user_code("bob") == 1
    assert ratings.item_code("é2") == 1
    with pytest.raises(UnknownNameError, match=r"'anna'.*'ann'"):
        ratings.user_code("anna")


def test_random_split_is_disjoint_exhaustive_and_reproducible():
    ratings = Ratings.from_frame(random_frame(n=503))
    train, test = ratings.split(test=0.2, seed=4)
    assert len(test) == round(0.2 * 503)
    both = pl.concat([train.to_frame(), test.to_frame()]).sort("user_id", "item_id")
    assert both.equals(ratings.to_frame())
    again = ratings.split(test=0.2, seed=4)[1]
    assert again.to_frame().equals(test.to_frame())
    assert not ratings.split(test=0.2, seed=5)[1].to_frame().equals(test.to_frame())
    assert train.n_items == test.n_items == ratings.n_items


def test_split_by_time_holds_out_the_latest():
    ratings = Ratings.from_frame(random_frame())
    train, test = ratings.split_by_time(test=0.3)
    assert len(test) == 150
    assert len(train) == 350
    assert train.timestamps.max() <= test.timestamps.min()
    assert ratings.split_by_time(0.3)[1].to_frame().equals(test.to_frame())


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, float("nan"), 0.01, 0.99])
def test_splits_that_make_no_sense_are_refused(frame, fraction):
    with pytest.raises(SettingsError, match="test fraction"):
        Ratings.from_frame(frame).split(test=fraction)


def test_split_by_time_needs_timestamps(frame):
    with pytest.raises(DataError, match="needs timestamps"):
        Ratings.from_frame(frame.drop("timestamp")).split_by_time()


def test_select_needs_a_mask(frame):
    ratings = Ratings.from_frame(frame)
    for wrong in (np.ones(4, dtype=bool), np.arange(5)):
        with pytest.raises(SettingsError, match="boolean mask"):
            ratings.select(wrong)


def test_unsorted_columns_are_refused(frame):
    ratings = Ratings.from_frame(frame)
    with pytest.raises(DataError, match="sorted"):
        dataclasses.replace(ratings, user_codes=ratings.user_codes[::-1].copy())


def test_pandas_and_polars_give_the_same(frame):
    columns = frame.to_dict(as_series=False)
    from_pandas = Ratings.from_frame(pd.DataFrame(columns))
    assert from_pandas.to_frame().equals(Ratings.from_frame(frame).to_frame())
    columns["user_id"] = ["b", "a", "b", "a", "c"]
    texts = Ratings.from_frame(pd.DataFrame(columns))
    assert texts.user_ids.tolist() == ["a", "b", "c"]


def test_dates_become_seconds(frame):
    dated = frame.with_columns(pl.from_epoch("timestamp"))
    assert Ratings.from_frame(dated).timestamps.tolist() == [10, 30, 40, 50, 20]
    pandas = pd.DataFrame(frame.to_dict(as_series=False))
    pandas["timestamp"] = pd.to_datetime(pandas["timestamp"], unit="s")
    assert Ratings.from_frame(pandas).timestamps.tolist() == [10, 30, 40, 50, 20]


def test_a_user_with_one_rating_works():
    one = Ratings.from_frame(pl.DataFrame({"user_id": [1], "item_id": [2], "rating": [3.0]}))
    assert (one.n_users, one.n_items, len(one)) == (1, 1, 1)
    assert one.timestamps is None


def test_features_must_fit(frame):
    ratings = Ratings.from_frame(frame)
    features = ItemFeatures(("a",), np.zeros((3, 1)))
    assert ratings.with_features(features).split(0.4)[0].features is features
    with pytest.raises(DataError, match="one row per item, 3; got 2"):
        ratings.with_features(features.take(np.array([0, 1])))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "timestamp,rating,item_id,user_id\n50,4,20,7\n10,5,10,3\n\n40,1,10,7\n"),
        (
            "r.tsv",
            "user_id\titem_id\trating\ttimestamp\r\n7\t20\t4\t50\r\n3\t10\t5\t10\r\n7\t10\t1\t40",
        ),
        ("r.dat", "7::20::4::50\n3::10::5::10\n7::10::1::40\n"),
        ("u.data", "7\t20\t4\t50\n3\t10\t5\t10\n7\t10\t1\t40\n"),
        ("bare.csv", "7, 20, 4.0, 50\n3, 10, 5, 10\n7, 10, 1, 40\n"),
        ("bom.csv", "\ufeffuser_id,item_id,rating,timestamp\n7,20,4,50\n3,10,5,10\n7,10,1,40\n"),
        ("q.csv", '"user_id","item_id","rating","timestamp"\n"7",20,4,50\n3,10,5,10\n7,10,1,40\n'),
    ],
)
def test_every_text_format(tmp_path, name, text):
    path = tmp_path / name
    path.write_bytes(text.encode())
    ratings = Ratings.from_file(path)
    assert ratings.name == path.stem
    assert ratings.to_frame().rows() == [(3, 10, 5.0, 10), (7, 10, 1.0, 40), (7, 20, 4.0, 50)]


def test_parquet_round_trip(tmp_path, frame):
    frame.write_parquet(tmp_path / "r.parquet")
    expected = Ratings.from_frame(frame).to_frame()
    assert Ratings.from_file(tmp_path / "r.parquet").to_frame().equals(expected)


def test_zero_padded_ids_stay_text(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("user_id,item_id,rating\n007,1,3\n7,1,4\n")
    assert Ratings.from_file(path).user_ids.tolist() == ["007", "7"]


def test_read_split_shares_vocabularies(tmp_path):
    (tmp_path / "u1.base").write_text("1\t5\t3\t10\n2\t6\t4\t11\n")
    (tmp_path / "u1.test").write_text("1\t7\t5\t12\n3\t5\t1\t13\n")
    train, test = read_split(tmp_path / "u1.base", tmp_path / "u1.test")
    assert train.user_ids.tolist() == test.user_ids.tolist() == [1, 2, 3]
    assert train.to_frame().rows() == [(1, 5, 3.0, 10), (2, 6, 4.0, 11)]
    assert test.to_frame().rows() == [(1, 7, 5.0, 12), (3, 5, 1.0, 13)]
    assert train.scale == test.scale == RatingScale(3, 4, 1)  # of the training part


def test_a_split_that_leaks_is_refused(tmp_path):
    (tmp_path / "a").write_text("1\t5\t3\n2\t6\t4\n")
    (tmp_path / "b").write_text("1\t5\t3\nx\t6\t4\n")
    with pytest.raises(DataError, match="user 1 and item 5"):
        read_split(tmp_path / "a", tmp_path / "b")


ids = st.one_of(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=8, unique=True),
    st.lists(st.text("abcé0 ", min_size=1, max_size=4), min_size=1, max_size=8, unique=True),
)


@settings(deadline=None, max_examples=60)
@given(users=ids, items=ids, data=st.data())
def test_frame_round_trip(users, items, data):
    pairs = [(user, item) for user in users for item in items]
    chosen = data.draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    stars = st.integers(1, 10).map(lambda half: half / 2)
    rows = [(*pair, data.draw(stars), data.draw(st.integers(0, 2**40))) for pair in chosen]
    frame = pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
    back = Ratings.from_frame(frame).to_frame()
    assert sorted(back.rows()) == sorted(frame.rows())
    assert back.rows() == back.sort("user_id", "item_id").rows()
