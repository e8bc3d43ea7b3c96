"""Gradient leakage from plain updates (section 2.2, errata 23): two rounds give masked ratings.

A party sends eta_i = lambda q_i - e_i p for its rated items. With lambda and q public,
E = lambda q - eta = e p^T has rank one: its right singular vector b is the direction of p, so that
p = c b and e = E b / c with one unknown c per round. The masked ratings are the same in two rounds,

    c1 (q1.b1) + (E1 b1) / c1 = c2 (q2.b2) + (E2 b2) / c2   for each item,

which is linear and homogeneous in (c1, 1/c1, c2, 1/c2): its null vector gives both, up to one sign
(p, r) -> (-p, -r). The sign comes from the start of p_u, which is public: the attacker replays the
party's first two rounds with either sign and keeps the one whose updates look like those received.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.view import MAX_SPANS, Exposed, View, per_user_mean
from fedmmf.errors import DataError
from fedmmf.solvers.sgd import Factors, SgdPlan, party_update, start_user_factors

MIN_RATINGS = 3  # two unknowns and a scale: fewer equations leave them open
TOLERANCE = 0.01  # of a step


@dataclass(frozen=True, eq=False, kw_only=True)
class Uploads(View):
    """Updates that the server received in the clear in rounds 1 and 2, with its broadcasts."""

    plan: SgdPlan  # the run's public plan
    item_factors: tuple[Array, Array]  # q of the two rounds. (n_items, k) each
    updates: tuple[Array, Array]  # eta of the two rounds, in the order of the items. (n, k) each

    def __post_init__(self) -> None:
        if not all(np.isfinite(update).all() for update in self.updates):
            raise DataError("attacks need finite updates; leave out the parties that sent others")

    @cached_property
    def leaked(self) -> Array:
        """Masked ratings that the updates leak, computed once for all attacks. (n,)."""
        return _leaked(self)


def leaked_ratings(view: Uploads) -> Array:
    """Masked ratings of every user; NaN for users with fewer than `MIN_RATINGS`. (n,)."""
    return view.leaked


def _leaked(view: Uploads) -> Array:
    out = np.full(len(view.lists.items), np.nan)
    most = MAX_SPANS * view.scale.span  # malformed updates may give any number
    for rows in view.ranges:
        if rows.stop - rows.start >= MIN_RATINGS:
            items = view.lists.items[rows]
            q = [factors[items] for factors in view.item_factors]
            eta = [update[rows] for update in view.updates]
            found = solve_two_rounds(q, eta, view.plan.regularization)
            out[rows] = _signed(np.clip(found, -most, most), q, eta, view)
    return out


def solve_two_rounds(q: list[Array], eta: list[Array], regularization: float) -> Array:
    """Solve for one user's masked ratings from two rounds, up to their common sign. (n,).

    Args:
        q: item factors of the rated items in either round. (n, k) each
        eta: the updates. (n, k) each
        regularization: lambda.
    """
    columns = []
    for factors, update in zip(q, eta, strict=True):
        factors = factors.astype(np.float64)
        outer = regularization * factors - update  # e p^T
        direction = np.linalg.svd(outer, full_matrices=False)[2][0]  # b
        columns += [factors @ direction, outer @ direction]
    system = np.column_stack((columns[0], columns[1], -columns[2], -columns[3]))  # (n, 4)
    # Columns of very different length would hide the null vector from the SVD.
    lengths = np.maximum(np.linalg.norm(system, axis=0), 1e-300)
    null = np.linalg.svd(system / lengths)[2][-1] / lengths
    # c1 = s v0 and 1/c1 = s v1, so s^2 v0 v1 = 1; noise alone could make v0 v1 negative.
    scale = 1.0 / np.sqrt(max(abs(null[0] * null[1]), 1e-300))
    return np.asarray(scale * (null[0] * columns[0] + null[1] * columns[1]))


def _signed(ratings: Array, q: list[Array], eta: list[Array], view: Uploads) -> Array:
    misfits = [_misfit(sign * ratings, q, eta, view.plan) for sign in (1.0, -1.0)]
    return ratings if misfits[0] <= misfits[1] else -ratings


def _misfit(ratings: Array, q: list[Array], eta: list[Array], plan: SgdPlan) -> float:
    """Distance of the updates of a party with these masked ratings from those received."""
    p = Factors.starting_at(start_user_factors(1, q[0].shape[1])[0])
    total = 0.0
    for t, (factors, update) in enumerate(zip(q, eta, strict=True), start=1):
        replayed = party_update(ratings.astype(np.float32), factors, p, plan, t)
        total += float(np.square(np.subtract(replayed, update, dtype=np.float64)).sum())
    return total


def to_exposed(view: Uploads, like: Exposed) -> Exposed:
    """Make a view of the leaked masked ratings, for the attacks on these.

    Users with fewer than `MIN_RATINGS` are left out. Nobody's extremes are known.

    Args:
        view: what was received.
        like: the same users, for what is public about the items and how masks are made.
    """
    everybody = replace(
        like,
        users=view.users,
        lists=view.lists,
        prior=view.prior,
        masked=np.nan_to_num(view.leaked),
        extremes=None,
    )
    return everybody.only(view.lists.lengths >= MIN_RATINGS)


def near_share(view: View, guesses: Array, truth: Array) -> Array:
    """Share of a user's masked ratings found to `TOLERANCE` of a step. (n_users,)."""
    is_near = np.abs(guesses - truth) < TOLERANCE * view.scale.step
    return per_user_mean(is_near, view.lists)


def prior_near_share(view: View, truth: Array) -> Array:
    """Success of the better of two guesses: the prior's ratings, or 0, where masks aim at it."""
    guesses = (view.prior_guess, np.zeros(len(truth)))
    shares = [near_share(view, guess, truth) for guess in guesses]
    return max(shares, key=lambda share: float(np.nan_to_num(share).sum()))


GRADIENTS = Attack(
    name="gradients",
    knows="One party's plain updates of rounds 1 and 2, the item factors and the plan.",
    outputs="The party's masked ratings; without a mask, its ratings.",
    measure=f"Share of a user's masked ratings found to {TOLERANCE:g} of the scale's step.",
    guess=leaked_ratings,
    score=near_share,
    baseline=prior_near_share,
    target="uploads",
    finds="masked ratings",
)
