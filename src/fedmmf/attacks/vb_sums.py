"""Attack: solve the sums of `vb` for ratings, given who rated what.

In a round of `vb` a user's factors are p = b + B m: m are its masked ratings, and b and B follow
from the broadcast and from the items that it rated. So does C, the covariance of p. The sums are

    rows of a round:              T_i = sum over raters of (m_ui - q_i.p_u) p_u - C_u q_i
    rows of a membership round:   T_i = sum over raters of p_u
    totals of every round:        sum over users of p_u, and more

with m the only unknown, the same in every round. A membership round, and the totals, are linear in
p: they are solved first (`from_factors`), and each user's p gives k equations for its m. The other
rounds are solved in turns: p from m, and then m, item by item, from the rows of all rounds at once
(`from_rows`), while the noise that is allowed falls from all to nothing.

Where masks are estimated with the factors, m is the rating less the published line. Where they are
fitted alone, `calibrated.posterior` takes them off.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import Belief, WeighedView, most_probable, posterior, trusting
from fedmmf.attacks.contract import Attack
from fedmmf.attacks.paper import hit_ratio, prior_hit_ratio
from fedmmf.attacks.view import levels_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.solvers.vb.reading import VbReading

TURNS, LAST_TURNS = 60, 10
COOLING = 0.9  # of the allowed noise, per turn
MIN_NOISE = 1e-6
FACTOR_NOISE = 1e-5  # squared; fixed point, and what else moves p_u a little: a profile
WEIGHT = 0.5  # of what sums say; fixed beforehand, and so tuned on nobody


@dataclass(frozen=True, eq=False)
class VbRound:
    """One round as the server sees it."""

    reading: VbReading  # the broadcast, as parties read it, of the items that are summed
    rows: Array  # summed. (n_summed, k)
    user_sum: Array  # the sum of all p_u, of the totals. (k,)
    present: Array | None = None  # who took part; None: everybody. (n_users,) bool


@dataclass(frozen=True, eq=False, kw_only=True)
class VbSummedView(WeighedView):
    """Sums of some rounds of `vb` over a cohort, all members of which are attacked."""

    summed: Array  # codes of the items that are summed, increasing. (n_summed,)
    rounds: tuple[VbRound, ...]  # in the order of training

    @cached_property
    def _within(self) -> tuple[RatedItems, Array]:
        return self.lists.within(self.summed, len(self.masks.features))

    @property
    def places(self) -> RatedItems:
        """The users' rated items among the summed ones, by their positions there."""
        return self._within[0]

    @property
    def is_told(self) -> Array:
        """Whether a rating has a part in the sums. (n,) bool."""
        return self._within[1]


@dataclass(frozen=True, eq=False)
class UserMap:
    """Affine map of one round from a user's masked ratings to its factors: p = b + B m."""

    q: Array  # E[q] of its items, and what is known of them (n, n_own)
    start: Array  # b (n_own,)
    gain: Array  # B (n_own, n)
    covariance: Array  # C (n_own, n_own)

    @classmethod
    def of(cls, reading: VbReading, items: Array) -> "UserMap":
        """Compute by the equations of `solvers.vb.party`, with the mean profile if unknown."""
        update_shape, q = reading.update_shape, reading.mean[items]
        shrinkage = reading.shrinkage[items].sum(axis=0)
        second = q.T @ q + reading.spread.matrix(shrinkage)
        covariance = np.linalg.inv(np.diag(reading.user_precision) + second / reading.tau)
        seen = q.sum(axis=0)[: update_shape.n_seen] / np.sqrt(max(len(q), 1))
        known = np.concatenate((seen, reading.profile_mean))
        prior = reading.user_middle + known @ reading.user_weights
        start = covariance @ (reading.user_precision * prior)
        return cls(q, start, covariance @ q.T / reading.tau, covariance)


@dataclass
class Unknown:
    """Belief about the masked ratings in the sums, between two turns. (n_told,) each."""

    mean: Array
    variance: Array


