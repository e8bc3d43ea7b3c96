"""Lists beside those of centralised rankers: the same splits, candidates and metrics for all.

Rankers are tuned by nDCG@10 on a tenth of the first split's training ratings, then fitted to all
of a split's. (These are in part test ratings of the other splits, which can only help rankers.)
They see ratings alone; ours sees item features and profiles too, where there are any, and has a row
without them. Every list is of all items that the user has not rated in training. Strict mode sums
no item with too few raters, and a ranker that holds everything learns from it and recommends it:
so every ranker is fitted and judged once more with the items alone that strict mode sums. With
`only_summed` there are no other items from the start, and rankers are tuned on these too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from fedmmf import __version__
from fedmmf.aggregation.rare_items import summed_items
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import top_n
from fedmmf.errors import UnknownNameError
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import relevant_rating
from fedmmf.model.evaluation import ListTally, cut_offs, surprise
from fedmmf.settings import Settings
from fedmmf.settings.explaining import either
from fedmmf_experiments.bench.grids import best_of
from fedmmf_experiments.bench.measuring import median, spent
from fedmmf_experiments.bench.rankers import RANKERS, Ranker, Scores
from fedmmf_experiments.bench.ranking_peers import installed_rankers
from fedmmf_experiments.paired import PairedDifference, paired_difference
from fedmmf_experiments.result_cache import ResultCache

VALIDATION = 0.1
BLOCK = 256  # users whose scores are held at once
CUT_OFFS = cut_offs(10)
LONGEST = max(length for _, length in CUT_OFFS)
MAIN = "ndcg_at_10"
FIGURES = ("among_summed", "up_bytes", "down_bytes")
NO_CACHE = ResultCache()
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ListsOfSplit:
    """Metrics of one ranker's lists on one split."""

    settings: Mapping[str, Any]
    seconds: float  # of the fit
    cpu_seconds: float  # of the processor, of all threads
    metrics: Mapping[str, float]
    among_summed: float  # nDCG@10 with the items alone that strict mode sums
    up_bytes: float = 0.0  # of a user in a round; 0: nothing is sent
    down_bytes: float = 0.0


