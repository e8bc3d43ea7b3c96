"""Attack: take a sum apart, since an item may have fewer raters than its row has numbers.

What the sum of round 1 leaves, T_i = sum over raters of e_ui p_u, is a product of two unknown
matrices, the residuals E (n_items, n_users) and the parties' factors P (n_users, k). Who rated what
says where E is zero. That decides both, as long as there are more equations than unknowns: the
level column, in which every p_u0 is near 1, fixes signs and scales, and under `adam` every other
entry of P has moved by the learning rate up or down, which is one bit.

E and P are found in turns, each with the uncertainty of the other (variational factorization, Lim
and Teh 2007, on a known support), while the noise that is allowed falls from all to nothing. At the
end entries of P become signs where they must be.
"""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.attacks.calibrated import (
    KNOWS,
    Belief,
    SummedView,
    believe_level,
    most_probable,
    spread_of,
)
from fedmmf.attacks.contract import Attack
from fedmmf.solvers.sgd import STEPS

COOLING = 0.93  # of the allowed noise, per turn
TURNS, SIGN_TURNS = 100, 30
MIN_NOISE = 1e-5
START = 0.3  # how far the first guess of P is trusted


@dataclass
class Mixture:
    """The two unknown matrices, between two turns."""

    sums: Array  # T of the shown items; the level first, the others in units of P. (n_shown, k)
    raters: list[Array]  # of each shown item. (c,) each
    expected: Array  # what the public expects of E; 0 where nobody rated. (n_shown, n_users)
    spread: float  # variance of E around the expected
    level_noise: Array  # variance of the level column, since p_u0 is only near 1. (n_shown,)
    residuals: Array  # E. (n_shown, n_users)
    doubt: Array  # covariances of E's rows, summed. (n_users, n_users)
    variance: Array  # of E's entries. (n_shown, n_users)
    factors: Array  # P without its level, in the units of `sums`. (n_users, k - 1)
    factor_variance: Array  # of its entries. (n_users, k - 1)
    noise: float  # that is allowed


def unmix(view: SummedView) -> Belief:
    """Find the residuals of every member; from the level alone if equations are too few."""
    shown = np.flatnonzero(view.is_shown)
    items = view.lists.items
    is_told = view.is_shown[items]  # (n,)
    if not len(shown) or is_told.sum() > view.rows.shape[1] * len(shown):
        return believe_level(view)
    place = np.searchsorted(shown, items[is_told]), view.lists.users[is_told]
    mixture = _start(view, shown, place)
    has_signs = STEPS[view.plan.step] == "adam"
    for turn in range(TURNS + SIGN_TURNS):
        _find_residuals(mixture)
        _find_factors(mixture, to_signs=has_signs and turn >= TURNS)
        is_cooling = turn < TURNS
        mixture.noise = max(COOLING * mixture.noise if is_cooling else _misfit(mixture), MIN_NOISE)
    return _belief(view, mixture, is_told, place)


def _start(view: SummedView, shown: Array, place: tuple[Array, Array]) -> Mixture:
    """Start from equal shares of the level's deviation, which also guess the signs of P."""
    n_users, spread = view.lists.n_users, spread_of(view)
    expected = np.zeros((len(shown), n_users))
    expected[place] = view.expected[view.is_shown[view.lists.items]]
    counts = view.n_raters[shown]
    sums = _in_units(view, view.left[shown], counts * spread)
    even = np.zeros_like(expected)
    even[place] = ((sums[:, 0] - expected.sum(axis=1)) / counts)[place[0]]
    direction = (expected + even).T @ view.item_factors[shown, 1:]  # (n_users, k - 1)
    is_spread = direction.size > 0
    factors = np.tanh(START * direction / max(direction.std(), 1e-12)) if is_spread else direction
    return Mixture(
        sums=sums,
        raters=[np.flatnonzero(row) for row in _support(expected.shape, place)],
        expected=expected,
        spread=spread,
        level_noise=view.plan.learning_rate**2 * counts * spread + MIN_NOISE,
        residuals=expected + even,
        doubt=np.zeros((n_users, n_users)),
        variance=np.zeros_like(expected),
        factors=factors,
        factor_variance=1 - factors**2,
        noise=float(np.mean(sums[:, 1:] ** 2)) if is_spread else 1.0,
    )


