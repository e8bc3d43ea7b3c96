"""Gradient leakage from plain updates (section 2.2, errata 23): two rounds give masked ratings.

A party sends eta_i = lambda q_i - e_i p for its rated items. With lambda and q public,
E = lambda q - eta = e p^T has rank one: its right singular vector b is the direction of p, so that
p = c b and e = E b / c with one unknown c per round. The masked ratings are the same in two rounds,

    c1 (q1.b1) + (E1 b1) / c1 = c2 (q2.b2) + (E2 b2) / c2   for each item,

which is linear and homogeneous in (c1, 1/c1, c2, 1/c2): its null vector gives both, up to one sign
(p, r) -> (-p, -r). The sign comes from the start of p_u, which is public: the attacker replays the
party's first two rounds with either sign and keeps the one whose updates look like those received.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.plain import Plain
from fedmmf.arrays import Array
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.transcript import Recording
from fedmmf.attacks.view import Exposed, View, known_strengths, per_user_mean
from fedmmf.config import Settings
from fedmmf.coordinator import Server, n_update_totals
from fedmmf.factorization.sgd import Factors, Plan, party_update, start_user_factors
from fedmmf.scale import RatingScale
from fedmmf.transport import Answers

MIN_RATINGS = 3  # two unknowns and a scale: fewer equations leave them open
TOLERANCE = 0.01  # of a step


@dataclass(frozen=True, eq=False, kw_only=True)
class Uploads(View):
    """What the server received in the clear in rounds 1 and 2, with what it had published.

    Attributes:
        plan: the run's public plan.
        item_factors: q of the two rounds. (n_items, k) each
        updates: eta of the two rounds, in the order of `items`. (n, k) each
    """

    plan: Plan
    item_factors: tuple[Array, Array]
    updates: tuple[Array, Array]


def leaked_ratings(view: Uploads) -> Array:
    """Masked ratings of every user; NaN for users with fewer than `MIN_RATINGS`. (n,)."""
    out = np.full(len(view.items), np.nan)
    for rows in view.ranges:
        if rows.stop - rows.start >= MIN_RATINGS:
            items = view.items[rows]
            q = [factors[items] for factors in view.item_factors]
            eta = [update[rows] for update in view.updates]
            out[rows] = _signed(solve_two_rounds(q, eta, view.plan.regularization), q, eta, view)
    return out


def solve_two_rounds(q: list[Array], eta: list[Array], regularization: float) -> Array:
    """One user's masked ratings from two rounds, up to their common sign. (n,).

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


def _misfit(ratings: Array, q: list[Array], eta: list[Array], plan: Plan) -> float:
    """How far the updates of a party with these masked ratings are from those received."""
    p = Factors.starting_at(start_user_factors(1, q[0].shape[1])[0])
    total = 0.0
    for t, (factors, update) in enumerate(zip(q, eta, strict=True), start=1):
        replayed = party_update(ratings.astype(np.float32), factors, p, plan, t)
        total += float(np.square(replayed - update).sum())
    return total


def record(
    parties: Mapping[str, Answers], server: Server, scale: RatingScale, prior: Array
) -> Uploads:
    """Run two rounds in the clear between real parties and keep what the server sees.

    Args:
        parties: by name; they must share in the clear.
        server: before its first round.
        scale: of the ratings.
        prior: probability of each level for the parties' ratings, in their order. (n, n_levels)
    """
    transport = Recording(parties)
    participants = Plain(transport, sorted(parties))
    messages, updates = [], []
    for _ in range(2):
        message = server.next_message()
        messages.append(_copied(message))
        sums = participants.sums(message)
        updates.append(_decoded(transport.last("round").received, message))
        server.advance(message, sums)
    n_ratings = [len(update.items) for update in updates[0]]
    return Uploads(
        users=np.arange(len(n_ratings)),
        indptr=np.concatenate(([0], np.cumsum(n_ratings))),
        items=np.concatenate([update.items for update in updates[0]]),
        scale=scale,
        prior=prior,
        plan=Plan.of(messages[0].public),
        item_factors=(messages[0].public.item_factors, messages[1].public.item_factors),
        updates=(_stacked(updates[0]), _stacked(updates[1])),
    )


def _copied(message: wire.Round) -> wire.Round:
    """The message as it was sent: the server goes on to change its factors in place."""
    return wire.Round.decode(message.encode())


def _decoded(replies: Mapping[str, bytes], message: wire.Round) -> list[wire.Update]:
    n_items, width = message.public.item_rows.shape
    n_totals = n_update_totals(message.solver, message.public)
    return [
        wire.Update.decode(replies[name], n_items=n_items, width=width, n_totals=n_totals)
        for name in sorted(replies)
    ]


def _stacked(updates: list[wire.Update]) -> Array:
    return np.concatenate([update.rows for update in updates])


def to_exposed(view: Uploads, features: Array, settings: Settings) -> Exposed:
    """Go on from what leaked: the view of the attacks on masked ratings.

    Users with fewer than `MIN_RATINGS` are left out.
    """
    everybody = Exposed(
        users=view.users,
        indptr=view.indptr,
        items=view.items,
        scale=view.scale,
        prior=view.prior,
        masked=leaked_ratings(view),
        features=features,
        mask=settings.mask,
        strengths=known_strengths(settings),
        cross_fit=settings.cross_fit,
        folds=settings.folds,
    )
    return everybody.only(np.diff(view.indptr) >= MIN_RATINGS)


def near_share(view: View, guesses: Array, truth: Array) -> Array:
    """Share of a user's masked ratings found to `TOLERANCE` of a step. (n_users,)."""
    is_near = np.abs(guesses - truth) < TOLERANCE * view.scale.step
    return per_user_mean(is_near, view.indptr)


def prior_near_share(view: View, truth: Array) -> Array:
    """The same for the better of two guesses: the prior's ratings, or 0, where masks aim at it."""
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
)
