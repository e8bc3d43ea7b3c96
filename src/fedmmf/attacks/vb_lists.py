"""Attack: whose list of rated items was in the sums of a training, by the span of all sums.

A row that is the same for all items of a user makes the sums of a round, column by column, linear
in the users' lists. So it is in membership rounds, where rows are p_u, and nearly so in every round
where unrated items count (`objective="ranking"`). Many such columns span the lists: a list that was
in the sums is nearer to their span than one that was not.

The attacker has lists of people, some of whom took part. Success is, for each of these, the share
of the others who get a lower score: 1/2 is a guess. Public is how many of the cohort rated each
item. That alone tells a good deal, since everybody who took part is in the counts (Homer et al.
2008), and the baseline reads it. The attack is what the span says beside that.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack

MIN_VALUE = 1e-6  # of a direction of the span, beside the largest


@dataclass(frozen=True, eq=False)
class ListsView:
    """Sums of a training, and lists of people who may have been in them."""

    users: Array  # codes of these people. (n_users,)
    lists: Array  # which of the summed items each of them rated. (n_users, n_summed) bool
    popularity: Array  # share of the cohort that rated each item, from the survey. (n_summed,)
    columns: Array  # all sums of rows, side by side. (n_summed, n_columns)


def nearness(view: ListsView) -> Array:
    """Share of each list that is in the span of the sums, popularity set aside. (n_users,)."""
    columns = _set_aside(view.columns.T, view.popularity).T
    if not columns.size or not columns.any():
        return in_counts(view)
    basis, values, _ = np.linalg.svd(columns, full_matrices=False)
    kept = min(int((values > MIN_VALUE * values[0]).sum()), len(columns) // 2)
    lists = _set_aside(view.lists + 0.0, view.popularity)
    inside = np.square(lists @ basis[:, :kept]).sum(axis=1)
    return np.asarray(inside / np.maximum(np.square(lists).sum(axis=1), 1e-12))


def in_counts(view: ListsView) -> Array:
    """Excess of the frequency of each list's items in the cohort over that in all lists.

    What is known without the sums. (n_users,).
    """
    usual = view.lists.sum(axis=0) / max(len(view.lists), 1)  # (n_summed,)
    more = (view.popularity - usual) / (usual * (1 - usual) + 1e-3)
    return np.asarray((view.lists - usual) @ more)


def _set_aside(values: Array, popularity: Array) -> Array:
    """Entries that popularity does not explain, in standard deviations."""
    length = max(float(popularity @ popularity), 1e-12)
    explained = np.outer(values @ popularity / length, popularity)
    return np.asarray((values - explained) / np.sqrt(popularity * (1 - popularity) + 1e-3))


def told_apart(view: ListsView, scores: Array, took_part: Array) -> Array:
    """Share of the others whom each person who took part outranks; ties count half. (n_users,).

    NaN for who did not take part, for empty lists, and where there are no others.
    """
    found, has_list = np.full(len(scores), np.nan), view.lists.any(axis=1)
    ours, others = np.flatnonzero(took_part & has_list), scores[~took_part & has_list]
    if len(others):
        gap = np.sign(scores[ours, np.newaxis] - others)
        found[ours] = 0.5 + 0.5 * gap.mean(axis=1)
    return found


def told_by_counts(view: ListsView, took_part: Array) -> Array:
    """Success of the counts alone, without the sums. (n_users,)."""
    return told_apart(view, in_counts(view), took_part)


VB_LISTS = Attack(
    name="vb lists",
    knows=(
        "The sums of rows of all rounds of vb over a cohort, how many of it rated each item, and "
        "lists of rated items of people who may have been in it."
    ),
    outputs="An order of these people, those who took part first.",
    measure="How often somebody who took part is told from somebody who did not; 1/2 is a guess.",
    guess=nearness,
    score=told_apart,
    baseline=told_by_counts,
    target="lists",
    finds="items",
)
