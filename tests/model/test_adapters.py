"""Ratings, pairs, ids and newcomers in whatever Python users have them in."""

import logging
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from fedmmf import FedMMF, Ratings, RatingScale, load
from fedmmf.data import get
from fedmmf.data.adapters import pairs_of, ratings_of
from fedmmf.data.ids import as_ids, whole_number
from fedmmf.errors import DataError, SettingsError, UnknownNameError
from fedmmf.progress import watched

SMALL = {"mask": "mean", "factors": 2, "rounds": 3}


@pytest.fixture(scope="module")
def model(small):
    return FedMMF(**SMALL).fit(small)


@pytest.fixture(scope="module")
def table(small):
    return small.to_frame()


class Lists:
    """As much of LensKit's collections of lists as is asked for."""

    key_type = tuple

    def __init__(self, frame):
        self.frame = frame

    def to_df(self):
        return self.frame.assign(score=0.5)


class Dataset(Lists):
    """The same of its data sets."""

    name = "theirs"

    def interaction_table(self, *, format, original_ids):  # noqa: A002 - as LensKit has it
        assert (format, original_ids) == ("pandas", True)
        return self.frame.assign(count=1)


def in_a_matrix(frame, form="csr"):
    users, items = (frame[name].to_numpy() for name in ("user_id", "item_id"))
    return scipy.sparse.coo_array((frame["rating"].to_numpy(), (users, items))).asformat(form)


FORMS = {
    "polars": lambda frame: (frame,),
    "lazy": lambda frame: (frame.lazy(),),
    "pandas": lambda frame: (frame.to_pandas(),),
    "csr": lambda frame: (in_a_matrix(frame),),
    "csc": lambda frame: (in_a_matrix(frame, "csc"),),
    "coo": lambda frame: (in_a_matrix(frame, "coo"),),
    "old matrix": lambda frame: (scipy.sparse.csr_matrix(in_a_matrix(frame)),),
    "lenskit": lambda frame: (Dataset(frame.to_pandas()),),
    "lenskit's lists": lambda frame: (Lists(frame.to_pandas()),),
    "X and y": lambda frame: (frame[:, :2].to_numpy(), frame["rating"].to_numpy()),
    "X of whole floats": lambda frame: (frame[:, :2].to_numpy() * 1.0, frame["rating"].to_list()),
    "frame and y": lambda frame: (frame[:, :2].to_pandas(), frame["rating"].to_pandas()),
    "other names": lambda frame: (frame[:, :2].rename({"user_id": "u"}), frame["rating"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_ratings_are_the_same_in_every_form(table, model, small, form):
    shuffled = table.sample(fraction=1.0, shuffle=True, seed=4)
    given = FORMS[form](shuffled)
    assert ratings_of(*given).to_frame()[:, :3].equals(table[:, :3])
    fitted = FedMMF(**SMALL).fit(*given, scale=(1, 5))
    assert fitted.learned.scale == RatingScale(1, 5, 1)
    assert np.array_equal(fitted.item_factors, model.item_factors)
    if len(given) == 1:
        assert fitted.evaluate(given[0]) == pytest.approx(model.evaluate(small))
        assert fitted.summary(given[0]).rmse == pytest.approx(model.evaluate(small)["rmse"])


def test_text_ids_come_in_arrays_too():
    pairs = np.array([["ann", "x"], ["bob", "x"], ["ann", "yy"], ["eve", "yy"]], dtype=object)
    found = ratings_of(pairs, [1, 5, 4, 2])
    assert found.user_ids.tolist() == ["ann", "bob", "eve"]
    mixed = np.array([[1, "x"], [2, "y"]], dtype=object)
    users, items = pairs_of(mixed)
    assert (users.tolist(), items.tolist()) == ([1, 2], ["x", "y"])


def test_pairs_of_a_bootstrap_count_as_their_mean():
    found = ratings_of([[1, 7], [1, 7], [2, 7]], [5, 4, 1])
    assert found.values.tolist() == [4.5, 1.0]


def test_stored_zeros_are_ratings_only_where_somebody_says_so(caplog):
    matrix = scipy.sparse.csr_array(([3.0, 0.0, 5.0], ([0, 1, 2], [1, 1, 0])), shape=(4, 2))
    assert matrix.nnz == 3
    with caplog.at_level(logging.WARNING, "fedmmf.data"):
        assert ratings_of(matrix).to_frame().rows() == [(0, 1, 3.0), (2, 0, 5.0)]
    assert "1 stored zeros of the matrix are left out" in caplog.text
    kept = Ratings.from_matrix(matrix, keep_zeros=True, scale=(0, 5))
    assert kept.to_frame().rows() == [(0, 1, 3.0), (1, 1, 0.0), (2, 0, 5.0)]
    assert kept.scale == RatingScale(0, 5, 1)


def test_a_pair_twice_in_a_matrix_is_refused():
    matrix = scipy.sparse.coo_array(([3.0, 2.0], ([0, 0], [1, 1])), shape=(1, 2))
    with pytest.raises(DataError, match="1 ratings repeat"):
        ratings_of(matrix)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("ratings.csv",), r"got str\. Read it first: fedmmf\.load"),
        ((np.zeros((3, 2)),), r"shape \(3, 2\)\. Give their ratings as y"),
        ((np.zeros((3, 5)),), r"scipy\.sparse\.coo_array says which"),
        ((None,), r"got NoneType\. Make a frame"),
        (([[1, 2]], [1, 2]), r"each of the 1 pairs; got shape \(2,\)"),
        (([[1, 2]], ["good"]), "y must be numbers"),
        (([[1, 2]], [True]), "y must be numbers"),
        (([[1, 2], [1, 3]], [1, np.nan]), "rating nan where a finite number"),
        (([[1, 2, 3]], [1]), r"shape \(n, 2\).* got ndarray of shape \(1, 3\)"),
        ((pl.DataFrame({"a": [1], "b": [1], "c": [1]}), [3]), "arrived: a, b, c"),
        ((scipy.sparse.eye_array(2), [1, 2]), r"shape \(n, 2\).* of shape \(2, 2\)"),
        ((scipy.sparse.coo_array([1.0, 2.0]),), "rows, users, and columns, items"),
    ],
)
def test_what_holds_no_ratings_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        FedMMF().fit(*given)


