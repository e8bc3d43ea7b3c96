"""Lists that somebody gets who names nothing but the data, beside what costs no thought.

Ours are those of `fedmmf recommend --data`: nothing is chosen here. Beside them are the most
popular items, and ALS of the package `implicit` at its defaults, on rating values as they are and
on ones. ALS holds everybody's ratings.
"""

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from fedmmf.cli.options import for_lists
from fedmmf.data import Ratings, load
from fedmmf.errors import UnknownNameError
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import DEFAULT_TOP, relevant_rating
from fedmmf.settings import Settings
from fedmmf.settings.explaining import either
from fedmmf_experiments.bench.rankers import Scores
from fedmmf_experiments.bench.ranking import MAIN, judged
from fedmmf_experiments.bookshop import bookshop, core

Tell = Callable[[str], None]
SETS: dict[str, Callable[[], Ratings]] = {
    "ml-100k": lambda: load("ml-100k"),
    "ml-1m": lambda: load("ml-1m"),
    "lastfm": lambda: load("lastfm"),
    "lastfm-implicit": lambda: replace(load("lastfm", implicit=True), name="lastfm-implicit"),
    "bookshop": lambda: core(bookshop()),
}
"""Ratings by the name of a row. The last are made up, in the shape of Book-Crossing."""


@dataclass(frozen=True)
class FirstAnswer:
    """The nDCG@10 of a first answer on one data set, means over splits."""

    data: str
    synthetic: bool
    n_users: int
    n_items: int
    n_ratings: int
    settings: dict[str, Any]  # of ours, that nobody chose
    ours: float
    popularity: float
    als_on_values: float | None  # None: `implicit` is not installed, and so on ones
    als_on_ones: float | None
    seconds: float  # of a fit of ours


def has_als() -> bool:
    """Whether the package `implicit` is installed."""
    return importlib.util.find_spec("implicit") is not None


def chosen_sets(names: Sequence[str]) -> dict[str, Callable[[], Ratings]]:
    """Return the sets of these names; raise `UnknownNameError` for another one."""
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise UnknownNameError(f"the sets are {either(tuple(SETS))}; got {unknown[0]!r}")
    return {name: SETS[name] for name in names}


def first_answer(ratings: Ratings, splits: int, test: float, seed: int, tell: Tell) -> FirstAnswer:
    """Compare the lists of a first answer on some random splits."""
    rows = []
    for number in range(splits):
        tell(f"{ratings.name}, split {number + 1} of {splits}")
        train, held_back = ratings.split(test, seed=seed + number)
        rows.append({**_ours(train, held_back, seed + number), **als_figures(train, held_back)})
    first = rows[0]
    return FirstAnswer(
        data=ratings.name,
        synthetic=ratings.synthetic,
        n_users=ratings.n_users,
        n_items=ratings.n_items,
        n_ratings=len(ratings),
        settings=first.pop("settings"),
        **{name: _mean([row[name] for row in rows]) for name in first},
    )


def _mean(values: list[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _ours(train: Ratings, held_back: Ratings, seed: int) -> dict[str, Any]:
    settings = for_lists(Settings(seed=seed), train, lambda line: None)
    began = time.perf_counter()
    model = FedMMF(**settings.model_dump()).fit(train)
    seconds = time.perf_counter() - began
    found = model.evaluate(held_back, top=DEFAULT_TOP)["ranking"]
    popular = None if found.popularity is None else found.popularity.ndcg_at_10
    about = model.settings.model_dump(exclude_defaults=True)
    return {
        "settings": about,
        "ours": found.ndcg_at_10,
        "popularity": popular,
        "seconds": seconds,
    }


def als_figures(train: Ratings, held_back: Ratings) -> dict[str, float | None]:
    """The nDCG@10 of ALS on values and on ones; None where it is not installed."""
    if not has_als():
        return {"als_on_values": None, "als_on_ones": None}
    least = relevant_rating(train.scale, None)
    kinds = {"als_on_values": train.values, "als_on_ones": np.ones(len(train))}
    found = {name: default_als(train, values) for name, values in kinds.items()}
    return {name: judged(scores, train, held_back, least)[MAIN] for name, scores in found.items()}


def default_als(ratings: Ratings, values: Any) -> Scores:
    """Fit `implicit.als.AlternatingLeastSquares()` to one value for each rating; the seed is 0."""
    from implicit.als import AlternatingLeastSquares

    codes = (ratings.user_codes, ratings.item_codes)
    shape = (ratings.n_users, ratings.n_items)
    x = sparse.csr_matrix((np.asarray(values, np.float32), codes), shape=shape)
    with threadpool_limits(limits=1, user_api="blas"):  # it warns otherwise, when made and fitted
        model = AlternatingLeastSquares(random_state=0)
        model.fit(x, show_progress=False)
    return lambda users: model.user_factors[users] @ model.item_factors.T


def to_json_dict(rows: Sequence[FirstAnswer], splits: int, test: float) -> dict[str, Any]:
    """Return the table for JSON."""
    als = "installed" if has_als() else "not installed"
    return {
        "splits": splits,
        "test": test,
        "implicit": als,
        "rows": [asdict(row) for row in rows],
    }
