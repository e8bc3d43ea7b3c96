"""Each kind of bad input is refused with a message that leads to the fix."""

import pandas as pd
import polars as pl
import pytest

from fedmmf.data import Ratings, RatingScale, load
from fedmmf.errors import DataError, SettingsError

HEADER = "user_id,item_id,rating,timestamp\n"
GOOD = "1,10,4,100\n"


def refused(tmp_path, content, match, **options):
    path = tmp_path / "ratings.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=match):
        Ratings.from_file(path, **options)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match=r"no file .*none\.csv"):
        Ratings.from_file(tmp_path / "none.csv")


def test_folder(tmp_path):
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path)


def test_missing_columns_are_named(tmp_path):
    match = "missing: item_id; arrived: user_id, thing, grade.*columns={.item.: NAME.*ratings, if"
    refused(tmp_path, "user_id,thing,grade\n1,2,3\n", match)
    refused(tmp_path, "hello\nworld\n", "missing: user_id, item_id; arrived: hello")


def test_text_where_a_number_belongs(tmp_path):
    refused(tmp_path, HEADER + GOOD + "1,11,four,100\n", r"line 3: rating 'four'")


def test_times_that_cannot_be_read_matter_where_time_does(tmp_path, caplog):
    path = tmp_path / "ratings.csv"
    path.write_text(HEADER + GOOD + "\n1,11,4,noon\n2,10,3,5\n")
    ratings = Ratings.from_file(path)
    assert ratings.timestamps is None
    assert len(ratings) == 3
    (line,) = caplog.messages
    assert line.startswith("ratings.csv: no timestamps, because of line 4 (timestamp 'noon' is")
    with pytest.raises(
        DataError, match=r"needs timestamps .*ratings\.csv, line 4: timestamp 'noon'"
    ):
        ratings.split_by_time(0.5)


def test_line_numbers_without_a_header(tmp_path):
    refused(tmp_path, "1\t10\t4\n2\t10\tbad\n", "line 2: rating 'bad'")


def test_line_numbers_after_leading_blank_lines(tmp_path):
    refused(tmp_path, "\n\n" + HEADER + GOOD + "2,10,bad,1\n", "line 5: rating 'bad'")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "", "1e39"])
def test_ratings_that_are_not_finite(tmp_path, value):
    refused(tmp_path, f"{HEADER}{GOOD}2,10,{value},100\n", r"line 3: rating .* finite number")


def test_not_finite_in_frames():
    frame = {"user_id": [1, 2], "item_id": [1, 2], "rating": [1.0, float("nan")]}
    for make in (pl.DataFrame, pd.DataFrame):
        with pytest.raises(DataError, match="frame, row 1: rating"):
            Ratings.from_frame(make(frame))


@pytest.mark.parametrize("content", ["", "\n\n", "  \n"])
def test_empty_file(tmp_path, content):
    refused(tmp_path, content, r"ratings\.csv is empty")


def test_header_only(tmp_path):
    refused(tmp_path, HEADER, "holds no ratings")
    refused(tmp_path, HEADER + "\n\n", "holds no ratings")


def test_duplicates_are_refused_with_an_example(tmp_path):
    content = HEADER + "1,10,4,300\n1,11,4,5\n1,10,2,100\n1,10,3,200\n"
    match = r"2 ratings repeat .* user 1 and item 10\. .*duplicates='last' or 'mean'"
    refused(tmp_path, content, match)


def test_duplicates_settled(tmp_path):
    content = HEADER + "1,10,4,300\n1,11,4,5\n1,10,2,100\n1,10,3,200\n"
    path = tmp_path / "r.csv"
    path.write_text(content)
    last = Ratings.from_file(path, duplicates="last")
    assert last.to_frame().rows() == [(1, 10, 4.0, 300), (1, 11, 4.0, 5)]
    mean = Ratings.from_file(path, duplicates="mean")
    assert mean.to_frame().rows() == [(1, 10, 3.0, 300), (1, 11, 4.0, 5)]


def test_without_timestamps_the_last_row_counts():
    frame = pl.DataFrame({"user_id": [1, 1, 1], "item_id": [2, 2, 2], "rating": [5.0, 1.0, 3.0]})
    assert Ratings.from_frame(frame, duplicates="last").values.tolist() == [3.0]


def test_unknown_way_with_duplicates(frame):
    with pytest.raises(SettingsError, match="refuse, last, mean; got 'first'"):
        Ratings.from_frame(frame, duplicates="first")


def test_ratings_outside_a_given_scale(tmp_path):
    content = HEADER + GOOD + "2,10,6,1\n3,10,0,1\n"
    scale = RatingScale(1, 5, 1)
    refused(tmp_path, content, r"line 3: rating 6\.0 is outside .*\(1 more", scale=scale)


def test_null_ids(tmp_path):
    refused(tmp_path, HEADER + GOOD + ",10,4,100\n", "line 3: user_id nothing where an id")
    with pytest.raises(DataError, match="row 1: item_id nothing"):
        Ratings.from_frame(
            pl.DataFrame({"user_id": [1, 2], "item_id": [1, None], "rating": [1, 2]})
        )
    with pytest.raises(DataError, match="row 1: user_id nothing"):
        Ratings.from_frame(
            pd.DataFrame({"user_id": ["a", None], "item_id": [1, 2], "rating": [1, 2]})
        )


