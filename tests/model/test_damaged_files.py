"""Model files that somebody changed: refused with a message, or as good as before."""

import json
import zipfile

import numpy as np
import pytest

from fedmmf import FedMMF, unpacking
from fedmmf.errors import CheckpointError, FedMMFError

MODELS = {
    "mean": {"mask": "mean", "rounds": 2, "factors": 3},
    "ranked": {"mask": "none", "solver": "vb", "objective": "ranking", "rounds": 2, "factors": 3},
}
ARRAYS = {
    "gone": None,
    "empty": lambda a: a[:0],
    "short": lambda a: a[:-1],
    "long": lambda a: np.concatenate((a, a)),
    "flat": lambda a: a.ravel()[:1],
    "scalar": lambda a: np.array(7),
    "deep": lambda a: a[..., np.newaxis],
    "text": lambda a: np.full(a.shape, "x"),
    "huge": lambda a: np.full(a.shape, np.iinfo(a.dtype).max) if a.dtype.kind in "iu" else a,
    "negative": lambda a: np.full(a.shape, -5).astype(a.dtype) if a.dtype.kind in "iuf" else a,
    "nan": lambda a: np.full(a.shape, np.nan) if a.dtype.kind == "f" else a,
    "bytes": lambda a: np.full(a.shape, 200, np.uint8),
    "half": lambda a: a.astype(np.float16) if a.dtype.kind == "f" else a,
    "complex": lambda a: np.full(a.shape, 1j),
}
VALUES = [None, "x", -1, 0, 1e400, [], {}, {"x": 1}, True, [[1]], 2**70]


@pytest.fixture(scope="module", params=MODELS)
def saved(request, small, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    ratings = small.as_implicit() if request.param == "ranked" else small
    FedMMF(**MODELS[request.param]).fit(ratings).save(path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    return arrays, json.loads(arrays.pop("meta.json").tobytes()), ratings


def used(arrays, meta, ratings, path):
    """Write what was changed, load it, and do with it what a user does."""
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **{"meta.json": text}, **arrays)
    model = FedMMF.load(path)
    user = model.learned.user_ids[0].item()
    model.recommend(user, n=3)
    model.recommend(users=[user], seen=True)
    model.summary(ratings, top=3)
    item = model.learned.item_ids[0].item()
    model.join([item] if ratings.is_implicit else {item: float(ratings.scale.max)}).recommend(2)


def refused_or_fine(what, *given):
    with np.errstate(all="ignore"):
        try:
            used(*given)
        except FedMMFError:
            return True
        except Exception as error:
            raise AssertionError(f"not refused: {what}") from error
    return False


@pytest.mark.parametrize("change", ARRAYS)
@pytest.mark.filterwarnings("ignore")  # of numpy, for numbers that are none
def test_changed_arrays(saved, change, tmp_path):
    arrays, meta, ratings = saved
    n_refused = 0
    for name in arrays:
        changed = dict(arrays)
        if ARRAYS[change] is None:
            del changed[name]
        else:
            changed[name] = ARRAYS[change](arrays[name])
        n_refused += refused_or_fine(name, changed, meta, ratings, tmp_path / "model")
    assert n_refused > 0


@pytest.mark.filterwarnings("ignore")
def test_changed_descriptions(saved, tmp_path):
    arrays, meta, ratings = saved
    n_refused = 0
    for name in meta:
        inner = [(name, key) for key in meta[name]] if isinstance(meta[name], dict) else []
        for path in [(name,), *inner]:
            for value in VALUES:
                changed = json.loads(json.dumps(meta))
                target = changed if len(path) == 1 else changed[path[0]]
                target[path[-1]] = value
                n_refused += refused_or_fine(
                    (path, value), arrays, changed, ratings, tmp_path / "model"
                )
    assert n_refused > len(meta)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_bytes_turned_round_by_chance(saved, tmp_path, write):
    arrays, meta, ratings = saved
    path = tmp_path / "model"
    used(arrays, meta, ratings, path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    with path.open("wb") as file:
        write(file, **arrays)
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(whole)
        for place in generator.integers(0, len(whole), 5):
            broken[place] ^= int(generator.integers(1, 256))
        path.write_bytes(bytes(broken))
        try:
            FedMMF.load(path)
        except CheckpointError:
            continue


def test_a_folder_another_archive_and_half_a_file_are_refused(saved, tmp_path):
    arrays, meta, ratings = saved
    path = tmp_path / "model"
    used(arrays, meta, ratings, path)
    path.write_bytes(path.read_bytes()[:-200])
    for name in ("model", ".", "other"):
        if name == "other":
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("x", "y")
        with pytest.raises(CheckpointError, match="fedmmf model"):
            FedMMF.load(tmp_path / name)


def test_a_model_that_unpacks_into_far_too_much_is_refused(saved, tmp_path, monkeypatch):
    arrays, _, _ = saved
    path = tmp_path / "model"
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays, more=np.zeros(4 << 20))
    monkeypatch.setattr(unpacking, "MOST_BYTES", 1 << 20)
    with pytest.raises(CheckpointError, match=r"it unpacks into 3[2-9] MB"):
        FedMMF.load(path)


def test_members_that_are_no_arrays_are_refused(saved, tmp_path):
    arrays, meta, ratings = saved
    path = tmp_path / "model"
    used(arrays, meta, ratings, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other", b"bytes")
    with pytest.raises(CheckpointError, match="something else than arrays"):
        FedMMF.load(path)
