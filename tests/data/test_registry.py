import os
import zipfile

import numpy as np
import polars as pl
import pytest

from fedmmf.data import RatingScale, cache, datasets, get, load, registry
from fedmmf.errors import DataError, SettingsError, UnknownNameError

SIZES = [
    ("ml-100k", 943, 1_682, 100_000),
    ("ml-1m", 6_040, 3_706, 1_000_209),
    ("lastfm", 1_892, 17_632, 92_834),
]

TINY_10M = {
    "ratings.dat": "1::122::5::838985046\n1::185::4.5::838983525\n2::122::0.5::868246450\n"
    "3::9::3::1136075500\n2::316::2.5::868245777\n",
    "movies.dat": "9::Überfall (1995)::Action\n122::Boomerang (1992)::Comedy|Romance\n"
    "185::Net::Work, The (1995)::Action|Crime\n316::Stargate (1994)::(no genres listed)\n"
    "7::Nobody Rated This (1999)::Drama\n",
    "tags.dat": "15::122::excellent!::1215184630\n20::185::politics::1188263867\n"
    "20::185::caf\xe9::1188263867\n21::7::unrated::1188263835\n22::316::Politics::1188263835\n",
}
ENCODINGS = {"tags.dat": "latin-1"}


@pytest.fixture
def tiny_10m(tmp_path, monkeypatch):
    """A set of five ratings in the layout of ML-10M, zipped."""
    folder = tmp_path / "sets"
    folder.mkdir()
    with zipfile.ZipFile(folder / "ml-10m.zip", "w") as archive:
        for name, text in TINY_10M.items():
            archive.writestr(f"ml-10M100K/{name}", text.encode(ENCODINGS.get(name, "utf-8")))
    monkeypatch.setenv("FEDMMF_DATA", str(folder))
    return folder


@pytest.mark.parametrize(("name", "n_users", "n_items", "n_ratings"), SIZES)
def test_published_counts(public_data, name, n_users, n_items, n_ratings):
    ratings = load(name)
    assert (ratings.n_users, ratings.n_items, len(ratings)) == (n_users, n_items, n_ratings)
    assert ratings.scale == RatingScale.found_in(ratings.values) == RatingScale(1, 5, 1)
    assert len(ratings.features) == len(ratings.item_titles) == n_items
    assert np.abs(ratings.features.values.mean(axis=0)).max() < 1e-4
    assert not ratings.synthetic
    info = next(info for info in datasets() if info.name == name)
    assert (info.n_users, info.n_items, info.n_ratings) == (n_users, n_items, n_ratings)
    assert info.scale == ratings.scale
    assert info.local.parent == public_data.resolve()


def test_ml_100k_content(public_data):
    ratings = load("ml-100k")
    toy_story = ratings.item_code(1)
    assert ratings.item_titles[toy_story] == "Toy Story (1995)"
    genres = [name for name in ratings.features.names if name.startswith("genre=")]
    values = ratings.features.values[toy_story]
    positive = {
        name for name, value in zip(ratings.features.names, values, strict=True) if value > 0
    }
    assert {"genre=Animation", "genre=Children's", "genre=Comedy"} == positive & set(genres)
    assert len(genres) == 19
    assert len(ratings.features.names) == 23
    assert ratings.to_frame().row(0) == (1, 1, 5.0, 874965758)
    assert ratings.values.mean() == pytest.approx(3.52986)


def test_ml_1m_content(public_data):
    ratings = load("ml-1m")
    assert ratings.item_titles[ratings.item_code("2858")] == "American Beauty (1999)"
    first = ratings.to_frame().filter(user_id=1, item_id=1193)
    assert first.row(0) == (1, 1193, 5.0, 978300760)
    assert len(ratings.features.names) == 18 + 4


