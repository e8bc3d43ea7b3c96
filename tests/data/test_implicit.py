"""What somebody used is a 1: asked for, or because a file has no ratings."""

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings, RatingScale, load
from fedmmf.data import read_own_ratings, read_split
from fedmmf.errors import DataError, SettingsError

UNIT = RatingScale(0, 1, 1)


def is_implicit(ratings):
    return ratings.is_implicit and ratings.scale == UNIT and set(ratings.values) == {1.0}


def test_ratings_are_ignored_when_asked(frame):
    odd = frame.with_columns(rating=pl.lit("so-so"))
    ratings = Ratings.from_frame(odd, implicit=True)
    assert is_implicit(ratings)
    assert (
        ratings.to_frame()
        .drop("rating")
        .equals(Ratings.from_frame(frame).to_frame().drop("rating"))
    )
    assert not Ratings.from_frame(frame).is_implicit


def test_splits_stay_implicit(frame):
    ratings = Ratings.from_frame(frame, implicit=True)
    parts = (*ratings.split(0.4), *ratings.split_by_time(0.4))
    assert all(map(is_implicit, parts))
    assert is_implicit(ratings.select(ratings.user_codes == 0))


def test_a_frame_without_ratings_is_implicit_and_says_so_once(frame, caplog):
    ratings = Ratings.from_frame(frame.drop("rating").with_columns(grade=3), name="mine")
    assert is_implicit(ratings)
    (line,) = caplog.messages
    assert line.startswith("mine: no column rating among user_id, item_id, timestamp, grade: every")
    caplog.clear()
    Ratings.from_frame(frame.drop("rating"), implicit=True)
    Ratings.from_frame(frame)
    assert not caplog.messages


@pytest.mark.parametrize(
    "text",
    [
        "user_id,item_id\n7,20\n\n3,10\n7,20\n",
        "7\t20\n3\t10\n7\t20\n",
        "7::20\n3::10\n7::20\n",
        "item_id,timestamp,user_id\n20,9,7\n10,5,3\n20,1,7\n",
    ],
)
def test_files_of_pairs_count_each_pair_once(tmp_path, text):
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    ratings = Ratings.from_file(path)
    assert is_implicit(ratings)
    assert ratings.to_frame()["user_id", "item_id"].rows() == [(3, 10), (7, 20)]
    if ratings.timestamps is not None:
        assert ratings.timestamps.tolist() == [5, 9]  # the latest


def test_text_ids_without_a_header_are_no_header(tmp_path):
    (tmp_path / "pairs.csv").write_text("ann,20\nbob,10\n")
    assert Ratings.from_file(tmp_path / "pairs.csv").user_ids.tolist() == ["ann", "bob"]
    (tmp_path / "pairs.csv").write_text("ann,x\nbob,y\n")
    with pytest.raises(DataError, match="missing: user_id, item_id; arrived: ann, x"):
        Ratings.from_file(tmp_path / "pairs.csv")


def test_where_a_scale_of_ratings_is_needed_their_absence_is_an_error(tmp_path, frame):
    stars = RatingScale(1, 5, 1)
    with pytest.raises(DataError, match="missing: rating"):
        Ratings.from_frame(frame.drop("rating"), scale=stars)
    with pytest.raises(SettingsError, match=r"on the scale 0\.\.1 .*got 1\.\.5"):
        Ratings.from_frame(frame, scale=stars, implicit=True)
    with pytest.raises(SettingsError, match=r"on the scale 0\.\.1"):
        load("synthetic", scale=stars, implicit=True)
    assert is_implicit(Ratings.from_frame(frame.drop("rating"), scale=UNIT))


def test_named_sets(public_data):
    ratings, counts = load("lastfm", implicit=True), load("lastfm")
    assert is_implicit(ratings)
    np.testing.assert_array_equal(ratings.item_codes, counts.item_codes)
    assert ratings.features.names == counts.features.names
    assert is_implicit(load(public_data / "ml-100k.zip", implicit=True))
    assert not counts.is_implicit


def test_files_of_a_split(tmp_path):
    (tmp_path / "base").write_text("1\t5\n2\t6\n1\t5\n")
    (tmp_path / "test").write_text("1\t6\n")
    parts = read_split(tmp_path / "base", tmp_path / "test")
    assert all(map(is_implicit, parts))
    assert [len(part) for part in parts] == [2, 1]
    (tmp_path / "test").write_text("1\t5\n")
    with pytest.raises(DataError, match="user 1 and item 5"):
        read_split(tmp_path / "base", tmp_path / "test")


def test_a_model_of_implicit_feedback_trains_and_welcomes(small, tmp_path):
    train, test = small.as_implicit().split(0.2)
    model = FedMMF(objective="ranking", mask="none", rounds=8, factors=3).fit(train)
    found = model.evaluate(test)["ranking"]
    assert 0 < found.recall_at_20 <= 1
    file = tmp_path / "mine.csv"
    file.write_text("item_id\n3\n5\n5\n")
    own = read_own_ratings(file, model.learned.scale)
    assert own == {3: 1.0, 5: 1.0}
    assert len(model.join(own).recommend(4)) == 4
    with pytest.raises(DataError, match="missing: rating"):
        read_own_ratings(file, RatingScale(1, 5, 1))


def test_a_persons_file_is_of_one_person(tmp_path):
    (tmp_path / "ours.csv").write_text("user_id,item_id,rating\n1,3,5\n2,4,1\n")
    with pytest.raises(
        DataError, match=r"of one person; it has those of 2, such as 1 and 2\. Keep the rows"
    ):
        read_own_ratings(tmp_path / "ours.csv")


def test_two_columns_of_a_person_are_item_and_rating_where_ratings_are_needed(tmp_path, caplog):
    (tmp_path / "mine.csv").write_text("3,5\n4,1\n")
    stars = RatingScale(1, 5, 1)
    assert read_own_ratings(tmp_path / "mine.csv", stars) == {3: 5.0, 4: 1.0}
    assert caplog.messages == ["mine.csv: no header, so columns are item_id, rating"]
    (tmp_path / "mine.csv").write_text("me,3\nme,5\n")
    assert read_own_ratings(tmp_path / "mine.csv", UNIT) == {3: 1.0, 5: 1.0}
    (tmp_path / "mine.csv").write_text("Stück;Note\n3;5\n", "latin-1")
    columns = {"item": "1", "rating": "Note"}
    assert read_own_ratings(tmp_path / "mine.csv", stars, columns=columns) == {3: 5.0}


def test_somebody_who_joins_rates_an_item_once(tmp_path):
    (tmp_path / "mine.csv").write_text("item_id,rating\n3,5\n4,1\n3,2\n")
    with pytest.raises(DataError, match=r"mine\.csv must rate an item once; 3 is there more often"):
        read_own_ratings(tmp_path / "mine.csv", RatingScale(1, 5, 1))
