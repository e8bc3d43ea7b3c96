"""Which ratings of a site are tested on: drawn by user and item, so that new ones move no other."""

import numpy as np
import polars as pl
import pytest

from fedmmf.data.synthetic import synthetic
from fedmmf.errors import SettingsError
from fedmmf.federation.site.items import of_ratings
from fedmmf.federation.site.ratings import SiteRatings, choose_held_out, read_ratings, split

RATINGS = synthetic(30, 40, 400, min_per_user=3, seed=5)
ITEMS = of_ratings(RATINGS)
SEED = 2**100 + 7


def frame_of(ratings):
    return pl.DataFrame(
        {
            "user_id": ratings.user_ids[ratings.user_codes].astype(str),
            "item_id": ratings.item_ids[ratings.item_codes].astype(str),
            "rating": ratings.values.astype(np.float64),
        }
    )


def parts_of(frame, folder, seed=SEED):
    """User and item of every rating of the test, the held-out and the training part."""
    frame.write_parquet(folder / "ratings.parquet")
    ratings, _ = read_ratings(folder / "ratings.parquet", ITEMS)
    both = split(ratings, 0.2, seed, ITEMS.ids)
    held_out = choose_held_out(both.training, 0.2, seed, ITEMS.ids)
    rest = both.training.part(~held_out)
    return [pairs(part) for part in (both.test, both.training.part(held_out), rest)]


def pairs(part):
    users = np.repeat(part.user_ids, part.lists.lengths)
    return set(zip(users.tolist(), part.lists.items.tolist(), strict=True))


@pytest.mark.parametrize("position", ["first", "last"])
def test_one_more_rating_moves_no_other_to_another_part(tmp_path, position):
    """By position, one inserted rating gave every later one of its user another part."""
    frame = frame_of(RATINGS)
    before = parts_of(frame, tmp_path)
    assert all(len(part) > 30 for part in before)
    for user in frame["user_id"].unique(maintain_order=True).to_list():
        rated = set(frame.filter(pl.col("user_id") == user)["item_id"])
        free = sorted((str(item) for item in ITEMS.ids if str(item) not in rated), key=int)
        item = free[0 if position == "first" else -1]
        more = pl.DataFrame({"user_id": [user], "item_id": [item], "rating": [3.0]})
        after = parts_of(pl.concat([frame, more]), tmp_path)
        new = {(user, ITEMS.codes[item])}
        assert [part - new for part in after] == before


def test_somebody_who_leaves_or_rates_more_than_a_few_moves_nobody(tmp_path):
    """Not even where a user's number of ratings passes some limit."""
    frame = frame_of(RATINGS)
    whole = parts_of(frame, tmp_path)
    for n in (1, 2, 4, 5, 6):
        some = frame.group_by("user_id", maintain_order=True).head(n)
        kept = set(zip(some["user_id"], (ITEMS.codes[i] for i in some["item_id"]), strict=True))
        assert parts_of(some, tmp_path) == [part & kept for part in whole]


def test_parts_have_their_share_and_follow_a_secret_seed(tmp_path):
    frame = frame_of(RATINGS)
    (test, held_out, rest), (other, _, _) = (parts_of(frame, tmp_path, s) for s in (SEED, SEED + 1))
    n = RATINGS.n_ratings
    assert len(test) / n == pytest.approx(0.2, abs=0.06)
    assert len(held_out) / (n - len(test)) == pytest.approx(0.2, abs=0.07)
    assert len(test & other) < 0.5 * len(test)
    assert len(test) + len(held_out) + len(rest) == n


def test_a_part_that_is_kept_knows_its_share(tmp_path):
    frame_of(RATINGS).write_parquet(tmp_path / "ratings.parquet")
    ratings, _ = read_ratings(tmp_path / "ratings.parquet", ITEMS)
    split(ratings, 0.25, SEED, ITEMS.ids).save(tmp_path / "kept.npz")
    assert SiteRatings.load(tmp_path / "kept.npz").share == 0.25
    none = split(ratings, 0.0, SEED, ITEMS.ids)
    assert len(none.test.values) == 0
    with pytest.raises(SettingsError, match=r"in \[0, 1\); got 1"):
        split(ratings, 1.0, SEED, ITEMS.ids)
