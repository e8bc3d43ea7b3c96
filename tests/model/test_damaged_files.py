"""Model files that somebody changed: refused with a message, or as good as before."""

import json
import tracemalloc
import zipfile
from copy import copy

import numpy as np
import pytest

from fedmmf import FedMMF
from fedmmf.errors import CheckpointError, FedMMFError
from fedmmf.storage import checkpoints

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


def test_a_model_that_unpacks_into_more_than_there_is_to_read_is_refused(saved, tmp_path):
    """Whatever the factor: a file of ours is not compressed."""
    arrays, _, _ = saved
    path, chance = tmp_path / "model", np.random.default_rng(0)
    more = np.concatenate((np.zeros(1 << 20), chance.random(1 << 20)))  # half its size, packed
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays, more=more)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"unpacks into 16,[\d,]+ bytes and has [78],"):
            FedMMF.load(path)
        assert tracemalloc.get_traced_memory()[1] < more.nbytes / 4
    finally:
        tracemalloc.stop()


def test_members_that_share_their_bytes_are_refused(saved, tmp_path):
    """A table of contents can name the same bytes again and again."""
    arrays, meta, ratings = saved
    path = tmp_path / "model"
    used(arrays, meta, ratings, path)
    with zipfile.ZipFile(path, "a") as archive:
        largest = max(archive.filelist, key=lambda member: member.file_size)
        for number in range(200):
            twin = copy(largest)
            twin.filename = f"twin{number}.npy"
            archive.filelist.append(twin)
        archive._didModify = True
    with pytest.raises(CheckpointError, match="unpacks into"):
        FedMMF.load(path)


def test_members_that_are_no_arrays_are_refused(saved, tmp_path):
    arrays, meta, ratings = saved
    path = tmp_path / "model"
    used(arrays, meta, ratings, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other", b"bytes")
    with pytest.raises(CheckpointError, match="something else than arrays"):
        FedMMF.load(path)


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_users_without_a_training_rating_do_not_make_a_file_a_damaged_one(
    settings, small, tmp_path
):
    """They have no J: a split by time, or of a sparse file, leaves such users."""
    is_first = small.user_codes < 5
    kept = small.select(~is_first)
    assert kept.n_users == small.n_users
    model = FedMMF(**settings).fit(kept)
    assert np.isnan(model.learned.j_train[:5]).all()
    model.save(tmp_path / "model")
    loaded, user = FedMMF.load(tmp_path / "model"), small.user_ids[0].item()
    assert loaded.recommend(user).equals(model.recommend(user))


@pytest.mark.parametrize("name", ["j_train", "variances"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_users_with_ratings_have_finite_indicators(saved, tmp_path, name, value):
    arrays, meta, ratings = saved
    changed = arrays | {name: np.where(np.arange(len(arrays[name])) == 1, value, arrays[name])}
    with pytest.raises(CheckpointError, match=f"{name} has numbers that are not finite"):
        used(changed, meta, ratings, tmp_path / "model")


def test_who_gives_a_checkpoint_for_a_model_is_told_how_to_go_on(tmp_path):
    checkpoints.save(tmp_path / "a.ckpt", {}, {"kind": "checkpoint"})
    with pytest.raises(CheckpointError, match="with --checkpoint and this file"):
        FedMMF.load(tmp_path / "a.ckpt")