@dataclass(frozen=True, eq=False)
class Mapped:
    """One round with the maps of all users."""

    seen: VbRound
    lists: RatedItems
    users: Sequence[UserMap]

    @classmethod
    def of(cls, seen: VbRound, lists: RatedItems) -> "Mapped":
        """Compute the maps of all users of a round."""
        mine = [lists.items[lists.of(user)] for user in range(lists.n_users)]
        return cls(seen, lists, [UserMap.of(seen.reading, items) for items in mine])

    @property
    def k(self) -> int:
        """Number of columns of a row."""
        return int(self.seen.rows.shape[1])

    @property
    def present(self) -> Array:
        """Who took part in the round. (n_users,) bool."""
        here = self.seen.present
        return np.ones(len(self.users), bool) if here is None else here

    @property
    def here(self) -> Iterator[tuple[int, UserMap]]:
        """Numbers and maps of the users who took part."""
        return ((user, self.users[user]) for user in np.flatnonzero(self.present).tolist())

    def factors(self, unknown: Unknown) -> tuple[Array, Array, Array]:
        """Mean and variance of p_u (n_users, k) each, and q_i . p_u (n_told,).

        Zeros for who did not take part, and so adds nothing.
        """
        mean, variance = np.zeros((2, len(self.users), self.k))
        scores = np.zeros(len(self.lists.items))
        for user, made in self.here:
            rows = self.lists.of(user)
            p = made.start + made.gain @ unknown.mean[rows]
            mean[user], scores[rows] = p[: self.k], made.q @ p
            variance[user] = np.square(made.gain[: self.k]) @ unknown.variance[rows]
        return mean, variance, scores

    @cached_property
    def residual_rows(self) -> Array:
        """T_i + sum over raters of C_u q_i, which leaves residuals times p. (n_summed, k)."""
        total = np.array(self.seen.rows, np.float64)
        for user, made in self.here:
            items = self.lists.items[self.lists.of(user)]
            total[items] += made.q @ made.covariance[:, : self.k]
        return total


def unmix_rounds(view: VbSummedView) -> Belief:
    """Find the masked ratings of every member, from all rounds of the view."""
    deviation, variance = np.zeros(len(view.is_told)), np.full(len(view.is_told), view.spread)
    if view.is_told.any() and view.rounds:
        expected = view.masks.expected(view.public_mean, view.lists)[view.is_told]
        start = Unknown(expected, variance[view.is_told])
        rounds = [Mapped.of(seen, view.places) for seen in view.rounds]
        found = from_rows(rounds, from_factors(rounds, start))
        deviation[view.is_told] = found.mean - expected
        variance[view.is_told] = found.variance
    return Belief(deviation, variance, view.spread)


def from_factors(rounds: Sequence[Mapped], before: Unknown) -> Unknown:
    """Use what membership rounds, and totals of the first other round, say of all factors."""
    others = [one for one in rounds if not one.seen.reading.is_membership_round]
    told = [one for one in rounds if one.seen.reading.is_membership_round] + others[:1]
    messages = [_factor_message(one, before) for one in told]
    lists, after = told[0].lists, Unknown(before.mean.copy(), before.variance.copy())
    for user in range(lists.n_users):
        rows = lists.of(user)
        gain = np.vstack([one.users[user].gain[: one.k] for one in told])  # (k rounds, n)
        off = np.concatenate([place[user] for place, _ in messages])
        noise = np.concatenate([variance[user] for _, variance in messages])
        spread = gain * before.variance[rows]
        weights = np.linalg.solve(spread @ gain.T + np.diag(noise), spread).T  # (n, k rounds)
        after.mean[rows] += weights @ off
        after.variance[rows] -= np.einsum("nk,kn->n", weights, spread)
    after.variance = np.maximum(after.variance, MIN_NOISE)
    return after


def _factor_message(one: Mapped, before: Unknown) -> tuple[Array, Array]:
    """Deviation of p_u from the expected by a linear sum, and its noise. (n_users, k) each."""
    mean, variance, _ = one.factors(before)
    n_users, prior = len(mean), max(float(variance.mean()), 1e-12)
    adds, sums = one.present[np.newaxis] + 0.0, one.seen.user_sum[np.newaxis]  # (1, n_users)
    if one.seen.reading.is_membership_round:
        raters = np.zeros((len(one.seen.rows), n_users))
        raters[one.lists.items, one.lists.users] = 1.0
        adds, sums = np.vstack((raters * adds, adds)), np.vstack((one.seen.rows, sums))
    covariance = np.linalg.inv(adds.T @ adds / MIN_NOISE + np.eye(n_users) / prior)
    found = covariance @ (adds.T @ (sums - adds @ mean)) / MIN_NOISE  # (n_users, k)
    after = np.diag(covariance)[:, np.newaxis]
    message = np.maximum(1 / after - 1 / prior, 1e-9)  # its precision, without the prior
    return found / after / message, np.broadcast_to(1 / message + FACTOR_NOISE, found.shape)


