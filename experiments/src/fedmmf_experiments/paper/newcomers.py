"""Users whom training did not know: nothing of them is known, or some ratings are.

The test part is the latest fifth of all ratings; newcomers are the users who have no earlier one.
First nothing is known of them and all of their ratings are predicted; then they join with their
first ten, and the others are predicted. Then by the number of ratings that they join with, from
none to 30: all of these errors are on the same ratings, those after each newcomer's first 30, so
that they can be compared. Every mask and solver, beside what simple means give.

On ML-100K there are 192 newcomers. With nothing known 17,048 ratings are predicted, with ten known
15,128 of them. By the number of known ones it is 11,670 ratings of the 129 newcomers who have more
than 30.

Newcomers of the latest fifth are few, and what is new about them may be the time. So there are also
folds over users: each user is a newcomer in one of five, whose ratings come in random order. Which
ratings happen to be first moves these errors by some thousandths, so several orders may be drawn:
errors are then taken over all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from fedmmf import rng
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.errors import DataError
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF
from fedmmf.solvers import SOLVERS
from fedmmf_experiments.paired import Gain, paired_gain

TEST, GIVEN = 0.2, 10  # share of the ratings; ratings that newcomers join with
KNOWN = (0, 1, 3, 10, 30)  # the same, where all are tested on what comes after the last
FOLDS = 5  # of users
BIAS_SHRINKAGE = 5.0  # shrinkage of items' means towards the overall mean, in ratings
PULLS = (1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0)  # shrinkage of users' biases towards 0, in ratings
Likelihood = Literal["gaussian", "ordinal"]
Tell = Callable[[str], None]
Predict = Callable[
    [Ratings | None, Ratings], Array
]  # what users join with, what to predict -> (n,)


@dataclass(frozen=True)
class NewcomerRow:
    """RMSE of one prediction method for newcomers.

    Differences are those of each newcomer's mean squared error from that of item and user bias,
    over newcomers: where all of the interval is below 0, the row is better. There each newcomer
    counts once, and in an RMSE each rating does, so that the two may disagree. Means have none.
    """

    model: str
    solver: str
    unseen: float  # on all ratings, with nothing known
    joined: float  # on those after the first ten, with these known
    by_known: dict[int, float]  # on those after the first 30, by the number of known ones
    unseen_difference: Gain | None = None
    joined_difference: Gain | None = None
    by_known_differences: dict[int, Gain] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the method, for one cell of the table."""
        return self.model if self.solver == "-" else f"{self.model}, {self.solver}"


def places(ratings: Ratings) -> Array:
    """Place of each rating among those of its user, by time, from 0 on. (n,)."""
    times = np.zeros(len(ratings)) if ratings.timestamps is None else ratings.timestamps
    order = np.lexsort((times, ratings.user_codes))
    place = np.empty(len(ratings), np.int64)
    place[order] = np.arange(len(ratings)) - ratings.by_user[ratings.user_codes[order]]
    return place


def first_of(ratings: Ratings, n: int) -> Ratings | None:
    """Each user's first n ratings; None if that is none."""
    return ratings.select(places(ratings) < n) if n else None


@dataclass(frozen=True, eq=False)
class Case:
    """Ratings that users join with, if any, and ratings to predict."""

    given: Ratings | None
    test: Ratings

    @classmethod
    def of(cls, ratings: Ratings, n_known: int, n_before: int) -> "Case":
        """Each user's first ratings, `n_known` of them, and those after the first `n_before`."""
        return cls(first_of(ratings, n_known), ratings.select(places(ratings) >= n_before))

    @property
    def counts(self) -> dict[str, int]:
        """How many users are tested, on how many ratings."""
        return {"newcomers": len(np.unique(self.test.user_codes)), "ratings": len(self.test)}

    def squares(self, predict: Predict) -> Array:
        """Squared errors of the predicted ratings. (n,)."""
        return np.square(self.test.values - predict(self.given, self.test), dtype=np.float64)


def difference(cases: Sequence[Case], squares: Array, reference: Array, seed: int) -> Gain:
    """Mean over users of the difference of two methods' mean squared errors."""
    users = np.concatenate([case.test.user_codes for case in cases])
    sums, counts = np.bincount(users, squares - reference), np.bincount(users)
    return paired_gain([sums[counts > 0] / counts[counts > 0]], seed)