def test_ratings_keep_their_scale(small):
    with pytest.raises(SettingsError, match=r"has the scale 1\.\.5 .* got another one, \(1, 9\)"):
        FedMMF().fit(small, scale=(1, 9))


@pytest.mark.parametrize(
    ("given", "expected"),
    [((1, 5), (1, 5, 1)), ([0.5, 5, 0.5], (0.5, 5, 0.5)), ((0, np.float32(0.5)), (0, 0.5, 0.5))],
)
def test_a_scale_may_be_a_tuple_wherever_there_is_one(frame, tmp_path, given, expected):
    expected = RatingScale(*map(float, expected))
    assert RatingScale.of(given) == expected
    assert RatingScale.of(expected) is expected
    frame = frame.with_columns(rating=pl.lit(expected.max))
    frame.write_csv(tmp_path / "r.csv")
    assert Ratings.from_frame(frame, scale=given).scale == expected
    assert load(tmp_path / "r.csv", scale=given).scale == expected
    assert Ratings.from_frame(frame).with_scale(given).scale == expected


@pytest.mark.parametrize("given", [5, (1,), (1, 2, 1, 1), ("1", "5"), (True, 5), "1:5"])
def test_what_is_no_scale_is_refused(frame, given):
    with pytest.raises(SettingsError, match=r"\(min, max\) or .*such as \(1, 5\); got"):
        Ratings.from_frame(frame, scale=given)


def test_evaluating_needs_ratings_where_ratings_are_predicted(model, table):
    with pytest.raises(DataError, match="has none to compare with"):
        model.evaluate(table[:, :2])


def test_a_model_without_ratings_takes_every_row_for_a_choice(table):
    settings = {"mask": "none", "objective": "ranking", "factors": 2, "rounds": 2}
    chosen = FedMMF(**settings).fit(table[::2, :2])
    low = table[1::2].with_columns(rating=pl.lit(0.25))
    expected = chosen.evaluate(table[1::2, :2])["ranking"]
    assert expected.n_users > 5
    assert chosen.evaluate(low)["ranking"] == expected


def test_pairs_to_predict_come_in_arrays_frames_and_ratings(model, small, table):
    expected = model.predict(table["user_id"], table["item_id"])
    for pairs in (table, table.to_pandas(), table[:, :2].to_numpy(), small):
        assert np.array_equal(model.predict(pairs), expected)
    back = table.reverse()
    assert np.array_equal(model.predict(back), expected[::-1])
    for wrong in (3, [1, 2], scipy.sparse.eye_array(3)):
        with pytest.raises(DataError, match=r"shape \(n, 2\)"):
            model.predict(wrong)


@pytest.mark.parametrize("as_what", [list, np.array, pl.Series, pd.Series, tuple], ids=str)
def test_several_users_get_their_lists_in_any_argument(model, small, as_what):
    users = small.user_ids[[3, 17]].tolist()
    expected = model.recommend(users=users, n=4)
    assert model.recommend(as_what(users), n=4).equals(expected)
    assert expected["user_id"].unique().to_list() == users


def test_one_user_may_be_text_or_a_whole_float(model, small):
    user = small.user_ids[3].item()
    expected = model.recommend(user)
    for same in (str(user), float(user), np.int32(user), np.array(user), np.float64(user)):
        assert model.recommend(same).equals(expected)


WRONG_IDS = [
    (42.9, "got 42.9. Round it if a whole number was meant"),
    (True, "got True. Give the ids themselves"),
    (np.True_, "got True. Give the ids themselves"),
    (float("nan"), "got nan. Leave out what is missing"),
    (pd.NA, "got <NA>. Leave out what is missing"),
    (2.0**60, "got 1.152921504606847e+18. Round it"),
    (b"7", "got b'7'. Convert it: it is of the type bytes"),
    ((), "got (). Convert it"),
]


