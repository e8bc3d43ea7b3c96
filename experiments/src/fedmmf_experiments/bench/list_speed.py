"""Seconds of training lists beside those of iALS with as many factors, in one run.

Both are fitted once before the clock starts, then in turn. iALS is the one of `rankers`, with the
settings that it was tuned to on ML-1M; it holds everybody's ratings. Ours has its defaults in
strict mode, fixed point and all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf.data import Ratings
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import relevant_rating
from fedmmf.settings import Settings
from fedmmf_experiments.bench.measuring import Progress, median, spent
from fedmmf_experiments.bench.rankers import Scores, ials
from fedmmf_experiments.bench.ranking import MAIN, judged, scores_of

WEIGHT, PENALTY = 0.15, 0.01  # of iALS, on rating values


@dataclass(frozen=True)
class ListSpeed:
    """One trainer of lists: medians over the fits, and how good its lists are."""

    name: str
    factors: int
    cpu_seconds: float  # of the processor, of all threads
    seconds: float  # by the clock
    ndcg_at_10: float
    cpu_over_ials: float
    seconds_over_ials: float


def measure(
    ratings: Ratings, settings: Settings, test: float, repeats: int, progress: Progress
) -> list[ListSpeed]:
    """Fit iALS and ours in turn; return a row for each."""
    train, held_back = ratings.split(test, seed=settings.seed)
    least = relevant_rating(train.scale, None)

    def ours() -> Scores:
        return scores_of(FedMMF(**settings.model_dump()).fit(train))

    def theirs() -> Scores:
        return ials(train, least, settings.factors, WEIGHT, PENALTY, "value")

    fits = {"iALS": theirs, f"fedmmf, {settings.sharing}": ours}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in fits}
    lists: dict[str, float] = {}
    for number in range(repeats + 1):
        for name, fit in fits.items():
            scores, seconds = spent(fit)
            if number:  # in the first turn kernels are compiled
                taken[name].append(seconds)
            else:
                lists[name] = judged(scores, train, held_back, least)[MAIN]
        progress(ratings.name, number, repeats)
    return speeds(taken, lists, settings.factors)


def speeds(
    taken: dict[str, list[tuple[float, float]]], lists: dict[str, float], factors: int
) -> list[ListSpeed]:
    """Medians, and those of the ratios within a turn."""
    theirs = taken["iALS"]
    return [
        ListSpeed(
            name=name,
            factors=factors,
            cpu_seconds=median(cpu for _, cpu in spans),
            seconds=median(seconds for seconds, _ in spans),
            ndcg_at_10=lists[name],
            cpu_over_ials=_ratio([cpu for _, cpu in spans], [cpu for _, cpu in theirs]),
            seconds_over_ials=_ratio([wall for wall, _ in spans], [wall for wall, _ in theirs]),
        )
        for name, spans in taken.items()
    ]


def _ratio(some: Sequence[float], others: Sequence[float]) -> float:
    return round(median(np.divide(some, np.maximum(others, 1e-9))), 2)
