"""Parsed sets kept as Parquet, so that a set is parsed once.

An entry is a folder with the ratings, the users, the items and a description that holds the files'
digests. Whatever is wrong with an entry, it counts as absent and is written again.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import platformdirs
import polars as pl

from fedmmf.data.attributes import Attributes
from fedmmf.data.features import ItemFeatures, UserProfiles
from fedmmf.data.forks import require_threads
from fedmmf.data.ratings import Ratings
from fedmmf.data.scales import RatingScale
from fedmmf.errors import DataError, FedMMFError

VERSION = 2
"""Part of every key. Raise it when a loader gives other numbers than before."""

_DESCRIPTION = "description.json"
_ATTRIBUTE = "attribute/"  # begins the names of features and profiles, beside ids and titles
_FACTS = ("name", "synthetic", "is_scale_found", "is_implicit")
Kind = TypeVar("Kind", bound=Attributes)


def folder() -> Path:
    """Return the folder of the cache: FEDMMF_CACHE, or the user's cache folder."""
    given = os.environ.get("FEDMMF_CACHE")
    return Path(given or platformdirs.user_cache_dir("fedmmf", appauthor=False))


def cached(source: Path, options: dict[str, Any], parse: Callable[[], Ratings]) -> Ratings:
    """Return the set parsed from `source`, from the cache if it is there."""
    require_threads()
    entry = folder() / _key(source, options)
    try:
        return _read(entry)
    except (OSError, ValueError, KeyError, TypeError, FedMMFError, pl.exceptions.PolarsError):
        ratings = parse()
        _write(entry, ratings)
        return ratings


def _key(source: Path, options: dict[str, Any]) -> str:
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    facts = [VERSION, str(source), states, sorted(options.items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _read(entry: Path) -> Ratings:
    description = json.loads((entry / _DESCRIPTION).read_bytes())
    ratings, users, items = (
        _read_frame(entry / name, description["sha256"][name])
        for name in ("ratings.parquet", "users.parquet", "items.parquet")
    )
    has_times = "timestamp" in ratings.columns
    return Ratings(
        user_codes=ratings["user_code"].to_numpy(),
        item_codes=ratings["item_code"].to_numpy(),
        values=ratings["value"].to_numpy(),
        timestamps=ratings["timestamp"].to_numpy() if has_times else None,
        user_ids=_array(users["user_id"]),
        item_ids=_array(items["item_id"]),
        scale=RatingScale(**description["scale"]),
        features=_attributes(ItemFeatures, items),
        item_titles=_array(items["title"]) if "title" in items.columns else None,
        profiles=_attributes(UserProfiles, users),
        **{fact: description[fact] for fact in _FACTS},
    )


def _read_frame(path: Path, sha256: str) -> pl.DataFrame:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} is damaged.")
    return pl.read_parquet(content)


def _array(column: pl.Series) -> npt.NDArray[Any]:
    array = column.to_numpy()
    return array.astype(str) if array.dtype == object else array


def _attributes(kind: type[Kind], frame: pl.DataFrame) -> Kind | None:
    names = [name for name in frame.columns if name.startswith(_ATTRIBUTE)]
    if not names:
        return None
    values = np.ascontiguousarray(frame.select(names).to_numpy())  # (n, n_columns)
    return kind(tuple(name.removeprefix(_ATTRIBUTE) for name in names), values)


def _write(entry: Path, ratings: Ratings) -> None:
    """Write an entry beside its place and move it there, so that no reader sees half of one."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=entry.parent, prefix="writing-"))
        try:
            _write_files(scratch, ratings)
            shutil.rmtree(entry, ignore_errors=True)
            scratch.rename(entry)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError:
        return  # a cache that cannot be written costs time at the next load, and nothing else


def _write_files(scratch: Path, ratings: Ratings) -> None:
    digests = {}
    for name, frame in _frames(ratings).items():
        frame.write_parquet(scratch / name, compression="lz4", statistics=False)
        digests[name] = hashlib.sha256((scratch / name).read_bytes()).hexdigest()
    scale = ratings.scale
    description = {
        **{fact: getattr(ratings, fact) for fact in _FACTS},
        "scale": {"min": scale.min, "max": scale.max, "step": scale.step},
        "sha256": digests,
    }
    (scratch / _DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")


def _frames(ratings: Ratings) -> dict[str, pl.DataFrame]:
    columns = {
        "user_code": ratings.user_codes,
        "item_code": ratings.item_codes,
        "value": ratings.values,
        "timestamp": ratings.timestamps,
    }
    users = {"user_id": ratings.user_ids, **_columns(ratings.profiles)}
    items = {"item_id": ratings.item_ids, "title": ratings.item_titles}
    return {
        "ratings.parquet": _without_none(columns),
        "users.parquet": _without_none(users),
        "items.parquet": _without_none(items | _columns(ratings.features)),
    }


def _columns(attributes: Attributes | None) -> dict[str, npt.NDArray[Any]]:
    if attributes is None:
        return {}
    columns = zip(attributes.names, attributes.values.T, strict=True)
    return {_ATTRIBUTE + name: values for name, values in columns}


def _without_none(columns: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame({name: column for name, column in columns.items() if column is not None})
