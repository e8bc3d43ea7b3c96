"""What is doubtful about ratings is told, with the remedy; usual ratings are not doubted."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedmmf import Ratings, load
from fedmmf.data import read_own_ratings, read_split
from fedmmf.errors import DataError, SettingsError

N = 400
PAIRS = [(user, item) for user in range(20) for item in range(20)]


def frame_of(levels, shares=None, seed=0, **more):
    """Ratings of 20 users and 20 items, drawn from levels."""
    values = np.random.default_rng(seed).choice(np.array(levels, float), N, p=shares)
    columns = dict(zip(("user_id", "item_id"), zip(*PAIRS, strict=True), strict=True))
    return pl.DataFrame({**columns, "rating": values, **more})


def changed(levels, places, value):
    frame = frame_of(levels)
    return frame.with_columns(rating=frame["rating"].scatter(places, value))


STARS, TEN = range(1, 6), range(11)
USUAL = {
    "stars": frame_of(STARS),
    "most are the best": frame_of(STARS, [0.1, 0.05, 0.05, 0.1, 0.7]),
    "most are the worst": frame_of(STARS, [0.7, 0.1, 0.1, 0.05, 0.05]),
    "half stars": frame_of(np.arange(0.5, 5.5, 0.5)),
    "0 to 10 with some zeros": frame_of(TEN, [0.1, *[0.09] * 10]),
    "likes": frame_of([0, 1], [0.8, 0.2]),
    "thumbs": frame_of([-1, 1]),
    "three": frame_of([-1, 0, 1]),
    "around zero": frame_of(range(-5, 6)),
    "weights of events": frame_of([1, 3, 5], [0.9, 0.05, 0.05]),
    "a slider": frame_of(np.linspace(0, 100, 200)),
    "a level that nobody chose": frame_of([1, 2, 3, 5]),
}
ODD = {
    "zeros": (frame_of(TEN, [0.62, *[0.038] * 10]), "58% of the ratings are 0", "0", "0:10"),
    "some zeros": (frame_of(range(6), [0.16, 0.02, 0.1, 0.2, 0.3, 0.22]), "are 0, the", "0", "0:5"),
    "minus one": (changed(STARS, [3, 9], -1), "because of -1 (2 of 400 rows)", "-1", "-1:5"),
    "44": (
        changed(STARS, [7], 44),
        "is 1 to 44 because of 44 (1 of 400 rows), apart",
        "44",
        "1:44",
    ),
    "45 for 4.5": (changed(STARS, [7], 45), "because of 45", "45", "1:45"),
    "most are 99": (frame_of([*STARS, 99], [0.06] * 5 + [0.7]), "because of 99", "99", "1:99"),
    "9 after 7": (frame_of([*range(1, 8), 9]), "because of 9 (", "9", "1:9"),
    "0 before 1, 1.5": (frame_of([0, *np.arange(1, 5.5, 0.5)]), "because of 0 (", "0", "0:5"),
}


@pytest.mark.parametrize("frame", USUAL.values(), ids=USUAL)
def test_usual_ratings_are_not_doubted(frame, caplog):
    assert Ratings.from_frame(frame).notes == ()
    assert not caplog.messages


@pytest.mark.parametrize(("frame", "says", "missing", "scale"), ODD.values(), ids=ODD)
def test_odd_ratings_are_told_once_with_both_remedies(frame, says, missing, scale, caplog):
    (line,) = Ratings.from_frame(frame).notes
    assert caplog.messages == [line]
    assert says in line
    assert f"--missing-value {missing};" in line
    assert f"--scale {scale} " in line
    caplog.clear()
    kept = Ratings.from_frame(frame, missing_values=[float(missing)])
    assert len(kept) == (frame["rating"] != float(missing)).sum()
    assert caplog.messages == [
        f"frame: {N - len(kept)} rows left out whose rating is {float(missing)}"
    ]
    caplog.clear()
    assert len(Ratings.from_frame(frame, scale=tuple(map(float, scale.split(":"))))) == N
    assert not caplog.messages  # who says the scale is not asked


def test_few_rows_are_not_doubted(caplog):
    Ratings.from_frame(changed(STARS, [7], 44).head(19))
    assert not caplog.messages


def test_public_sets_are_not_doubted(public_data, tmp_path, caplog):
    for name in ("ml-100k", "lastfm"):
        load(name).to_frame().write_parquet(tmp_path / f"{name}.parquet")
        assert load(tmp_path / f"{name}.parquet").notes == load(name).notes == ()
    assert not caplog.messages


def test_users_who_are_row_numbers_are_told(tmp_path):
    frame = frame_of(STARS).with_columns(user_id=pl.arange(N))
    frame.write_csv(tmp_path / "r.csv", include_header=False)
    line = load(tmp_path / "r.csv").notes[1]
    assert "every row has another user: if column 1 counts rows, say which" in line
    assert "--columns user=2,item=3,rating=4" in line
    assert Ratings.from_frame(frame).notes == ()  # one rating of each, as some test on


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("007", "7"),
        ("3.0", "3"),
        ("Ann@shop.example", "ann@shop.example"),
        ("Caf\u00e9", "Cafe\u0301"),
    ],
)
def test_ids_that_are_alike_are_told(one, two):
    users = pl.Series([(one, two)[item % 2] if user == 0 else f"u{user}" for user, item in PAIRS])
    (line,) = Ratings.from_frame(frame_of(STARS).with_columns(user_id=users)).notes
    assert "2 user ids differ only by leading zeros, '.0' or capitals" in line
    assert repr(one) in line
    assert repr(two) in line


def test_short_ids_may_differ_by_capitals():
    users = pl.Series([("aB", "Ab")[item % 2] if user == 0 else f"u{user}" for user, item in PAIRS])
    assert Ratings.from_frame(frame_of(STARS).with_columns(user_id=users)).notes == ()


def test_columns_that_are_not_used_are_told_and_may_be_said():
    frame = frame_of(STARS, price=1.0, grade=[float(item) for _, item in PAIRS])
    assert Ratings.from_frame(frame).notes == ("frame: not used: price, grade",)
    said = Ratings.from_frame(frame, columns={"rating": "grade"})
    assert said.values.max() == 19
    assert said.notes == ("frame: not used: rating, price",)


@pytest.mark.parametrize("library", [pl, pd])
def test_bad_rows_of_frames_are_dropped(library):
    rows = {"user_id": ["a", None, "b"], "item_id": [1, 1, 2], "rating": [3.0, 4.0, 5.0]}
    made = Ratings.from_frame(library.DataFrame(rows), drop_bad_rows=True)
    assert len(made) == 2
    assert made.notes == (
        "frame: 1 of 3 rows dropped: row 1 (user_id nothing where an id belongs)",
    )
    assert made.split(0.5)[0].notes == made.notes
    clean = Ratings.from_frame(pl.DataFrame(rows).drop_nulls(), drop_bad_rows=True)
    assert clean.notes == ("frame: no row dropped",)


def test_three_bad_rows_are_shown(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\n" + "1,2,x\n" * 9 + "3,4,5\n" * 20)
    notes = load(tmp_path / "r.csv", drop_bad_rows=True, duplicates="last").notes
    assert "9 of 29 rows dropped: line 2 (rating 'x' where a finite number is needed), " in notes[1]
    assert "line 4 (" in notes[1]
    assert "line 5" not in notes[1]


def test_missing_ratings_of_any_kind(tmp_path):
    (tmp_path / "r.csv").write_text("user,item,rating\n1,2,\n1,3,-\n1,4,0 stars\n1,5,3 stars\n\n")
    made = load(tmp_path / "r.csv", missing_values=["", "-", 0])
    assert made.to_frame().rows() == [(1, 5, 3.0)]
    assert made.notes[0].endswith("3 rows left out whose rating is  or - or 0")
    for wrong in ([None], {}.items, [[1]]):
        with pytest.raises((SettingsError, TypeError)):
            load(tmp_path / "r.csv", missing_values=wrong)
    (tmp_path / "log.csv").write_text("user,item\n1,2\n")
    with pytest.raises(DataError, match="has no ratings that could be missing"):
        load(tmp_path / "log.csv", missing_values=[0])


def test_implicit_feedback_without_those_who_did_not():
    frame = frame_of(TEN)
    made = Ratings.from_frame(frame, implicit=True, missing_values=[0])
    assert made.is_implicit
    assert len(made) == (frame["rating"] > 0).sum()


def test_other_readers_take_the_same_options(tmp_path):
    for name in ("base", "test"):
        (tmp_path / name).write_text(
            f"user,item,rating\n1,{name},4 stars\n2,{name},0\n3,{name},x\n"
        )
    options = {"missing_values": [0], "drop_bad_rows": True}
    train, test = read_split(tmp_path / "base", tmp_path / "test", **options)
    assert (len(train), len(test)) == (1, 1)
    assert len(train.notes) == 4
    (tmp_path / "mine").write_text("item,rating\n7,4/5\n8,0/5\n\n9,so-so\n")
    assert read_own_ratings(tmp_path / "mine", **options) == {7: 4.0}


@pytest.mark.parametrize("option", ["missing_values", "drop_bad_rows", "date_format", "separator"])
def test_sets_of_a_known_form_need_no_options(option):
    with pytest.raises(SettingsError, match=f"known form; {option} is about files"):
        load("synthetic", **{option: "%Y"})


TIMES = [datetime.datetime(2005, 3, 1 + item, user, 30) for user, item in PAIRS]


@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m/%d/%Y %I:%M %p", "%Y/%m/%d %H:%M:%S"),
        *("%m-%d-%y %H:%M", "%d.%m.%y, %H:%M", "%d %b %Y %H:%M", "%B %d, %Y %H:%M"),
        *("%d-%b-%y %H:%M", "%a %b %d %H:%M:%S +0000 %Y"),
    ],
)
def test_local_times_are_those_of_the_calendar(tmp_path, form):
    frame = frame_of(STARS, at=[time.strftime(form) for time in TIMES])
    made = Ratings.from_frame(frame, columns={"timestamp": "at"})
    wanted = [int(time.replace(tzinfo=datetime.UTC).timestamp()) for time in TIMES]
    assert made.timestamps.tolist() == wanted


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (["04/12/1997", "05/11/1997"], "may begin with the day or with the month"),
        (["31/12/1997", "12/31/1997"], "days first and months first"),
        (["04/12/1997", "noon"], "is neither seconds|may begin with"),
        (["04.12.1997", "04/13/1997"], "is neither seconds"),
    ],
)
def test_times_that_nobody_can_know_are_asked_for(times, says):
    rows = {"user_id": [1, 2], "item_id": [1, 2], "rating": [3, 4], "date": times}
    made = Ratings.from_frame(pl.DataFrame(rows))
    assert made.timestamps is None
    assert pl.Series([made.notes[0]]).str.contains(says).all()
    assert "--date-format (date_format=)" in made.notes[0]
    with pytest.raises(DataError, match=r"row \d+: timestamp '\d"):
        made.split_by_time(0.5)


def test_a_date_format_that_is_wrong_is_refused():
    rows = {"user_id": [1, 2], "item_id": [1, 2], "rating": [3, 4], "date": ["31.12.97", "1.1.98"]}
    frame = pl.DataFrame(rows)
    assert Ratings.from_frame(frame, date_format="%d.%m.%y").timestamps.tolist() == [
        883526400,
        883612800,
    ]
    with pytest.raises(
        DataError, match=r"row 0: timestamp '31.12.97' is not of the form '%d.%m.%Y'"
    ):
        Ratings.from_frame(frame, date_format="%d.%m.%Y")
    with pytest.raises(SettingsError, match="has parts such as %d"):
        Ratings.from_frame(frame, date_format="DD.MM.YY")
    with pytest.raises(DataError, match="no column of times for the date format"):
        Ratings.from_frame(frame.drop("date"), date_format="%d.%m.%y")


def test_ratings_out_of_different_numbers_are_refused():
    frame = frame_of(STARS).with_columns(rating=pl.Series(["3/5", "6/10"] * (N // 2)))
    with pytest.raises(DataError, match=r"out of 5 and out of 10\. Bring them to one scale"):
        Ratings.from_frame(frame)


def test_a_user_whom_much_is_of_may_be_nobody():
    users = pl.Series([0 if place % 4 == 0 else place % 80 for place in range(N)])
    frame = frame_of(STARS).with_columns(user_id=users, item_id=pl.Series(range(N)) // 2)
    (line,) = Ratings.from_frame(frame, implicit=True).notes
    assert "100 rows (25%) have the user id 0. If it stands for nobody" in line


@pytest.mark.parametrize(("odd", "n"), [(0, 3), (253402300799, 1)])
def test_times_that_stand_for_none_are_told(odd, n):
    frame = frame_of(STARS, timestamp=[odd] * n + list(range(10**9, 10**9 + N - n)))
    (line,) = Ratings.from_frame(frame).notes
    assert f"{n} times are of 1 January 1970 or after 2100, such as {odd}," in line
    for usual in (range(N), range(10**12, 10**12 + N), range(10**9, 10**9 + N)):
        assert Ratings.from_frame(frame_of(STARS, timestamp=list(usual))).notes == ()


def test_features_with_zeros_for_unknown_are_told(caplog):
    years = [1980 + item if item % 7 else 0 for item in range(40)]
    frame = frame_of(STARS).with_columns(item_id=pl.Series(range(N)) % 40)
    made = Ratings.from_frame(frame, implicit=True)
    made.with_features(pl.DataFrame({"item_id": range(40), "year": years}))
    (line,) = caplog.messages
    assert line.startswith("Features: the column year has 0 in 6 rows, far from the others, 1981")
    caplog.clear()
    made.with_features(pl.DataFrame({"item_id": range(40), "price": [*range(39), 500]}))
    assert not caplog.messages