def test_short_and_long_lines(tmp_path):
    refused(tmp_path, HEADER + GOOD + "2,10\n", "line 3: rating nothing")
    refused(
        tmp_path, HEADER + GOOD + "2,10,3,4,5,6\n", "line 3: 6 fields where the first line has 4"
    )


def test_text_that_is_not_in_the_encoding_that_was_said(tmp_path):
    content = (HEADER + GOOD).encode() + b"2,\xff\xfe,3,4\n"
    refused(tmp_path, content, "line 3: not utf-8 text.*encoding=", encoding="utf-8")
    with pytest.raises(SettingsError, match="no encoding 'klingon'; use such as"):
        load(tmp_path / "ratings.csv", encoding="klingon")


def test_not_parquet(tmp_path):
    (tmp_path / "r.parquet").write_bytes(b"PAR1 no, not at all")
    with pytest.raises(DataError, match=r"r\.parquet is not a Parquet file"):
        Ratings.from_file(tmp_path / "r.parquet")


def test_wrong_types_in_frames(frame):
    with pytest.raises(DataError, match="user_id must be integers or text; got Float64"):
        Ratings.from_frame(frame.with_columns(pl.col("user_id") + 0.5))
    with pytest.raises(DataError, match="rating must be numbers; got Date"):
        Ratings.from_frame(frame.cast({"rating": pl.Int32}).cast({"rating": pl.Date}))
    with pytest.raises(DataError, match="polars or pandas data frame; got list"):
        Ratings.from_frame([1, 2, 3])


def test_whole_numbers_are_ids_however_they_are_written(tmp_path):
    rows = "1.0,10.0,3\n2.0,11.0,4\n2.0,10.0,5\n"
    (tmp_path / "gaps.csv").write_text(f"user_id,item_id,rating\n{rows}")
    assert load(tmp_path / "gaps.csv").user_ids.tolist() == [1, 2]
    frame = pl.DataFrame({"user_id": [1.0, 2.0], "item_id": [1, 1], "rating": [3, 4]})
    assert Ratings.from_frame(frame).user_ids.tolist() == [1, 2]
    with pytest.raises(DataError, match="must be integers or text"):
        Ratings.from_frame(frame.with_columns(user_id=pl.Series([1.5, 2.0])))


def test_lines_of_old_macs_are_read(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_bytes((HEADER + GOOD + "2,11,3,100\n").replace("\n", "\r").encode())
    assert Ratings.from_file(path).to_frame().rows() == [(1, 10, 4.0, 100), (2, 11, 3.0, 100)]
    refused(tmp_path, HEADER + "1,a\rb,3,4,5\n", "line 2: 5 fields where the first line has 4")


@pytest.mark.parametrize("quote", ['"', ""])
def test_a_line_with_a_huge_field_is_named(tmp_path, quote):
    line = f"1,{quote}{'x' * 200_000}{quote},3,4,5\n"
    refused(tmp_path, HEADER + GOOD + line, "line 3: 5 fields where the first line has 4")


@pytest.mark.parametrize("deep", ["[" * 10**5, '{"a":' * 10**5, '[{"user": ' + "[" * 10**5])
def test_json_that_is_nested_deeply(tmp_path, deep):
    refused(tmp_path, deep, "line 1: no JSON object")


@pytest.mark.parametrize("header", ["", ",".join(f"a-long-name-{i}" for i in range(3)) + ","])
def test_a_line_of_far_too_many_columns(tmp_path, header):
    row = ",".join(f"column{number}" for number in range(20_000))
    refused(tmp_path, f"{header}{row}\n1,2\n", r"first line: 20,00\d columns .* at most 10,000")
    refused(tmp_path, "," * (2 << 20), "first line: 2,097,153 columns")


def test_a_separator_of_several_bytes_is_one(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text((HEADER + GOOD).replace(",", "é"), encoding="utf-8")
    assert Ratings.from_file(path, separator="é").to_frame().rows() == [(1, 10, 4.0, 100)]


@pytest.mark.parametrize("encoding", ["punycode", "undefined", "utf-8\0", "none-such", "utf-7"])
def test_encodings_that_do_not_help(tmp_path, encoding):
    path = tmp_path / "ratings.csv"
    path.write_text(HEADER + GOOD + "1,+2AA-,3,4\n")  # half a pair in UTF-7
    with pytest.raises((DataError, SettingsError), match=r"not \S+ text|there is no encoding"):
        Ratings.from_file(path, encoding=encoding)


def test_a_number_of_a_column_with_thousands_of_digits(tmp_path):
    refused(tmp_path, HEADER + GOOD, "has no column '9{40}';", columns={"user": "9" * 5000})


def test_an_error_names_the_columns_as_the_file_has_them(tmp_path):
    refused(
        tmp_path, "Ware,Kunde,stars\n1,2,3\n", "missing: user_id, item_id; arrived: Ware, Kunde"
    )
