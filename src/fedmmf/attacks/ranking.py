"""The paper's ranking attack (section 4.2): the highest masked ratings as the highest ratings.

Our reading, where the paper is silent (errata 27, 28): h counts tenths of a user's list, rounded up
to whole items. `strict` breaks ties of the true ratings by position, as the paper's sorting does.
Tie-tolerant counts every item that is rated as high as the last one of the true top: with ratings
of five levels most tops end within a tie, and `strict` then understates the attack.
"""

from functools import partial

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import Exposed, View, levels_of


def masked_scores(view: Exposed) -> Array:
    """Return the masked ratings themselves as scores to rank by. (n,)."""
    return view.masked


def hit_ratio(view: View, scores: Array, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Return beta: the share of the selected items that are in the true top. (n_users,)."""
    beta = np.full(len(view.users), np.nan)
    for user, rows in enumerate(view.ranges):
        ratings = truth[rows]
        if len(ratings) == 0:
            continue
        selected = np.argsort(-scores[rows], kind="stable")[: _top_size(len(ratings), tenths)]
        beta[user] = _true_top(ratings, tenths, strict)[selected].mean()
    return beta


def prior_hit_ratio(view: View, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Success of ranking by the items' public mean ratings. (n_users,)."""
    expected = view.prior @ levels_of(view.scale)
    return hit_ratio(view, expected, truth, tenths=tenths, strict=strict)


def random_hit_ratio(view: View, truth: Array, *, tenths: int, strict: bool) -> Array:
    """Mean success of selecting items at random, as beside figure 2b. (n_users,)."""
    beta = np.full(len(view.users), np.nan)
    for user, rows in enumerate(view.ranges):
        if rows.stop > rows.start:
            beta[user] = _true_top(truth[rows], tenths, strict).mean()
    return beta


def ranking(tenths: int = 1, *, strict: bool = False) -> Attack:
    """Make the attack at h = `tenths` tenths of each user's list."""
    rule = "with ties broken by position" if strict else "where ties with its last item count too"
    return Attack(
        name=f"ranking h={tenths}{' strict' if strict else ''}",
        knows="The masked ratings of each user.",
        outputs="An order of each user's items.",
        measure=f"Share of the top {10 * tenths} % guessed that is in the true top, {rule}.",
        guess=masked_scores,
        score=partial(hit_ratio, tenths=tenths, strict=strict),
        baseline=partial(prior_hit_ratio, tenths=tenths, strict=strict),
        finds="order",
    )


def _top_size(n: int, tenths: int) -> int:
    return -(-n * tenths // 10)


def _true_top(ratings: Array, tenths: int, strict: bool) -> Array:
    """Whether an item is in the true top. (n,) bool."""
    order = np.argsort(-ratings, kind="stable")
    top = order[: _top_size(len(ratings), tenths)]
    if not strict:
        return np.asarray(ratings >= ratings[top[-1]])
    is_top = np.zeros(len(ratings), bool)
    is_top[top] = True
    return is_top


RANKING = ranking()
