"""Nothing that is trained depends on a held-out rating, not even through the scale."""

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings, RatingScale
from fedmmf.data import read_split, split_newcomers

STARS = RatingScale(1, 5, 1)
WAYS = {
    "random": lambda ratings: ratings.split(0.3, seed=1),
    "by time": lambda ratings: ratings.split_by_time(0.3),
    "at places": lambda ratings: ratings.split_at(np.arange(50)),
    "newcomers": lambda ratings: split_newcomers(ratings, 0.3, 2, seed=1)[::2],
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def shifted(ratings, way, values):
    """The same frame, with other ratings wherever this way holds them out."""
    _, test = way(ratings)
    held_out = test.to_frame().select("user_id", "item_id")
    changed = held_out.with_columns(other=pl.Series(values(len(test)), dtype=pl.Float32))
    both = ratings.to_frame().join(changed, on=["user_id", "item_id"], how="left")
    return both.with_columns(rating=pl.coalesce("other", "rating")).drop("other")


@every_way
def test_training_is_the_same_bit_for_bit_whatever_the_held_out_ratings_are(small, way):
    frame = small.to_frame()
    ratings = Ratings.from_frame(frame)
    train, _ = way(ratings)
    settings = {"mask": "mean", "rounds": 3, "factors": 3, "held_out": 0.0}
    model = FedMMF(**settings).fit(train)
    for values in (lambda n: np.full(n, 100.0), lambda n: np.linspace(-7, 2.5, n)):
        changed = Ratings.from_frame(shifted(ratings, way, values))
        assert changed.scale != ratings.scale  # the whole does see them
        part, test = way(changed)
        assert part.to_frame().equals(train.to_frame())
        assert part.scale == test.scale == train.scale == STARS
        np.testing.assert_array_equal(FedMMF(**settings).fit(part).item_factors, model.item_factors)


@every_way
def test_held_out_ratings_off_the_scale_are_kept_and_counted(small, way):
    ratings = Ratings.from_frame(small.to_frame())
    train, test = way(Ratings.from_frame(shifted(ratings, way, lambda n: np.full(n, 9.0))))
    assert (test.values == 9).all()
    model = FedMMF(mask="mean", rounds=3, factors=3).fit(train)
    found = model.evaluate(test, top=3)
    assert 4 <= found["mae"] < 9  # predictions are clipped to the training scale, 5 at most


@every_way
def test_a_scale_that_was_given_stays(small, way):
    given = RatingScale(0, 10, 0.5)
    ratings = Ratings.from_frame(small.to_frame(), scale=given)
    assert not ratings.is_scale_found
    assert {part.scale for part in way(ratings)} == {given}
    assert {part.scale for part in way(small)} == {small.scale}  # as that of a public set


def test_a_validation_part_is_held_out_too(frame):
    """Splitting a training part again finds its scale again; that of a test part is given."""
    ratings = Ratings.from_frame(frame)  # 1 to 5
    train, test = ratings.split_at(ratings.values == 5)
    assert (train.scale, train.is_scale_found) == (RatingScale(1, 4, 1), True)
    assert (test.scale, test.is_scale_found) == (RatingScale(1, 4, 1), False)
    inner, validation = train.split_at(train.values == 1)
    assert inner.scale == validation.scale == RatingScale(2, 4, 1)


def test_a_split_in_two_files_has_the_scale_of_the_first(tmp_path):
    (tmp_path / "base").write_text("1\t5\t1\n2\t6\t4\n2\t5\t3\n")
    (tmp_path / "test").write_text("1\t6\t9.5\n")
    train, test = read_split(tmp_path / "base", tmp_path / "test")
    assert train.scale == test.scale == RatingScale(1, 4, 1)
    assert test.values.tolist() == [9.5]
    train, _ = read_split(tmp_path / "base", tmp_path / "test", scale=RatingScale(0, 10, 1))
    assert train.scale == RatingScale(0, 10, 1)
