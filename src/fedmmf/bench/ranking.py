"""Lists beside those of centralised rankers: one split, one set of candidates, one set of metrics.

Rankers are tuned by nDCG@10 on a tenth of the training ratings, then fitted to all of them. They
see ratings alone; ours sees item features and profiles too, where there are any, and has a row
without them. Ours runs with its defaults, which were chosen while looking at results on these very
sets. Every list is of all items that the user has not rated in training.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.bench.rankers import RANKERS, Ranker, Scores
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.evaluation import ListTally, cut_offs, surprise
from fedmmf.lists import best_first
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import relevant_rating

VALIDATION = 0.1
BLOCK = 256  # users whose scores are held at once
CUT_OFFS = cut_offs(10)
LONGEST = max(length for _, length in CUT_OFFS)
Tell = Callable[[str], None]


@dataclass(frozen=True)
class RankingRow:
    """One way to make lists."""

    name: str
    settings: Mapping[str, Any]
    seconds: float  # of the last fit
    metrics: Mapping[str, float]


def compare(train: Ratings, test: Ratings, settings: Settings, tell: Tell) -> Iterator[RankingRow]:
    """Every ranker, and ours."""
    least = relevant_rating(train.scale, None)
    for ranker in RANKERS:
        tell(ranker.name)
        chosen = tuned(ranker, train, least)
        began = time.perf_counter()
        scores = ranker.fit(train, least, **chosen)
        seconds = time.perf_counter() - began
        yield RankingRow(ranker.name, chosen, round(seconds, 2), judged(scores, train, test, least))
    for name, ours in _variants(settings).items():
        tell(name)
        began = time.perf_counter()
        model = FedMMF(**ours.model_dump()).fit(train)
        seconds = time.perf_counter() - began
        shown = {name: getattr(ours, name) for name in ("mask", "factors", "ensemble")}
        yield RankingRow(name, shown, round(seconds, 2), judged(_ours(model), train, test, least))


def _variants(settings: Settings) -> dict[str, Settings]:
    """Ours, and ours with ratings alone."""
    ours = f"fedmmf, {settings.sharing}"
    alone = settings.changed(item_prior=False, profile_prior=False)
    return {ours: settings, "fedmmf, ratings alone": alone}


def tuned(ranker: Ranker, train: Ratings, least: float) -> dict[str, Any]:
    """Settings with the best lists on a part of the training ratings.

    One setting after the other, from the middle of the grid on, as long as lists get better.
    """
    part, kept = train.split(VALIDATION, seed=1)
    seen: dict[tuple[Any, ...], float] = {}

    def quality(settings: Mapping[str, Any]) -> float:
        key = tuple(settings.values())
        if key not in seen:
            found = judged(ranker.fit(part, least, **settings), part, kept, least)
            seen[key] = found["ndcg_at_10"]
        return seen[key]

    best = {name: values[len(values) // 2] for name, values in ranker.grid.items()}
    while True:
        before = dict(best)
        for name, values in ranker.grid.items():
            best = max(({**best, name: value} for value in values), key=quality)
        if best == before:
            return best


def _ours(model: FedMMF) -> Scores:
    everything = np.arange(model.learned.n_items)
    score = model.learned.scorer(everything)
    return lambda users: np.stack([score(int(user)) for user in users])


def judged(scores: Scores, train: Ratings, test: Ratings, least: float) -> dict[str, float]:
    """Metrics of everybody's list, by the names that results have for them."""
    counts = np.bincount(train.item_codes, minlength=train.n_items)
    tally = ListTally(CUT_OFFS, surprise(counts, train.n_users))
    is_good = test.values >= least
    users = np.unique(test.user_codes[is_good])
    relevant = _by_user(test, is_good)
    for begin in range(0, len(users), BLOCK):
        some = users[begin : begin + BLOCK]
        for user, row in zip(some, scores(some), strict=True):
            row = np.array(row, np.float32)
            row[train.item_codes[slice(*train.by_user[user : user + 2])]] = -np.inf
            best, own = best_first(row, LONGEST), relevant[int(user)]
            tally.add(best, np.isin(best, own), len(own))
    return {f"{name}_at_{n}": round(value, 4) for (name, n), value in tally.means().items()}


def _by_user(test: Ratings, is_good: Array) -> dict[int, Array]:
    """What there is to find."""
    found: dict[int, Array] = {}
    for user in np.unique(test.user_codes[is_good]):
        own = slice(*test.by_user[user : user + 2])
        found[int(user)] = test.item_codes[own][is_good[own]]
    return found
