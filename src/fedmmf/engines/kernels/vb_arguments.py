"""Arguments of the kernel of `vb`, by name.

Numba's cache does not notice when fields of one type change places here: change `vb_pass.py` too.
"""

from typing import Any, NamedTuple

from fedmmf.arrays import Array


class PassRatings(NamedTuple):
    """Ratings of all users, one user after the other."""

    indptr: Array  # (n_users + 1,)
    items: Array  # (n,)
    masked: Array  # (n,)
    levels: Array  # of ordered ratings; empty where they are taken as numbers
    mask: Array  # likewise


class PassPublic(NamedTuple):
    """A broadcast, as a pass reads it."""

    table: Array  # E[q], known columns and shrinkages, side by side (n_items, k + j + k) float32
    design: Array  # where unrated items count (n_items, m) float32
    basis: Array  # (k + j, k)
    user_precision: Array  # (k + j,)
    user_middle: Array  # (k + j,)
    user_weights: Array  # (e, k + j)
    all_moment: Array  # sums over the catalogue, for unrated items
    all_line: Array
    gram: Array
    cuts: Array  # between the levels of ordered ratings
    tau: float
    weight: float  # of an unrated item
    value: float  # the rating that it counts as


class PassUsers(NamedTuple):
    """What is known of users, and their p."""

    profiles: Array  # (n_users, d)
    shown_profiles: Array  # the same, the mean one where there is none
    lines: Array  # (n_users, m)
    p: Array  # (n_users, k + j); written
    is_member: Array  # whether they are summed (n_users,)


class PassSending(NamedTuple):
    """What users send, and how it is bounded and rounded."""

    with_rows: bool  # False: p alone moves
    is_membership_round: bool
    left_out: Array  # (n_items,)
    row_limit: Any  # in steps
    row_scale: Any  # steps per unit; 0: rows are not rounded
    total_bound: float
    total_scale: float


class UserTotals(NamedTuple):
    """The parts of one user's totals, as views of one vector.

    `VbShape` describes the parts. The tuple is made from them by name, so that a part that only one
    of the two knows is an error.
    """

    weight: Array
    error: Array
    n_users: Array
    n_ratings: Array
    user_sum: Array
    deviation: Array
    moment: Array
    user_gram: Array
    user_moments: Array
    n_profiled: Array
    profile_sum: Array
    all_moment: Array
    all_line: Array
    joint_sum: Array
    joint_deviation: Array
    levels: Array


class PassSums(NamedTuple):
    """Sums that a pass adds to, and room for the totals of the user whose turn it is."""

    rows: Array  # (n_items, k)
    totals: Array  # (n_totals,)
    own: Array  # totals of one user (n_totals,)
    parts: UserTotals  # the same by name


class PassRoom(NamedTuple):
    """Room for the numbers of the user whose turn it is; per rating as for the longest list."""

    q: Array  # E[q] of the rated items, and the root of the sum of their covariances below
    e: Array  # rows
    here: Array  # what unrated items take off each rating
    ratings: Array
    seen: Array  # sum of E[q]
    shrunk: Array  # sum of shrinkages
    second: Array  # sum of E[q q^T]
    moment: Array  # E[p p^T]
    mean: Array
    first: Array
    prior: Array
    known: Array
    line: Array
    ordered: Array  # totals of ordered ratings
