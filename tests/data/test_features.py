import datetime
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import SplineTransformer
from typer.testing import CliRunner

from fedmmf.cli.app import app
from fedmmf.data import ItemFeatures, Ratings
from fedmmf.data.features import principal_components, read_features, splines, tf_idf
from fedmmf.errors import DataError, SettingsError

ITEMS = np.array([10, 20, 30])


def column(features, name):
    return features.values[:, features.names.index(name)]


def test_numbers_are_standardised_and_missing_ones_are_average():
    frame = pl.DataFrame({"item_id": [30, 10, 20, 99], "length": [3.0, 1.0, None, 77.0]})
    features = ItemFeatures.from_frame(frame, ITEMS)
    assert features.names == ("length",)
    np.testing.assert_allclose(column(features, "length"), [-1, 0, 1])


def test_text_and_booleans_become_indicators():
    frame = pl.DataFrame(
        {"item_id": [10, 20, 30], "country": ["fr", "de", "fr"], "award": [True, False, False]}
    )
    features = ItemFeatures.from_frame(frame, ITEMS)
    assert features.names == ("country=de", "country=fr", "award=false", "award=true")
    np.testing.assert_allclose(column(features, "country=fr"), [1 / 3, -2 / 3, 1 / 3], atol=1e-6)
    np.testing.assert_allclose(column(features, "award=true"), [2 / 3, -1 / 3, -1 / 3], atol=1e-6)


@pytest.mark.parametrize(
    "genres", [["war|love", "love", None], [["war", "love"], ["love"], None]], ids=["bars", "lists"]
)
@pytest.mark.parametrize("library", [pl, pd])
def test_lists_become_indicators(genres, library):
    frame = library.DataFrame({"item_id": [10, 20, 30], "genre": genres})
    features = ItemFeatures.from_frame(frame, ITEMS)
    assert features.names == ("genre=love", "genre=war")
    np.testing.assert_allclose(column(features, "genre=war"), [0.5, -0.5, 0.0])
    np.testing.assert_allclose(column(features, "genre=love"), 0.0)


def test_missing_items_are_average():
    frame = pl.DataFrame({"item_id": ["10", "30"], "kind": ["a", "b"], "size": [2, 4]})
    features = ItemFeatures.from_frame(frame, ITEMS)
    np.testing.assert_allclose(features.values[1], 0.0)
    np.testing.assert_allclose(features.values[0], [0.5, -0.5, -1.0])


def test_constant_and_empty_columns_are_zero():
    frame = pl.DataFrame({"item_id": ITEMS, "one": [5, 5, 5], "none": [None] * 3})
    np.testing.assert_array_equal(ItemFeatures.from_frame(frame, ITEMS).values, 0.0)


def test_genres():
    features = ItemFeatures.genres([("war",), (), ("love", "war"), ("love",)])
    assert features.names == ("genre=love", "genre=war")
    np.testing.assert_allclose(column(features, "genre=war"), [0.5, -0.5, 0.5, -0.5])