@dataclass(frozen=True, eq=False)
class Situation:
    """Ratings to train on, and all that newcomers rate, in one order or in several."""

    train: Ratings
    orders: tuple[Ratings, ...]

    @property
    def unseen(self) -> Ratings:
        """All that newcomers rate, in the first order."""
        return self.orders[0]

    @classmethod
    def latest(cls, ratings: Ratings) -> "Situation":
        """The latest fifth of all ratings, of users without an earlier one, by time."""
        train, later = ratings.split_by_time(TEST)
        is_new = np.diff(train.by_user)[later.user_codes] == 0
        most = int(np.bincount(later.user_codes[is_new], minlength=1).max())
        if most <= max(KNOWN):
            raise DataError(
                f"{ratings.name!r} has nobody new with more than {max(KNOWN)} of its latest "
                f"ratings; the most are {most}. Use a set whose users rate more"
            )
        return cls(train, (later.select(is_new),))

    @classmethod
    def folds(
        cls, ratings: Ratings, n_folds: int = FOLDS, seed: int = 0, draws: int = 1
    ) -> "list[Situation]":
        """The first folds over users, each once with all of its users new, in random orders."""
        fold_of = rng.stream(seed, "folds").permutation(ratings.n_users) % FOLDS  # (n_users,)
        found = []
        for fold in range(n_folds):
            train, unseen = ratings.split_at(fold_of[ratings.user_codes] == fold)
            found.append(cls(train, tuple(_shuffled(unseen, seed, draw) for draw in range(draws))))
        return found

    @cached_property
    def cases(self) -> tuple[tuple[Case, ...], ...]:
        """Nothing known; the first ratings known; then by the number of known ones: all orders."""
        last = max(KNOWN)
        sizes = [(0, 0), (GIVEN, GIVEN), *((n_known, last) for n_known in KNOWN)]
        return tuple(tuple(Case.of(some, *size) for some in self.orders) for size in sizes)

    def squares(self, predict: Predict) -> list[Array]:
        """Squared errors in every case, of all orders one after the other."""
        return [np.concatenate([case.squares(predict) for case in some]) for some in self.cases]


def situations_of(
    ratings: Ratings, order: str, n_folds: int, seed: int, draws: int = 1
) -> list[Situation]:
    """Newcomers of the latest fifth, or folds over users in some random orders."""
    if order == "time":
        return [Situation.latest(ratings)]
    return Situation.folds(ratings, n_folds, seed, draws)


def counts_of(found: Sequence[Situation]) -> dict[str, dict[str, int]]:
    """How many newcomers and ratings each error is over, of all situations, in one order each."""
    each = zip(*([case.counts for case, *_ in one.cases] for one in found), strict=True)
    unseen, joined, *by_known = (
        {name: sum(counts[name] for counts in some) for name in some[0]} for some in each
    )
    return {"unseen": unseen, "joined": joined, "by_known": by_known[0]}


def newcomer_rows(
    found: Sequence[Situation],
    seed: int,
    tell: Tell,
    models: Iterable[tuple[str, str]] = (),
    likelihood: Likelihood = "gaussian",
) -> Iterator[NewcomerRow]:
    """Means first, then masks with solvers; errors of several situations are taken together.

    Args:
        found: each with newcomers of its own.
        seed: of the models.
        tell: called with each model's name.
        models: (mask, solver); none: every mask with every solver.
        likelihood: of the models.
    """
    means = [_means(one.train) for one in found]
    for name in means[0]:
        each = zip(found, means, strict=True)
        reference = _pooled([one.squares(its[name]) for one, its in each])
        yield NewcomerRow(name, "-", *_errors(reference))  # in the end, of item and user bias
    for mask, solver in models or product_of_names():
        tell(f"{mask}, {solver}")
        about = {"mask": mask, "solver": solver, "likelihood": likelihood, "seed": seed}
        squares = _pooled([_squares_of(one, about) for one in found])
        cases = zip(*(one.cases for one in found), squares, reference, strict=True)
        unseen, joined, *by_known = (
            difference([case for orders in some for case in orders], a, b, seed)
            for *some, a, b in cases
        )
        beside = (unseen, joined, dict(zip(KNOWN, by_known, strict=True)))
        name = solver if likelihood == "gaussian" else f"{solver}, {likelihood}"
        yield NewcomerRow(mask, name, *_errors(squares), *beside)