def _support(shape: tuple[int, ...], place: tuple[Array, Array]) -> Array:
    support = np.zeros(shape, bool)
    support[place] = True
    return support


def _in_units(view: SummedView, left: Array, variance: Array) -> Array:
    """T with columns in units of P's entries, which `adam` moves by the learning rate exactly."""
    if STEPS[view.plan.step] == "adam":
        unit = np.full(left.shape[1] - 1, view.plan.learning_rate)
    else:
        unit = np.sqrt(np.mean(left[:, 1:] ** 2 / variance[:, np.newaxis], axis=0))
    return np.hstack((left[:, :1], left[:, 1:] / np.maximum(unit, 1e-12)))


def _find_residuals(mixture: Mixture) -> None:
    """Find E given P: a regression per item, with the noise of an uncertain P."""
    n_users, k = len(mixture.factors), mixture.sums.shape[1]
    factors = np.hstack((np.ones((n_users, 1)), mixture.factors))  # (n_users, k)
    mixture.doubt = np.zeros((n_users, n_users))
    diagonal = np.diag_indices(k)
    for item, raters in enumerate(mixture.raters):
        mine, before = factors[raters], mixture.expected[item, raters]  # (c, k), (c,)
        unsure = mixture.factor_variance[raters]  # (c, k - 1)
        noise = mixture.noise + (mixture.spread + before**2) @ unsure
        gram = mixture.spread * mine.T @ mine
        gram[diagonal] += np.concatenate((mixture.level_noise[item : item + 1], noise))
        gain = mixture.spread * np.linalg.solve(gram, mine.T).T  # (c, k)
        covariance = mixture.spread * (np.eye(len(raters)) - gain @ mine.T)
        mixture.residuals[item, raters] = before + gain @ (mixture.sums[item] - before @ mine)
        mixture.variance[item, raters] = np.diag(covariance)
        mixture.doubt[np.ix_(raters, raters)] += covariance
    off = mixture.residuals - mixture.expected
    n = sum(map(len, mixture.raters))
    mixture.spread = float((np.sum(off**2) + np.trace(mixture.doubt)) / n)


def _find_factors(mixture: Mixture, *, to_signs: bool) -> None:
    """Find P given E: one regression for all columns, with prior mean 0 and variance 1."""
    e, noise = mixture.residuals, mixture.noise
    values, vectors = np.linalg.eigh(e.T @ e + mixture.doubt)
    shrunk = 1 / (values / noise + 1)  # (n_users,)
    found = (vectors * shrunk) @ (vectors.T @ (e.T @ mixture.sums[:, 1:])) / noise
    variance = np.maximum(vectors**2 @ shrunk, 1e-12)[:, np.newaxis]  # (n_users, 1)
    if to_signs:
        found = np.tanh(np.clip(found / variance, -20, 20))
        mixture.factors, mixture.factor_variance = found, 1 - found**2
    else:
        mixture.factors = found
        mixture.factor_variance = np.repeat(variance, found.shape[1], axis=1)


def _misfit(mixture: Mixture) -> float:
    """Mean square of the columns that E and P leave, with the uncertainty of both."""
    e, p = mixture.residuals, mixture.factors
    squares = np.square(mixture.sums[:, 1:] - e @ p).sum() + np.sum(p * (mixture.doubt @ p))
    moments = np.square(e).sum(axis=0) + np.diag(mixture.doubt)  # (n_users,)
    squares += (moments @ mixture.factor_variance).sum()
    return float(squares / max(mixture.sums[:, 1:].size, 1))


def _belief(
    view: SummedView, mixture: Mixture, is_told: Array, place: tuple[Array, Array]
) -> Belief:
    deviation, variance = np.zeros(len(is_told)), np.full(len(is_told), mixture.spread)
    deviation[is_told] = (mixture.residuals - mixture.expected)[place]
    variance[is_told] = mixture.variance[place]
    return Belief(deviation, variance, mixture.spread)


def unmixed_guess(view: SummedView) -> Array:
    """Guess a rating for each item that a member rated. (n,)."""
    return most_probable(view, view.believed(unmix))


UNMIXING = Attack(
    name="unmixing",
    knows=KNOWS,
    outputs="A rating for each item that a member of the cohort rated.",
    measure="Share of a user's ratings that are exact after rounding to the scale's step.",
    guess=unmixed_guess,
    target="sums",
)