def from_rows(rounds: Sequence[Mapped], before: Unknown) -> Unknown:
    """Alternate: all factors from ratings, and ratings from the rows of all rounds."""
    told = [one for one in rounds if not one.seen.reading.is_membership_round]
    if not told:
        return before
    order = np.argsort(told[0].lists.items, kind="stable")
    ends = np.cumsum(np.bincount(told[0].lists.items, minlength=len(told[0].seen.rows)))
    by_item = np.split(order, ends[:-1])
    now = Unknown(before.mean.copy(), before.variance.copy())
    noise = float(np.mean([np.mean(one.residual_rows**2) for one in told]))
    for turn in range(TURNS + LAST_TURNS):
        found = _one_turn(told, by_item, (before, now), noise)
        share = 0.5 if turn < TURNS else 1.0  # half of the way, since p and m move together
        now = Unknown(now.mean + share * (found.mean - now.mean), found.variance)
        noise = max(COOLING * noise, MIN_NOISE)
    return now


def _one_turn(
    told: Sequence[Mapped], by_item: list[Array], known: tuple[Unknown, Unknown], noise: float
) -> Unknown:
    """Run a regression per item; residuals are taken at the current ratings."""
    before, now = known
    users, found = told[0].lists.users, Unknown(now.mean.copy(), now.variance.copy())
    factors = [one.factors(now) for one in told]
    p, unsure = (np.hstack([one[part] for one in factors]) for part in (0, 1))  # (n_users, k T)
    scores = np.column_stack([one[2] for one in factors])  # (n_told, T)
    targets = np.hstack([one.residual_rows for one in told])  # (n_summed, k T)
    k, squares = told[0].k, np.square(now.mean[:, np.newaxis] - scores)
    for item, rows in enumerate(by_item):
        if not len(rows):
            continue
        mine, doubt = p[users[rows]], unsure[users[rows]]  # (c, k T) each
        size = np.repeat(squares[rows] + now.variance[rows, np.newaxis], k, axis=1)
        explained = np.repeat(scores[rows], k, axis=1)  # (c, k T)
        left = targets[item] + np.sum((explained - before.mean[rows, np.newaxis]) * mine, axis=0)
        variance = noise + np.sum(size * doubt, axis=0)
        moved, after = _regression(mine, left, variance, before.variance[rows])
        found.mean[rows], found.variance[rows] = before.mean[rows] + moved, after
    return found


def _regression(mine: Array, left: Array, noise: Array, before: Array) -> tuple[Array, Array]:
    """Mean and variance of x, given left = x . mine + noise and x ~ N(0, before). (c,) each."""
    if len(mine) <= len(left):
        weighed = mine / noise  # (c, r)
        covariance = np.linalg.inv(np.diag(1 / before) + weighed @ mine.T)
        return covariance @ (weighed @ left), np.diag(covariance)
    spread = mine.T * before  # (r, c)
    gain = np.linalg.solve(spread @ mine + np.diag(noise), spread)
    return gain.T @ left, np.maximum(before - np.sum(gain * spread, axis=0), MIN_NOISE)


def guess_ratings(view: VbSummedView) -> Array:
    """Guess a rating for each item that a member rated. (n,)."""
    return most_probable(trusting(view, WEIGHT), view.believed(unmix_rounds))


def guess_order(view: VbSummedView) -> Array:
    """Return the expected ratings, to order each member's items by. (n,)."""
    if not len(view.lists.items):
        return np.zeros(0)
    logs = posterior(trusting(view, WEIGHT), view.believed(unmix_rounds))
    chances = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, np.newaxis])
    return np.asarray(chances @ levels_of(view.scale))


VB_UNMIXING = Attack(
    name="vb unmixing",
    knows=(
        "The sums of some rounds of vb over a cohort, rows and totals, membership rounds among "
        "them, who of it rated what, all that is published, and other people's ratings."
    ),
    outputs="A rating for each item that a member of the cohort rated.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=guess_ratings,
    target="vb sums",
)
VB_RANKING = replace(
    VB_UNMIXING,
    name="vb ranking",
    outputs="An order of each member's items.",
    measure="Share of the top 10 % guessed that is in the true top, where ties with its last item "
    "count too.",
    guess=guess_order,
    score=partial(hit_ratio, tenths=1, strict=False),
    baseline=partial(prior_hit_ratio, tenths=1, strict=False),
    finds="order",
)