def product_of_names() -> list[tuple[str, str]]:
    """Every mask with every solver, by solver."""
    return [(mask, solver) for solver in SOLVERS.names() for mask in FAMILIES.names()]


def _squares_of(found: Situation, about: Mapping[str, Any]) -> list[Array]:
    model = FedMMF(**about).fit(found.train)
    return found.squares(partial(_joined, model))


def _pooled(squares: Sequence[Sequence[Array]]) -> list[Array]:
    """Squared errors of each case, of all situations one after the other."""
    return [np.concatenate(some) for some in zip(*squares, strict=True)]


def _shuffled(ratings: Ratings, seed: int, draw: int) -> Ratings:
    """Return the ratings as if they had come in a random order."""
    name = ("order", draw) if draw else ("order",)
    drawn = rng.stream(seed, *name).permutation(len(ratings)).astype(np.int64)
    return replace(ratings, timestamps=drawn)


def _errors(squares: Sequence[Array]) -> tuple[float, float, dict[int, float]]:
    unseen, joined, *by_known = (round(float(np.sqrt(some.mean())), 4) for some in squares)
    return unseen, joined, dict(zip(KNOWN, by_known, strict=True))


def _joined(model: FedMMF, given: Ratings | None, test: Ratings) -> Array:
    """Let each newcomer join with its own ratings; without any, it is the default user."""
    items = test.item_ids[test.item_codes]
    if given is None:
        return model.predict(test.user_ids[test.user_codes], items)
    predicted = np.empty(len(test))
    for user in np.unique(test.user_codes):
        own, later = (slice(*part.by_user[user : user + 2]) for part in (given, test))
        known = given.item_ids[given.item_codes[own]].tolist()
        newcomer = model.join(dict(zip(known, given.values[own].tolist(), strict=True)))
        predicted[later] = newcomer.predict(items[later])
    return predicted


def _means(train: Ratings) -> dict[str, Predict]:
    """Of items alone, as they are and shrunken, and of items and users, which come last.

    However many ratings are known, the shrinkage of users' biases is the one for ten.
    """
    shrunken = _item_means(train, BIAS_SHRINKAGE)
    return {
        "item means": partial(_biased, _item_means(train, 0.0), np.inf),
        "item means, shrunken": partial(_biased, shrunken, np.inf),
        "item and user bias": partial(_biased, shrunken, best_pull(train)),
    }


def _biased(items: Array, pull: float, given: Ratings | None, test: Ratings) -> Array:
    """Items' means and users' biases; no bias without ratings or with infinite shrinkage. (n,)."""
    bias = np.zeros(test.n_users) if given is None else _user_bias(given, items, pull)
    return np.asarray(test.scale.clip(items[test.item_codes] + bias[test.user_codes]))


def _item_means(ratings: Ratings, shrinkage: float) -> Array:
    """Some ratings' worth nearer to the overall mean; that where there are none. (n_items,)."""
    overall = float(ratings.values.mean(dtype=np.float64))
    counts = np.bincount(ratings.item_codes, minlength=ratings.n_items)
    sums = np.bincount(ratings.item_codes, ratings.values - overall, ratings.n_items)
    return np.asarray(overall + sums / np.maximum(counts + shrinkage, 1.0))


def best_pull(train: Ratings) -> float:
    """Return the shrinkage that serves users of the training part best, as newcomers."""
    items, case = _item_means(train, BIAS_SHRINKAGE), Case.of(train, GIVEN, GIVEN)
    return min(PULLS, key=lambda pull: float(case.squares(partial(_biased, items, pull)).mean()))


def _user_bias(given: Ratings, items: Array, pull: float) -> Array:
    """Users' mean difference from the items' means, shrunken by `pull` ratings. (n_users,)."""
    beyond = given.values - items[given.item_codes]
    counts = np.bincount(given.user_codes, minlength=given.n_users)
    sums = np.bincount(given.user_codes, beyond, given.n_users)
    return np.asarray(sums / (counts + pull))
