"""Lists of users whom training did not know, by the number of items that they join with.

Each user is a newcomer in one fold. All lists are judged alike: by what comes after a newcomer's
first 30 items, and chosen from all items but these, whether they are known or not. The most popular
items stand beside them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import count_codes, top_n
from fedmmf.errors import DataError
from fedmmf.model import FedMMF
from fedmmf.model.accuracy import relevant_rating
from fedmmf.model.evaluation import ndcg
from fedmmf_experiments.paper.newcomers import KNOWN, Situation, Tell, first_of, places

LENGTH = 10  # of a list
FACTORS = 64
Score = Callable[[Ratings | None, int], Array]  # what users join with, a user -> scores (n_items,)


@dataclass(frozen=True)
class ListRow:
    """Mean nDCG@10 of one ranker, by the number of known items."""

    model: str
    by_known: dict[int, float]


def list_rows(found: Sequence[Situation], seed: int, tell: Tell) -> Iterator[ListRow]:
    """The most popular items, then `vb` with the objective `ranking`."""
    for name, ranker in {"most popular": _popular, "vb, ranking": _joined}.items():
        tell(name)
        each = [_judged(one, ranker(one.train, seed)) for one in found]
        by_known = {n: float(np.mean(np.concatenate([some[n] for some in each]))) for n in KNOWN}
        yield ListRow(name, {n: round(value, 4) for n, value in by_known.items()})


def n_judged(found: Sequence[Situation]) -> int:
    """Number of newcomers who have something relevant after their first items."""
    return sum(len(np.unique(_relevant(one).user_codes)) for one in found)


def _relevant(found: Situation) -> Ratings:
    """What newcomers should find: relevant items after the first ones, whatever is known."""
    unseen = found.unseen
    least = relevant_rating(unseen.scale, None)
    is_relevant = (places(unseen) >= max(KNOWN)) & (unseen.values >= least)  # (n,)
    if not is_relevant.any():
        raise DataError(
            f"{unseen.name!r} has no newcomer with anything relevant after {max(KNOWN)} items. Use "
            "a set whose users rate more"
        )
    return unseen.select(is_relevant)


def _judged(found: Situation, score: Score) -> dict[int, list[float]]:
    """nDCG@10 of each newcomer's list, by the number of known items."""
    relevant = _relevant(found)
    first = first_of(found.unseen, max(KNOWN))
    quality: dict[int, list[float]] = {}
    for n in KNOWN:
        given = first_of(found.unseen, n)
        quality[n] = []
        for user in np.unique(relevant.user_codes):
            scores = np.array(score(given, user), np.float32)
            scores[_own(first, user)] = -np.inf
            best, wanted = top_n(scores, LENGTH), _own(relevant, user)
            quality[n].append(ndcg(np.isin(best, wanted), len(wanted), LENGTH))
    return quality


def _own(ratings: Ratings | None, user: int) -> Array:
    """Items of one user. (n,)."""
    if ratings is None:
        return np.zeros(0, np.int32)
    return ratings.item_codes[slice(*ratings.by_user[user : user + 2])]


def _popular(train: Ratings, seed: int) -> Score:
    counts = count_codes(train.item_codes, train.n_items)
    return lambda given, user: counts


def _joined(train: Ratings, seed: int) -> Score:
    """Let each newcomer join with what is known; without anything, it is the default user."""
    model = FedMMF(objective="ranking", factors=FACTORS, seed=seed).fit(train)
    nobody = model.learned.scorer(np.arange(train.n_items))(model.learned.n_users)

    def score(given: Ratings | None, user: int) -> Array:
        if given is None:
            return nobody
        values = given.values[slice(*given.by_user[user : user + 2])].tolist()
        known = dict(zip(given.item_ids[_own(given, user)].tolist(), values, strict=True))
        return model.join(known).scores(train.item_ids)

    return score
