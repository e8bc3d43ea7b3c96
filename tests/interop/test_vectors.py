"""Vectors whose dot products are the scores, in files and in indexes."""

import errno
import stat
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedmmf import FedMMF, Ratings
from fedmmf.errors import FedMMFError, SettingsError
from fedmmf.interop import needed
from fedmmf.interop.indexes import faiss_index, hnsw_index
from fedmmf.interop.vectors import Vectors, export, labels_of
from fedmmf.masks import FAMILIES

from .conftest import needs

MODELS = [
    {"mask": "none"},
    {"mask": "mean"},
    {"mask": "lr"},
    {"mask": "fm"},
    {"mask": "nn"},
    {"mask": "lr", "item_statistics": True},
    {"mask": "none", "biases": True},
    {"mask": "mean", "solver": "vb"},
    {"mask": "lr", "solver": "vb", "ensemble": 2},
    {"mask": "lr", "sharing": "adaptive"},
    {"mask": "lr", "objective": "ranking"},
    {"mask": "mean", "solver": "vb", "likelihood": "ordinal"},
]


@pytest.fixture(scope="module")
def model(small):
    return FedMMF(mask="lr", factors=3, rounds=4).fit(small)


@pytest.fixture(scope="module")
def factors(model):
    return Vectors.of(model)


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_dot_products_are_the_scores_and_their_order_that_of_lists(small, settings):
    model = FedMMF(factors=3, rounds=4, **settings).fit(small)
    found, learned = Vectors.of(model), model.learned
    assert found.users.dtype == found.items.dtype == np.float32
    for user in (0, 17, 59):
        scores = found.items @ found.users[user]
        expected = learned.scorer(np.arange(small.n_items))(user)
        np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(
            learned.shown(scores),
            model.predict([found.user_ids[user]] * small.n_items, found.item_ids),
            rtol=2e-5,
            atol=2e-5,
        )


def test_a_mask_that_bends_has_no_vectors(model, monkeypatch):
    bent = replace(FAMILIES["lr"], is_linear=False)
    monkeypatch.setitem(FAMILIES._members, "lr", bent)
    with pytest.raises(SettingsError, match=r"linear in what it sees; got 'lr'\. Train with"):
        Vectors.of(model)


def test_files_hold_the_vectors(model, factors, tmp_path):
    with np.load(export(model, tmp_path / "f.npz")) as file:
        assert sorted(file) == ["item_ids", "items", "user_ids", "users"]
        for name in file:
            assert np.array_equal(file[name], getattr(factors, name))
    table = pl.read_parquet(export(model, str(tmp_path / "f.parquet")))
    assert table.columns == ["user_id", "item_id", "vector"]
    for name, ids, vectors in (
        ("user_id", factors.user_ids, factors.users),
        ("item_id", factors.item_ids, factors.items),
    ):
        own = table.filter(pl.col(name).is_not_null())
        assert own[name].to_list() == ids.tolist()
        assert np.array_equal(own["vector"].to_numpy(), vectors)
    assert len(table) == len(factors.user_ids) + len(factors.item_ids)


def test_text_ids_stay_text_in_files(tmp_path):
    frame = pl.DataFrame(
        {"user_id": ["ann", "bob", "ann"], "item_id": [7, 7, 9], "rating": [1, 5, 4]}
    )
    model = FedMMF(mask="mean", factors=2, rounds=2, min_raters=1, sharing="plain")
    model.fit(Ratings.from_frame(frame))
    table = pl.read_parquet(export(model, tmp_path / "f.parquet"))
    assert table["user_id"].to_list() == ["ann", "bob", None, None]
    assert table["item_id"].to_list() == [None, None, 7, 9]


def test_what_cannot_be_written_is_refused(model, tmp_path):
    with pytest.raises(SettingsError, match=r"\.npz, \.parquet, \.faiss or \.hnsw; got 'x\.csv'"):
        export(model, "x.csv")
    with pytest.raises(SettingsError, match="cannot be written"):
        export(model, tmp_path / "no folder" / "x.npz")


@pytest.mark.parametrize("end", ["npz", "parquet"])
def test_files_are_whole_and_for_their_owner_alone(model, tmp_path, monkeypatch, end):
    path = tmp_path / f"f.{end}"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("fedmmf.storage.atomic.os.fsync", full)
        with pytest.raises(SettingsError, match="cannot be written: No space left"):
            export(model, path)
    assert path.read_text() == "old"
    export(model, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_library_says_how_to_install_it():
    with pytest.raises(FedMMFError, match=r"package nowhere.*pip install 'fedmmf\[interop\]'"):
        needed("no_such_module", "nowhere")


def test_items_are_called_by_their_ids_where_an_index_can():
    assert labels_of(np.array([3, 70])).tolist() == [3, 70]
    assert labels_of(np.array([-3, 70])).tolist() == [0, 1]
    assert labels_of(np.array(["a", "b"])).tolist() == [0, 1]


@needs("faiss")
def test_faiss_finds_what_recommend_lists(model, factors, tmp_path):
    import faiss

    written = faiss.read_index(str(export(model, tmp_path / "items.faiss")))
    for index in (faiss_index(factors), written):
        scores, items = index.search(factors.users, 10)
        for place, user in enumerate(factors.user_ids):
            best = model.recommend(user, 10, seen=True)
            assert items[place].tolist() == best["item_id"].to_list()
            np.testing.assert_allclose(np.clip(scores[place], 1, 5), best["prediction"], rtol=1e-5)


@needs("hnswlib")
def test_hnsw_finds_what_recommend_lists(model, factors, tmp_path):
    import hnswlib

    written = hnswlib.Index(space="ip", dim=factors.items.shape[1])
    written.load_index(str(export(model, tmp_path / "items.hnsw")))
    written.set_ef(400)
    for index in (hnsw_index(factors), written):
        items, distances = index.knn_query(factors.users, k=10)
        for place, user in enumerate(factors.user_ids):
            best = model.recommend(user, 10, seen=True)
            assert items[place].tolist() == best["item_id"].to_list()
        np.testing.assert_allclose(
            1 - distances[0],
            factors.items[np.searchsorted(factors.item_ids, items[0])] @ factors.users[0],
            rtol=1e-4,
        )
