"""Attack: which items a user rated, from what leaves the parties.

A plain update names its items; one over the whole catalogue shows them as the rows that are not
zero. A sum over a cohort names how many of the cohort rated each item. Two sums over cohorts that
differ by one party name that party's items (errata 36). Leaving out items with few raters hides
those items alone; one that falls below the limit with one party gone shows as well.

Success is the area under the ROC curve: the probability that an item the user rated gets a higher
score than one it did not. It needs no threshold and does not change with the share of items that a
user rated, which is small and differs between users; 0.5 is a coin. The baseline ranks items by
how many other people rated them, which is public.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.data.rated_items import RatedItems


@dataclass(frozen=True, eq=False)
class CohortView:
    """Knowledge of a server about a cohort and its items."""

    users: Array  # codes of the attacked users, all of the cohort. (n_users,)
    # share of other people who rated each item; public. (n_items,), or (n_users, n_items) where
    # these are all people but the attacked one
    popularity: Array
    # what the server received about each user and item: 0 where nothing. (n_users, n_items), or (1,
    # n_items) where it is the same for everybody, as in a sum
    scores: Array


def item_matrix(lists: RatedItems, n_items: int) -> Array:
    """Matrix of who rated what, the truth of this attack. (n_users, n_items) bool."""
    matrix = np.zeros((lists.n_users, n_items), bool)
    matrix[lists.users, lists.items] = True
    return matrix


def from_updates(rated: Array, popularity: Array, users: Array) -> CohortView:
    """Make the view of plain updates, whether of rated items or over the catalogue."""
    return CohortView(users, popularity, rated.astype(np.float64))


def rank_items(view: CohortView) -> Array:
    """Score all items for each user; where the sums say nothing, popularity decides."""
    tie_break = 0.5 * view.popularity / max(float(view.popularity.max(initial=0.0)), 1e-12)
    scores = view.scores + tie_break
    return np.broadcast_to(scores, (len(view.users), scores.shape[1]))


def area_under_curve(view: object, scores: Array, rated: Array) -> Array:
    """Probability that a rated item outranks an unrated one; ties count half. (n_users,)."""
    n_rated = rated.sum(axis=1)
    n_unrated = rated.shape[1] - n_rated
    ranks = np.array([_ranks(row) for row in scores]).reshape(scores.shape)  # (n_users, n_items)
    wins = np.where(rated, ranks, 0.0).sum(axis=1) - n_rated * (n_rated + 1) / 2
    pairs = n_rated * n_unrated
    out: Array = np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return out


def _ranks(values: Array) -> Array:
    """Rank of each value from 1; equal values share their mean rank. (n,)."""
    ordered = np.sort(values)
    below, up_to = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    return np.asarray((below + up_to + 1) / 2)


def popularity_area(view: CohortView, rated: Array) -> Array:
    """Success of ranking by popularity alone. (n_users,)."""
    scores = np.broadcast_to(view.popularity, rated.shape)
    return area_under_curve(view, scores, rated)


MEMBERSHIP = Attack(
    name="membership",
    knows="Updates or sums of a cohort, and how many other people rated each item.",
    outputs="An order of all items for each user, the rated ones first.",
    measure="Area under the ROC curve: how often a rated item outranks an unrated one.",
    guess=rank_items,
    score=area_under_curve,
    baseline=popularity_area,
    target="cohort",
    finds="items",
)
