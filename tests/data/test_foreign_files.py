"""Ratings as others write them: what happens to each file, in a table that docs/data.md has too."""

import gzip
import io
import json
import shlex
from pathlib import Path

import polars as pl
import pytest
from foreign import COMMA, LIKES, N_ITEMS, N_USERS, ROWS, USUAL, text, written
from foreign import FILES as CLEAN
from messy import FILES as MESSY
from rich.console import Console
from typer.testing import CliRunner

from fedmmf import FedMMF, Ratings, load
from fedmmf.cli import output
from fedmmf.cli.app import app
from fedmmf.errors import DataError, FedMMFError

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
FILES = [*CLEAN, *MESSY]
IDS = [one.file for one in FILES]
WORDS = {
    "reads": "the same ratings",
    "likes": "1 and 0",
    "implicit": "implicit feedback",
    "rest": "the others",
    "warned": "a warning",
}


def expected(one):
    """Ratings that a file has to give."""
    rows = one.rows or (LIKES if one.outcome == "likes" else ROWS)
    frame = pl.DataFrame(rows, USUAL.split(","), orient="row")
    if one.outcome == "reads José":
        name = "1" if "BX" in one.file else "12"
        frame = frame.with_columns(pl.col("user_id").cast(pl.String).replace(name, "José"))
    frame = frame if one.times else frame.drop("timestamp")
    frame = frame.with_columns(pl.col("rating").cast(pl.Float64))
    return Ratings.from_frame(frame, implicit=one.outcome == "implicit")


@pytest.fixture
def path(request, tmp_path):
    one = request.param
    (tmp_path / one.file).write_bytes(one.content)
    return one, tmp_path / one.file


def is_error(one):
    return one.outcome.split()[0] not in WORDS


READ = [one for one in FILES if not is_error(one)]
REFUSED = [one for one in FILES if is_error(one)]


@pytest.mark.parametrize("path", READ, indirect=True, ids=lambda one: one.file)
def test_a_foreign_file_gives_the_ratings_of_the_plain_one(path, caplog):
    one, file = path
    found = load(file, **one.said)
    if one.outcome != "warned":
        assert found.to_frame().equals(expected(one).to_frame())
    assert found.is_implicit == (one.outcome == "implicit")
    assert (found.timestamps is not None) == one.times
    lines = list(filter(None, (one.says, one.warns)))
    assert list(found.notes) == caplog.messages
    assert len(lines) == len(caplog.messages)
    for line, message in zip(lines, caplog.messages, strict=True):
        assert message.startswith(f"{one.file}: ")
        assert line in message


@pytest.mark.parametrize(
    "path", [one for one in READ if one.said], indirect=True, ids=lambda one: one.file
)
def test_what_has_to_be_said_is_named_where_it_is_not(path, caplog):
    """By an error, or by a warning where it can be read, but hardly be meant."""
    one, file = path
    flag = one.option.split()[0]
    said = ""
    try:
        load(file)
    except DataError as error:
        said = f"{error} {error.flags}"
    assert flag in said + caplog.text


@pytest.mark.parametrize(
    "path", [one for one in READ if one.said], indirect=True, ids=lambda one: one.file
)
def test_the_command_line_says_it_as_python_does(path):
    one, file = path
    asked = ["data", "info", str(file), *shlex.split(one.option), "--json"]
    facts = json.loads(CliRunner().invoke(app, asked, catch_exceptions=False).stdout)
    wanted = load(file, **one.said)
    assert facts["n_ratings"] == len(wanted)
    assert facts["mean_rating"] == pytest.approx(float(wanted.values.mean()), abs=1e-4)
    assert facts["implicit"] == wanted.is_implicit
    assert facts["has_timestamps"] == one.times
    assert facts["notes"] == list(wanted.notes)


@pytest.mark.parametrize("path", REFUSED, indirect=True, ids=lambda one: one.file)
def test_one_short_error_names_the_fix(path):
    one, file = path
    with pytest.raises(FedMMFError) as caught:
        load(file, **one.said)
    said = f"{caught.value} ({caught.value.flags})"  # as the command line prints it
    assert one.outcome in said
    assert one.file in said
    assert len(said.splitlines()) <= 5
    assert len(said) < 500


