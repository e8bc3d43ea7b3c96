"""Users whom training did not know: nothing of them is known, or a few ratings are.

The test part is the latest fifth of all ratings. In the first case errors are those of users who
have no earlier one; in the second these users join with their first ratings, and are tested on the
others. Every mask and solver, beside what simple means give.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from fedmmf import evaluation
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.errors import DataError
from fedmmf.masks import FAMILIES
from fedmmf.model import FedMMF
from fedmmf.solvers import SOLVERS

TEST, GIVEN = 0.2, 10  # share of the ratings; ratings that newcomers join with
BIAS_SHRINKAGE = 5.0  # ratings' worth of pull of items' means towards the overall one
PULLS = (1.0, 2.0, 5.0, 10.0, 15.0, 25.0, 50.0)  # of users' biases towards none
Tell = Callable[[str], None]


@dataclass(frozen=True)
class NewcomerRow:
    """Errors of one way to predict."""

    model: str
    solver: str
    unseen: float  # RMSE of users without a rating in training
    joined: float  # RMSE of the same users after they have joined with some ratings


@dataclass(frozen=True, eq=False)
class Situation:
    """Ratings to train on, and of users who come later."""

    train: Ratings
    unseen: Ratings  # all that newcomers rate
    given: Ratings  # what they join with
    test: Ratings  # the rest

    @classmethod
    def of(cls, ratings: Ratings) -> "Situation":
        """By time."""
        train, later = ratings.split_by_time(TEST)
        is_new = np.diff(train.by_user)[later.user_codes] == 0
        times = later.timestamps
        if times is None or np.bincount(later.user_codes[is_new], minlength=1).max() <= GIVEN:
            raise DataError(
                f"{ratings.name!r} has nobody new with more than {GIVEN} of its latest ratings"
            )
        unseen = later.select(is_new)
        return cls(train, unseen, *_first_and_rest(unseen))


def _first_and_rest(ratings: Ratings) -> tuple[Ratings, Ratings]:
    """Each user's earliest ratings, `GIVEN` of them, and the others."""
    times = np.zeros(len(ratings)) if ratings.timestamps is None else ratings.timestamps
    order = np.lexsort((times, ratings.user_codes))
    place = np.empty(len(ratings), np.int64)  # (n,) among the ratings of its user
    place[order] = np.arange(len(ratings)) - ratings.by_user[ratings.user_codes[order]]
    return ratings.select(place < GIVEN), ratings.select(place >= GIVEN)


def newcomer_rows(ratings: Ratings, seed: int, tell: Tell) -> Iterator[NewcomerRow]:
    """Means first, then every mask with every solver."""
    found = Situation.of(ratings)
    yield from _means(found)
    for solver in SOLVERS.names():
        for mask in FAMILIES.names():
            tell(f"{mask}, {solver}")
            model = FedMMF(mask=mask, solver=solver, seed=seed).fit(found.train)
            errors = (_unseen(model, found.unseen), _joined(model, found.given, found.test))
            yield NewcomerRow(mask, solver, *(round(error, 4) for error in errors))


def _unseen(model: FedMMF, unseen: Ratings) -> float:
    users, items = unseen.user_ids[unseen.user_codes], unseen.item_ids[unseen.item_codes]
    return evaluation.rmse(unseen.values, model.predict(users, items))


def _joined(model: FedMMF, given: Ratings, test: Ratings) -> float:
    """Each newcomer joins by itself, with its own ratings."""
    errors = []
    for user in np.unique(test.user_codes):
        own, later = (slice(*part.by_user[user : user + 2]) for part in (given, test))
        items = given.item_ids[given.item_codes[own]].tolist()
        newcomer = model.join(dict(zip(items, given.values[own].tolist(), strict=True)))
        predicted = newcomer.predict(test.item_ids[test.item_codes[later]])
        errors.append(test.values[later] - predicted)
    return float(np.sqrt(np.mean(np.square(np.concatenate(errors), dtype=np.float64))))


def _means(found: Situation) -> Iterator[NewcomerRow]:
    """Of items alone, as they are and shrunken, and of items and users."""
    unseen, test = found.unseen, found.test
    nobody = np.zeros(found.train.n_users)
    for name, shrinkage, pull in (
        ("item means", 0.0, None),
        ("item means, shrunken", BIAS_SHRINKAGE, None),
        ("item and user bias", BIAS_SHRINKAGE, best_pull(found.train)),
    ):
        items = _item_means(found.train, shrinkage)
        bias = nobody if pull is None else _user_bias(found.given, items, pull)
        both = test.scale.clip(items[test.item_codes] + bias[test.user_codes])
        errors = (
            evaluation.rmse(unseen.values, items[unseen.item_codes]),
            evaluation.rmse(test.values, both),
        )
        yield NewcomerRow(name, "-", *(round(error, 4) for error in errors))


def _item_means(ratings: Ratings, shrinkage: float) -> Array:
    """Some ratings' worth nearer to the overall mean; that where there are none. (n_items,)."""
    overall = float(ratings.values.mean(dtype=np.float64))
    counts = np.bincount(ratings.item_codes, minlength=ratings.n_items)
    sums = np.bincount(ratings.item_codes, ratings.values - overall, ratings.n_items)
    return np.asarray(overall + sums / np.maximum(counts + shrinkage, 1.0))


def best_pull(train: Ratings) -> float:
    """Which pull serves users of the training part best, were they newcomers."""
    items, (given, rest) = _item_means(train, BIAS_SHRINKAGE), _first_and_rest(train)

    def error(pull: float) -> float:
        bias = _user_bias(given, items, pull)[rest.user_codes]
        return evaluation.rmse(rest.values, rest.scale.clip(items[rest.item_codes] + bias))

    return min(PULLS, key=error)


def _user_bias(given: Ratings, items: Array, pull: float) -> Array:
    """What users give beyond the items' means, shrunken by so many ratings' worth. (n_users,)."""
    beyond = given.values - items[given.item_codes]
    counts = np.bincount(given.user_codes, minlength=given.n_users)
    sums = np.bincount(given.user_codes, beyond, given.n_users)
    return np.asarray(sums / (counts + pull))