def test_lastfm_bins(public_data):
    ratings = load("lastfm")
    assert ratings.timestamps is None
    assert ratings.item_titles[ratings.item_code(1)] == "MALICE MIZER"
    assert ratings.features.names == tuple(f"tag:{at}" for at in range(20))
    assert ratings.to_frame().filter(user_id=2, item_id=51)["rating"].item() == 5.0
    assert ratings.values.mean() == pytest.approx(2.39576, abs=1e-5)
    coarse = load("lastfm", edges=(1000,))
    assert coarse.scale == RatingScale(1, 2, 1)
    assert set(np.unique(coarse.values)) == {1.0, 2.0}
    with pytest.raises(SettingsError, match="rising"):
        load("lastfm", edges=(400, 200))


def test_the_edge_itself_belongs_to_the_next_rating():
    from fedmmf.data.published import EDGES, binned_counts

    plays = np.array([1.0, 199, 200, 399, 400, 600, 799, 800, 1e6])
    assert binned_counts(plays, EDGES).tolist() == [1, 1, 2, 2, 3, 4, 4, 5, 5]


def test_ml_10m_layout(tiny_10m):
    ratings = load("ml-10m")
    assert ratings.item_ids.tolist() == [9, 122, 185, 316]
    assert ratings.values.tolist() == [5.0, 4.5, 0.5, 2.5, 3.0]
    assert ratings.scale == RatingScale(0.5, 5.0, 0.5)
    titles = ["Überfall (1995)", "Boomerang (1992)", "Net::Work, The (1995)", "Stargate (1994)"]
    assert ratings.item_titles.tolist() == titles
    genres = [name for name in ratings.features.names if name.startswith("genre=")]
    assert genres == [f"genre={name}" for name in ("Action", "Comedy", "Crime", "Romance")]
    assert ratings.features.names[-2:] == ("tag:0", "tag:1")  # three tags of rated items


def test_unzipped_folders_are_found(tiny_10m, monkeypatch):
    with zipfile.ZipFile(tiny_10m / "ml-10m.zip") as archive:
        archive.extractall(tiny_10m)
    (tiny_10m / "ml-10m.zip").unlink()
    assert len(load("ml-10m")) == 5
    monkeypatch.setenv("FEDMMF_DATA", str(tiny_10m / "ml-10M100K"))
    assert len(load("ml-10m")) == 5


def test_a_missing_set_says_how_to_get_it(no_public_data):
    with pytest.raises(DataError, match=r"`fedmmf data get ml-10m`.*FEDMMF_DATA.*ml-10m\.zip"):
        load("ml-10m")
    assert all(info.local is None for info in datasets())


def test_a_wrong_data_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDMMF_DATA", str(tmp_path / "typo"))
    with pytest.raises(DataError, match="FEDMMF_DATA must name a folder"):
        load("ml-1m")


def test_unknown_names(no_public_data):
    with pytest.raises(
        UnknownNameError, match=r"'ml-1OOk'.* Did you mean ml-1.*Known sets: ml-100k"
    ):
        load("ml-1OOk")
    with pytest.raises(UnknownNameError, match="synthetic:ml-10m"):
        get("netflix")
    with pytest.raises(DataError, match="no file"):
        load("ratings.csv")