@dataclass(frozen=True)
class RankingRow:
    """Results of one ranker on every split."""

    name: str
    splits: tuple[ListsOfSplit, ...]

    @property
    def seconds(self) -> float:
        """Median seconds of a fit."""
        return median(split.seconds for split in self.splits)

    @property
    def cpu_seconds(self) -> float:
        """Median seconds of the processor of a fit."""
        return median(split.cpu_seconds for split in self.splits)

    def each(self, metric: str = MAIN) -> list[float]:
        """Return a metric on each split."""
        return [split.metrics[metric] for split in self.splits]

    def mean(self, metric: str = MAIN) -> float:
        """Return the mean of a metric over splits."""
        return round(float(np.mean(self.each(metric))), 4)

    def mean_of(self, name: str) -> float:
        """Return the mean of another figure over splits."""
        return round(float(np.mean([getattr(split, name) for split in self.splits])), 4)

    def to_json_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with means over splits."""
        names = self.splits[0].metrics
        means: dict[str, Any] = {name: self.mean_of(name) for name in FIGURES}
        means |= {"metrics": {name: self.mean(name) for name in names}, "seconds": self.seconds}
        means["cpu_seconds"] = self.cpu_seconds
        return {"name": self.name, **means, "splits": [asdict(split) for split in self.splits]}


@dataclass(frozen=True)
class RankingRun:
    """The comparison: rankers, splits, and the cache of results."""

    splits: Sequence[tuple[Ratings, Ratings]]
    settings: Settings
    cache: ResultCache = NO_CACHE
    tell: Tell = lambda name: None
    only_summed: bool = False  # the others are not there at all, for any ranker
    chosen: Sequence[str] = ()  # names of the rows that are shown; none: all

    @property
    def least(self) -> float:
        """Smallest rating that counts as relevant."""
        return relevant_rating(self.splits[0][0].scale, None)

    def rows(self) -> Iterator[RankingRow]:
        """Yield the results of every other ranker, tuned, and then of ours."""
        for ranker in self._rankers():
            tuning = partial(self._tuned, ranker)
            chosen = self._once((ranker.name, "tuned"), dict(ranker.grid), tuning)
            yield self._row(ranker.name, chosen, partial(self._ranked, ranker, chosen))
        for name, ours in self._ours_shown().items():
            about = ours.model_dump(exclude_defaults=True)
            yield self._row(name, about, partial(self._ours, ours))

    def _rankers(self) -> list[Ranker]:
        known = {ranker.name: ranker for ranker in (*RANKERS, *installed_rankers())}
        names = (*known, *_variants(self.settings))
        for name in self.chosen:
            if name not in names:
                raise UnknownNameError(f"the rows are {either(names)}; got {name!r}")
        return [ranker for name, ranker in known.items() if name in (self.chosen or known)]

    def _ours_shown(self) -> dict[str, Settings]:
        """The first of our rows, and those of the others that were chosen; all, if none was."""
        (first, *_), ours = _variants(self.settings), _variants(self.settings)
        shown = [name for name in ours if name in (first, *self.chosen)]
        return {name: ours[name] for name in shown} if ours.keys() & {*self.chosen} else ours

    def _row(
        self, name: str, about: dict[str, Any], judge: Callable[[int], dict[str, Any]]
    ) -> RankingRow:
        found = [
            self._once((name, f"split-{number}"), about, partial(judge, number))
            for number in range(len(self.splits))
        ]
        return RankingRow(name, tuple(ListsOfSplit(**one) for one in found))

    def _once(
        self, name: tuple[str, str], about: dict[str, Any], compute: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        train, seed = self.splits[0][0], self.settings.seed
        facts = {"version": __version__, "about": about, "ratings": train.fingerprint, "seed": seed}
        facts["only_summed"] = self.only_summed
        self.tell(", ".join(name))
        return self.cache.once((train.name, *name), facts, compute)

    def _tuned(self, ranker: Ranker) -> dict[str, Any]:
        return tuned(ranker, self._parts(0)[0], self.least, self._allowed(0))

    def _parts(self, split: int) -> tuple[Ratings, Ratings]:
        """Training and test ratings, of the items that there are."""
        train, test = self.splits[split]
        if not self.only_summed:
            return train, test
        is_summed = self._is_summed(split)
        return train.select(is_summed[train.item_codes]), test.select(is_summed[test.item_codes])

    def _allowed(self, split: int) -> Array | None:
        return self._is_summed(split) if self.only_summed else None

    def _ranked(self, ranker: Ranker, chosen: Mapping[str, Any], split: int) -> dict[str, Any]:
        (train, test), is_summed = self._parts(split), self._is_summed(split)
        scores, seconds = spent(lambda: ranker.fit(train, self.least, **chosen))
        found = judged(scores, train, test, self.least, self._allowed(split))
        if not self.only_summed:
            alike = train.select(is_summed[train.item_codes])
            scores = ranker.fit(alike, self.least, **chosen)
        among = judged(scores, train, test, self.least, is_summed)
        return asdict(ListsOfSplit(chosen, *seconds, found, among[MAIN]))

    def _is_summed(self, split: int) -> Array:
        """Whether strict mode sums an item, for each item. (n_items,) bool."""
        train, _ = self.splits[split]
        counts = np.bincount(train.item_codes, minlength=train.n_items)
        return np.isin(np.arange(train.n_items), summed_items(counts, self.settings))

    def _ours(self, ours: Settings, split: int) -> dict[str, Any]:
        train, test = self._parts(split)
        model, seconds = spent(
            lambda: FedMMF(**ours.changed(seed=ours.seed + split).model_dump()).fit(train)
        )
        shown = {name: getattr(ours, name) for name in ("mask", "factors", "ensemble")}
        scores, traffic = scores_of(model), model.traffic()
        found = judged(scores, train, test, self.least, self._allowed(split))
        among = judged(scores, train, test, self.least, self._is_summed(split))[MAIN]
        sent = (traffic.up_bytes_per_user_round, traffic.down_bytes_per_user_round)
        return asdict(ListsOfSplit(shown, *seconds, found, among, *sent))


def behind(rows: Sequence[RankingRow], test: float) -> dict[str, PairedDifference]:
    """Paired differences between ours and each other row, for splits with this test share."""
    ours = next(row for row in rows if row.name.startswith("fedmmf"))
    others = (row for row in rows if row is not ours)
    return {row.name: paired_difference(ours.each(), row.each(), test) for row in others}


def _variants(settings: Settings) -> dict[str, Settings]:
    """Settings of ours; of ours with ratings alone, with runs averaged, and in the clear."""
    return {
        f"fedmmf, {settings.sharing}": settings,
        "fedmmf, ratings alone": settings.changed(item_prior=False, profile_prior=False),
        f"fedmmf, {3 * settings.ensemble} runs averaged": settings.changed(
            ensemble=3 * settings.ensemble
        ),
        "fedmmf, in the clear": settings.changed(sharing="plain"),
    }


def tuned(
    ranker: Ranker, train: Ratings, least: float, allowed: Array | None = None
) -> dict[str, Any]:
    """Settings with the best lists on a part of the training ratings; `best_of` says how."""
    part, kept = train.split(VALIDATION, seed=1)
    grid = dict(ranker.grid)
    if train.is_implicit and "chosen" in grid:
        grid["chosen"] = grid["chosen"][:1]  # all of them say the same

    def quality(settings: Mapping[str, Any]) -> float:
        return judged(ranker.fit(part, least, **settings), part, kept, least, allowed)[MAIN]

    return best_of(grid, quality)


def scores_of(model: FedMMF) -> Scores:
    """Scores of all items by a model of ours."""
    everything = np.arange(model.learned.n_items)
    score = model.learned.scorer(everything)
    return lambda users: np.stack([score(int(user)) for user in users])


def judged(
    scores: Scores,
    train: Ratings,
    test: Ratings,
    least: float,
    allowed: Array | None = None,
) -> dict[str, float]:
    """Metrics of everybody's list, by the names that results have for them.

    Args:
        scores: of all items for some users.
        train: ratings whose items are in no list of their user.
        test: ratings to find.
        least: smallest relevant rating.
        allowed: items that lists may have; None: all. (n_items,) bool
    """
    barred = np.zeros(train.n_items, bool) if allowed is None else ~allowed
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
            row[barred] = -np.inf
            best, own = top_n(row, LONGEST), relevant[int(user)]
            tally.add(best, np.isin(best, own), len(own))
    return {f"{name}_at_{n}": round(value, 4) for (name, n), value in tally.means().items()}


def _by_user(test: Ratings, is_good: Array) -> dict[int, Array]:
    """Return the relevant items of each user."""
    found: dict[int, Array] = {}
    for user in np.unique(test.user_codes[is_good]):
        own = slice(*test.by_user[user : user + 2])
        found[int(user)] = test.item_codes[own][is_good[own]]
    return found