def test_release_years_form_a_smooth_basis():
    years = [float(year) for year in range(1950, 2011)]
    features = ItemFeatures.release_years([*years, None])
    assert features.values.shape == (62, 4)
    np.testing.assert_allclose(features.values.mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(features.values[61], features.values[30])  # the median, 1980
    steps = np.abs(np.diff(features.values[:61], axis=0))
    assert 0 < steps.max() < 0.15


@pytest.mark.parametrize("years", [[None, None], [1990, 1990], [1990, None, 1990]])
def test_years_that_say_nothing_give_no_columns(years):
    assert ItemFeatures.release_years(years).values.shape == (len(years), 0)


def test_few_distinct_years_work():
    assert ItemFeatures.release_years([1990] * 20 + [1991] * 3).values.std() > 0


def test_tags_bring_similar_items_together():
    generator = np.random.default_rng(0)
    item_codes = np.repeat(np.arange(60), 8)
    vocabulary = np.array([[f"Rock {n}" for n in range(12)], [f"jazz {n}" for n in range(12)]])
    tags = [vocabulary[item % 2, generator.integers(12)] for item in item_codes]
    features = ItemFeatures.tags(item_codes, tags, n_items=61)  # the last item has no tags
    assert features.values.shape == (61, 20)
    np.testing.assert_allclose(features.values.mean(axis=0), 0.0, atol=1e-5)
    spread = features.values.std(axis=0)
    assert spread[0] == pytest.approx(1.0, abs=1e-5)
    assert (np.diff(spread) <= 1e-6).all()
    first = features.values[:60, 0]
    assert (np.sign(first[::2]) == -np.sign(first[1::2])).all()
    shouted = [f" {tag.upper()} " for tag in tags]
    again = ItemFeatures.tags(item_codes, shouted, n_items=61)
    np.testing.assert_array_equal(again.values, features.values)


def test_too_few_tags_give_no_columns():
    assert ItemFeatures.tags(np.array([0]), ["x"], n_items=3).values.shape == (3, 0)
    assert ItemFeatures.tags(np.array([], dtype=int), [], n_items=3).values.shape == (3, 0)


def test_take_and_join():
    features = ItemFeatures.genres([("a",), ("b",), ("a", "b")])
    np.testing.assert_array_equal(features.take(np.array([2, 0])).values, features.values[[2, 0]])
    mask = np.array([False, True, True])
    np.testing.assert_array_equal(features.take(mask).values, features.values[1:])
    years = ItemFeatures.release_years([1990, 2000, 2010])
    both = ItemFeatures.joined(features, years)
    assert both.names == features.names + years.names
    assert len(both) == 3


def test_read_only():
    with pytest.raises(ValueError, match="read-only"):
        ItemFeatures(("a",), np.zeros((2, 1))).values[0, 0] = 1


def test_nonsense_is_refused():
    with pytest.raises(DataError, match="finite"):
        ItemFeatures(("a",), np.array([[np.nan]]))
    with pytest.raises(DataError, match="one column per name"):
        ItemFeatures(("a", "b"), np.zeros((2, 1)))
    with pytest.raises(DataError, match="must differ"):
        ItemFeatures(("a", "a"), np.zeros((2, 2)))


def test_bad_frames_are_refused():
    cases = [
        ({"id": [1], "x": [1]}, "need a column item_id; arrived: id, x"),
        ({"item_id": [10, 10], "x": [1, 2]}, "item 10 appears more often"),
        ({"item_id": [1], "x": [1]}, "same ids; the ratings have 10, the features '1'"),
        ({"item_id": [10], "title": ["A"]}, "at least one column besides"),
        ({"item_id": [10], "day": [datetime.date(2020, 1, 1)]}, "day must be numbers"),
    ]
    for columns, match in cases:
        with pytest.raises(DataError, match=match):
            ItemFeatures.from_frame(pl.DataFrame(columns), ITEMS)


def test_an_identifier_is_not_an_attribute():
    items = np.arange(1500)
    frame = pl.DataFrame({"item_id": items, "url": [f"u{n}" for n in items]})
    with pytest.raises(SettingsError, match="url has 1,500 distinct values"):
        ItemFeatures.from_frame(frame, items)


def test_features_file_brings_titles(tmp_path, frame):
    path = tmp_path / "items.csv"
    path.write_text("item_id,title,genre\n10,Ten,war|love\n30,Thirty,love\n")
    ratings = Ratings.from_frame(frame, features=path)
    assert ratings.item_titles.tolist() == ["Ten", "20", "Thirty"]
    assert ratings.features.names == ("genre=love", "genre=war")
    assert ratings.split(0.4)[1].item_titles.tolist() == ["Ten", "20", "Thirty"]


def test_text_that_is_another_one_in_every_row_is_no_feature(caplog):
    """Titles under a name that is not known; each would be a column about one item."""
    ids = np.arange(20)
    frame = pl.DataFrame(
        {"item_id": ids, "Titel": [f"Buch {i}" for i in ids], "genre": [f"g{i % 2}" for i in ids]}
    )
    made, titles = read_features(frame, ids)
    assert (made.names, titles) == (("genre=g0", "genre=g1"), None)
    (said,) = caplog.messages
    assert re.search("not used: Titel, whose text is another one .* --feature-columns", said)
    assert read_features(frame.drop("genre"), ids) == (None, None)
    chosen, _ = read_features(frame, ids, ["Titel"])
    assert len(chosen.names) == 20
    few, _ = read_features(frame.head(19), ids[:19])
    assert len(few.names) == 21


def test_features_file_that_is_wrong(tmp_path, frame):
    path = tmp_path / "items.csv"
    path.write_text("thing,genre\n10,war\n")
    with pytest.raises(DataError, match="need a column item_id; arrived: thing, genre"):
        Ratings.from_frame(frame, features=path)
    with pytest.raises(DataError, match="no file"):
        Ratings.from_frame(frame, features=tmp_path / "none.csv")


@pytest.mark.parametrize("n_knots", [2, 3, 4, 7])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_are_those_of_scikit_learn(n_knots, degree):
    x = np.random.default_rng(n_knots).integers(1920, 2000, 200).astype(float)
    knots = np.quantile(x, np.linspace(0, 1, n_knots))
    theirs = SplineTransformer(degree=degree, knots=knots[:, None]).fit_transform(x[:, None])
    np.testing.assert_allclose(splines(x, knots, degree), theirs, atol=1e-14)


def tagged(seed):
    """Counts of 40 tags on 60 items; the last two items have none."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(0.3, (60, 40)).astype(float)
    counts[-2:] = 0.0
    return csr_array(counts)


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_tags_are_those_of_scikit_learn(seed):
    counts = tagged(seed)
    before = counts.toarray()
    theirs = TfidfTransformer().fit_transform(counts)
    np.testing.assert_allclose(tf_idf(counts).toarray(), theirs.toarray(), atol=1e-14)
    assert np.array_equal(counts.toarray(), before)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_components", [1, 5, 20])
def test_components_are_those_of_scikit_learn(seed, n_components):
    weights = tf_idf(tagged(seed))
    pca = PCA(n_components, svd_solver="full")
    theirs = pca.fit_transform(weights.toarray())
    np.testing.assert_allclose(principal_components(weights, n_components), theirs, atol=1e-9)


BOOKS = (
    '"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication"\n'
    '"10";"Ten";"Ann";"1980"\n"20";"Zwanzig";"Bob";"1990"\n"30";"Trente";"Cec";"2000"\n'
)


def test_titles_have_many_names_and_columns_can_be_chosen(tmp_path, frame):
    (tmp_path / "BX-Books.csv").write_text(BOOKS)
    path = tmp_path / "BX-Books.csv"
    chosen = ["year of publication"]
    ratings = Ratings.from_frame(frame, features=path, feature_columns=chosen)
    assert ratings.item_titles.tolist() == ["Ten", "Zwanzig", "Trente"]
    assert ratings.features.names == ("Year-Of-Publication",)
    everything = Ratings.from_frame(frame).with_features(path)
    assert everything.features.names[:2] == ("Book-Author=Ann", "Book-Author=Bob")
    with pytest.raises(DataError, match=r"BX-Books\.csv has no column 'Genre'; its columns"):
        Ratings.from_frame(frame, features=path, feature_columns=["Genre"])
    with pytest.raises(SettingsError, match="feature_columns chooses columns of features"):
        Ratings.from_frame(frame, feature_columns=["Genre"])


@pytest.mark.parametrize("name", ["title", "name", "movie_title", "Book-Title", "description"])
def test_titles_alone_are_enough(frame, name):
    titles = pl.DataFrame({"item_id": [10, 20, 30], name: ["a", "b", "c"]})
    ratings = Ratings.from_frame(frame, features=titles)
    assert ratings.item_titles.tolist() == ["a", "b", "c"]
    assert ratings.features is None
    assert not ratings.has_features


def test_features_whose_ids_have_other_zeros_are_told(frame, caplog):
    features = pl.DataFrame({"item_id": ["10", "020", "0030"], "size": [1, 2, 3]})
    Ratings.from_frame(frame, features=features)
    assert "2 of 3 items have no row" in caplog.text
    assert "2 of them only for leading zeros: write ids alike" in caplog.text
    with pytest.raises(DataError, match="3 of them only for leading zeros"):
        Ratings.from_frame(frame, features=features.with_columns(item_id="0" + pl.col("item_id")))


def test_lists_of_a_file_have_the_titles_of_another(tmp_path):
    rows = [(user, item) for user in range(12) for item in range(10) if (user + item) % 3]
    pl.DataFrame(rows, ["customer", "sku"], orient="row").write_csv(tmp_path / "sales.csv")
    titles = pl.DataFrame({"sku": range(10), "product_name": [f"Mug {n}" for n in range(10)]})
    titles.write_csv(tmp_path / "items.csv")
    asked = ["recommend", "--data", tmp_path / "sales.csv", "--features", tmp_path / "items.csv"]
    asked += ["--user", 3, "--n", 2, "--factors", 2, "--json"]
    ended = CliRunner().invoke(app, [*map(str, asked)], catch_exceptions=False)
    best = json.loads(ended.stdout)["recommendations"]
    assert [one["title"] for one in best] == [f"Mug {one['item_id']}" for one in best]
    asked = ["recommend", "--model", "m", "--features", "items.csv", "--user", "3"]
    with pytest.raises(SettingsError, match="--features is for training; a saved model has"):
        CliRunner().invoke(app, asked, catch_exceptions=False)