def test_not_a_zip(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMMF_DATA", str(tmp_path))
    (tmp_path / "ml-1m.zip").write_bytes(b"<html>404</html>")
    with pytest.raises(DataError, match="cannot be read as a zip"):
        load("ml-1m")


def test_a_zip_without_a_member(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMMF_DATA", str(tmp_path))
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/README", "hello")
    with pytest.raises(DataError, match=r"must contain ratings\.dat; it holds ml-1m/README"):
        load("ml-1m")


@pytest.mark.parametrize(
    ("member", "text", "match"),
    [
        ("movies.dat", "not a movie\n", "needs 3 fields"),
        ("movies.dat", "x::A (1990)::War\n", "does not have the layout"),
        ("ratings.dat", "1::2::9::0\n", r"ratings\.dat, line 1: rating '?9"),
    ],
)
def test_damaged_members(tiny_10m, member, text, match):
    with zipfile.ZipFile(tiny_10m / "ml-10m.zip", "w") as archive:
        for name, content in {**TINY_10M, member: text}.items():
            archive.writestr(name, content.encode(ENCODINGS.get(name, "utf-8")))
    with pytest.raises(DataError, match=match):
        load("ml-10m")


def test_scale_and_features_can_be_replaced(tiny_10m):
    frame = pl.DataFrame({"item_id": [9, 122], "length": [90, 120]})
    ratings = load("ml-10m", scale=RatingScale(0, 5, 0.5), features=frame)
    assert ratings.scale.min == 0
    assert ratings.features.names == ("length",)
    assert ratings.item_titles[0] == "Überfall (1995)"
    with pytest.raises(DataError, match=r"from 0\.5 to 5, outside the scale 1\.\.5"):
        load("ml-10m", scale=RatingScale(1, 5, 1))


def test_load_a_path(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("user_id,item_id,rating\n1,2,3\n1,2,5\n")
    assert load(str(path), duplicates="mean").values.tolist() == [4.0]


def same(one, other):
    assert one.to_frame().equals(other.to_frame())
    assert one.scale == other.scale
    assert one.name == other.name
    assert one.item_titles.tolist() == other.item_titles.tolist()
    assert one.features.names == other.features.names
    np.testing.assert_array_equal(one.features.values, other.features.values)
    assert (one.profiles is None) == (other.profiles is None)
    if one.profiles is not None:
        assert one.profiles.names == other.profiles.names
        np.testing.assert_array_equal(one.profiles.values, other.profiles.values)


def test_second_load_comes_from_the_cache(tiny_10m, monkeypatch):
    first = load("ml-10m")

    def read_again(source, name):
        raise AssertionError(f"{name} was read again")

    monkeypatch.setattr(registry.sources, "read_member", read_again)
    same(load("ml-10m"), first)


def test_a_changed_source_is_parsed_again(tiny_10m):
    first = load("ml-10m")
    archive = tiny_10m / "ml-10m.zip"
    before = len(list(cache.folder().iterdir()))
    os.utime(archive, ns=(1, 1))
    same(load("ml-10m"), first)
    assert len(list(cache.folder().iterdir())) == before + 1


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
@pytest.mark.parametrize("name", ["ratings.parquet", "items.parquet", "description.json"])
def test_a_damaged_cache_is_rebuilt_silently(tiny_10m, name, damage):
    first = load("ml-10m")
    (victim,) = cache.folder().glob(f"*/{name}")
    good = victim.read_bytes()
    victim.write_bytes(good[:-9] if damage is None else damage)
    same(load("ml-10m"), first)
    (rebuilt,) = cache.folder().glob(f"*/{name}")
    assert rebuilt.read_bytes() == good


def test_a_cache_that_cannot_be_written_does_not_matter(tiny_10m, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDMMF_CACHE", str(tmp_path / "file"))
    assert len(load("ml-10m")) == 5


def test_second_load_of_a_million_ratings_comes_from_the_cache(public_data, monkeypatch):
    first = load("ml-1m")
    monkeypatch.setattr(registry.sources, "read_member", lambda *_: pytest.fail("parsed again"))
    same(load("ml-1m"), first)


def test_get_downloads_once(no_public_data, tmp_path, monkeypatch, private_folders):
    asked = []

    def fake_fetch(url, sha256, target, progress):
        asked.append(url)
        target.parent.mkdir(parents=True)
        target.write_bytes(b"zip")
        return target

    monkeypatch.setattr(registry, "fetch", fake_fetch)
    path = get("ml-100k")
    assert path == private_folders / "data/fedmmf/ml-100k.zip"
    assert get("ml-100k") == path.resolve()
    assert asked == ["https://files.grouplens.org/datasets/movielens/ml-100k.zip"]


def test_get_of_synthetic_is_refused():
    with pytest.raises(SettingsError, match="needs no download"):
        get("synthetic")


def test_every_published_set_has_a_checksum_and_terms():
    for info in datasets():
        assert info.licence
        assert info.synthetic == (info.url is None) == (info.sha256 is None)
        assert info.synthetic or len(info.sha256) == 64


def test_an_archive_may_be_given_by_its_path(public_data, monkeypatch):
    named = load("ml-100k")
    monkeypatch.delenv("FEDMMF_DATA")
    same(load(public_data / "ml-100k.zip"), named)
    same(load(str(public_data / "ml-100k.zip")), named)