@pytest.mark.parametrize(("wrong", "message"), [*WRONG_IDS, (None, "got None. Leave out")])
def test_what_is_no_id_is_refused_alone_and_among_others(model, small, wrong, message):
    user = small.user_ids[0].item()
    message = re.escape(f"must be whole numbers or text; {message}")
    asked = [
        lambda: as_ids([user, wrong]),
        lambda: as_ids(np.array([user, wrong, "x"], dtype=object)[:2]),
        lambda: model.recommend([user, wrong]),
        lambda: model.recommend(users=[wrong]),
        lambda: model.recommend(user, exclude=[wrong]),
        lambda: model.recommend(user, candidates=[wrong]),
        lambda: model.predict([wrong], [1]),
        lambda: model.predict([user], [wrong]),
        lambda: model.join({1: 5}).predict([wrong]),
    ]
    if not isinstance(wrong, tuple):
        asked.append(lambda: model.join({wrong: 5}))
    for ask in asked:
        with pytest.raises(SettingsError, match=message):
            ask()
    if wrong is not None and not isinstance(wrong, tuple):
        with pytest.raises(SettingsError, match=message):
            model.recommend(wrong)


def test_ids_come_one_column_at_a_time(model, table):
    for several in (table, table.to_pandas()):
        with pytest.raises(SettingsError, match="one column; got a whole frame"):
            model.recommend(users=several)
    with pytest.raises(SettingsError, match=r"flat list; got an array of shape \(2, 2\)"):
        model.recommend(np.ones((2, 2), int))
    with pytest.raises(UnknownNameError, match="knows no user 12089"):
        model.recommend(2**80)
    assert as_ids([]).tolist() == []


@pytest.mark.parametrize("wrong", [2.0, True, "3", None])
def test_lengths_are_whole_numbers(model, small, wrong):
    with pytest.raises(SettingsError, match=f"n must be a whole number; got {wrong!r}"):
        model.recommend(small.user_ids[0], n=wrong)
    if wrong is not None:
        with pytest.raises(SettingsError, match="top must be a whole number"):
            model.evaluate(small, top=wrong)
    assert whole_number("n", np.int64(3)) == 3


def test_a_newcomer_comes_in_a_series_too(model, small):
    items, values = small.item_ids[[2, 9, 30]].tolist(), [5.0, 1.0, 3.0]
    expected = model.join(dict(zip(items, values, strict=True))).recommend(5)
    both = pl.DataFrame({"item_id": items, "rating": values})
    for given in (
        pd.Series(values, index=items),
        pd.Series(values, index=[str(item) for item in items]),
        both.to_struct("rated"),
        both,
        both.to_pandas(),
    ):
        assert model.join(given).recommend(5).equals(expected)


def test_of_models_without_ratings_a_series_has_the_items(table):
    settings = {"mask": "none", "objective": "ranking", "factors": 2, "rounds": 2}
    model = FedMMF(**settings).fit(table[:, :2])
    items = table["item_id"].unique()[:4]
    expected = model.join(items.to_list()).recommend(5)
    for given in (items, items.to_pandas(), items.to_numpy()):
        assert model.join(given).recommend(5).equals(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (pd.Series([5, 4]), "items as its index; got one that only counts"),
        (pl.Series([5, 4]), "of polars, which has no index"),
        (pd.Series([5, 4], index=[1, 1]), "1 is there twice"),
        (pl.DataFrame({"item_id": [1, 1], "rating": [4, 5]}), "1 is there twice"),
        ({1: True}, "must be a number; got True for the item 1"),
        ({1: None}, "must be a number; got None for the item 1"),
        ({1: "5"}, "must be a number; got '5' for the item 1"),
        ({1: float("nan")}, "on the scale"),
        (7, "a pandas Series with the items as its index; got int"),
    ],
)
def test_what_a_newcomer_cannot_bring_is_refused(model, given, message):
    with pytest.raises(DataError, match=message):
        model.join(given)


def test_progress_is_true_false_or_a_function(small, capsys):
    told = []
    train, test = small.split(0.3)
    for progress in (True, False, None, lambda *what: told.append(what)):
        FedMMF(**SMALL).fit(train, progress=progress).evaluate(test, top=5, progress=progress)
    assert ("rounds", 3, 3) in told
    assert told[-1][0] == "lists"
    assert capsys.readouterr() == ("", "")  # no terminal, so no bars
    for use in (FedMMF(**SMALL).fit, FedMMF(**SMALL).fit(small).summary):
        with pytest.raises(SettingsError, match=r"True, False or a function .* got 'yes'"):
            use(small, progress="yes")
    with pytest.raises(SettingsError, match=r"function of .bytes so far.* got True"):
        get("ml-100k", progress=True)


def test_progress_is_drawn_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with watched(True, "this") as report:
        report("rounds", 1, 2)
    shown = capsys.readouterr().err
    assert "this: rounds" in shown
    assert "1/2" in shown