@pytest.mark.parametrize("path", [READ[1]], indirect=True, ids=["Book-Crossing"])
def test_what_was_read_trains_with_the_mean_as_mask(path, caplog):
    ratings = load(path[1])
    caplog.clear()
    model = FedMMF(rounds=2, factors=2, min_raters=1).fit(ratings)
    assert caplog.messages == ["BX-Book-Ratings has no item features: the mask is the user's mean"]
    assert (model.settings.mask, model.get_params()["mask"]) == ("mean", "auto")
    assert model.summary().mask == "mean"


@pytest.mark.parametrize("form", ["{1},{2},{3},{0}", "{0},{2},{3},{1}", "{2},{0},{1},{3}"])
def test_ratings_that_look_like_ids_are_warned_of(tmp_path, caplog, form):
    """Without a header, and in an order in which times or items are where ratings belong."""
    rows = [(user, 1000 * item, rating, time) for user, item, rating, time in ROWS]
    (tmp_path / "order.csv").write_bytes(text("", form, rows=rows))
    load(tmp_path / "order.csv", duplicates="last")
    first, second = caplog.messages
    assert "no header, so columns are user_id, item_id, rating, timestamp" in first
    assert "whole numbers from" in second
    assert "--columns user=1,item=2,rating=3" in second
    caplog.clear()
    (tmp_path / "right.csv").write_bytes(text("", rows=rows))
    load(tmp_path / "right.csv")
    assert len(caplog.messages) == 1


def test_features_and_profiles_are_read_by_the_same_code(tmp_path, caplog):
    ratings = Ratings.from_frame(pl.DataFrame(ROWS, USUAL.split(","), orient="row"))
    kinds = [(101 + at, ("Café", "Bar")[at % 2], at / 2) for at in range(N_ITEMS)]
    lines = ['"ISBN";"kind";"size"', *('"{}";"{}";"{}"'.format(*row) for row in kinds)]
    (tmp_path / "items.csv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode("latin-1")))
    found = ratings.with_features(tmp_path / "items.csv.gz").features
    plain = pl.DataFrame(kinds, ["item_id", "kind", "size"], orient="row")
    wanted = ratings.with_features(plain).features
    assert found.names == wanted.names == ("kind=Bar", "kind=Café", "size")
    assert (found.values == wanted.values).all()
    assert caplog.messages == [
        "items.csv.gz: not UTF-8, so read as windows-1252; separated by ';'; ISBN is item_id"
    ]
    people = [{"userId": user, "age": 20 + user} for user in range(1, N_USERS + 1)]
    (tmp_path / "people.json").write_text(json.dumps(people))
    assert ratings.with_profiles(tmp_path / "people.json").profiles.names == ("age",)


def test_a_zstandard_file_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "r.zst").write_bytes(written("write_csv", compression="zstd")[:-9])
    with pytest.raises(DataError, match=r"r\.zst cannot be unpacked"):
        load(tmp_path / "r.zst")


def test_a_terminal_sees_name_and_size_while_a_file_is_read(tmp_path, monkeypatch):
    (tmp_path / "ratings.csv").write_bytes(COMMA)
    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(output, "errors", terminal)
    with output.reading_of(str(tmp_path / "ratings.csv")):
        pass
    assert f"reading ratings.csv, {len(COMMA) / 1e3:,.1f} kB" in terminal.file.getvalue()
    monkeypatch.setattr(output, "errors", Console(file=io.StringIO()))
    with output.reading_of(str(tmp_path / "ratings.csv")):
        pass
    assert output.errors.file.getvalue() == ""


def line_of(one):
    """A file as the page has it: in the list of those that need no word, or in the table."""
    if one.outcome.split()[0] == "reads" and not one.option:
        return f"- {one.what}"
    what = WORDS.get(one.outcome.split()[0], f"an error: {one.outcome}")
    return f"| {one.what} | {f'`{one.option}`' if one.option else ''} | {what} |"


def test_the_page_has_these_files():
    """Print what it should have: pytest -k page."""
    wanted = sorted(map(line_of, FILES), key=lambda line: line[0] == "|")
    missing = [line for line in wanted if line not in DOCS.read_text().splitlines()]
    assert not missing, "\n".join(wanted)


def test_there_are_enough_of_them():
    assert len(FILES) >= 80
    assert len(set(IDS)) == len(IDS)
