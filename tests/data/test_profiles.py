"""What is known of the users: made as item features are, and kept with the ratings."""

import logging

import numpy as np
import polars as pl
import pytest

from fedmmf.data import Ratings, UserProfiles, load
from fedmmf.errors import DataError

PEOPLE = {"user_id": [7, 3, 9], "name": ["Ann", "Bo", "Cy"], "sex": ["f", "m", "f"]}


def test_profiles_are_encoded_as_features_are(frame):
    people = pl.DataFrame(PEOPLE | {"age": [30.0, 20.0, 40.0]})
    profiles = Ratings.from_frame(frame).with_profiles(people).profiles
    assert profiles.names == ("sex=f", "sex=m", "age")  # who it is does not say what they are like
    expected = [[-2 / 3, 2 / 3, -1.2247], [1 / 3, -1 / 3, 0], [1 / 3, -1 / 3, 1.2247]]
    np.testing.assert_allclose(profiles.values, expected, atol=1e-4)  # users 3, 7, 9
    assert repr(profiles) == "<UserProfiles: 3 users, 3 columns>"


def test_profiles_come_from_a_file_and_stay_through_splits(frame, tmp_path):
    file = tmp_path / "people.csv"
    pl.DataFrame(PEOPLE).write_csv(file)
    ratings = Ratings.from_frame(frame).with_profiles(file)
    train, test = ratings.split(0.4)
    later = ratings.split_by_time(0.4)[1].select(np.array([True, False]))
    for part in (train, test, later, ratings.with_profiles(ratings.profiles)):
        assert part.profiles is ratings.profiles


def test_users_without_a_row_are_average_and_counted_in_one_line(frame, caplog):
    with caplog.at_level(logging.WARNING):
        ratings = Ratings.from_frame(frame).with_profiles(pl.DataFrame(PEOPLE)[:2])
    np.testing.assert_array_equal(ratings.profiles.values[2], 0)
    (line,) = caplog.messages
    assert line == "1 of 3 users have no row in the profiles and count as average"


def test_profiles_that_do_not_fit_are_refused(frame):
    ratings = Ratings.from_frame(frame)
    with pytest.raises(DataError, match="Profiles need one row per user, 3; got 2"):
        ratings.with_profiles(UserProfiles(("a",), np.zeros((2, 1))))
    with pytest.raises(DataError, match="Profiles need a column user_id; arrived: id"):
        ratings.with_profiles(pl.DataFrame({"id": [1]}))
    with pytest.raises(DataError, match="No user of the profiles has ratings"):
        ratings.with_profiles(pl.DataFrame({"user_id": [1], "age": [3]}))
    with pytest.raises(DataError, match="at least one column besides user_id"):
        ratings.with_profiles(pl.DataFrame({"user_id": [3], "name": ["Bo"]}))


AGES = ("18-24", "25-34", "35-44", "45-49", "50-55", "56+", "under 18")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("ml-100k", {"age=18-24", "gender=M", "occupation=technician"}),
        ("ml-1m", {"age=under 18", "gender=F", "occupation=K-12 student"}),
    ],
)
def test_movielens_has_classes_of_age_gender_and_occupation(public_data, name, row):
    profiles = load(name).profiles
    assert profiles.names[:9] == (*(f"age={age}" for age in AGES), "gender=F", "gender=M")
    assert len(profiles.names) == 7 + 2 + 21
    values = profiles.values[0]  # of user 1
    assert {at for at, value in zip(profiles.names, values, strict=True) if value > 0} == row
    assert np.abs(profiles.values.mean(axis=0)).max() < 1e-5
    # Nothing else is in it: a zip code would all but name a person.
    assert {at.split("=")[0] for at in profiles.names} == {"age", "gender", "occupation"}


def test_lastfm_has_no_profiles(public_data):
    assert load("lastfm").profiles is None
