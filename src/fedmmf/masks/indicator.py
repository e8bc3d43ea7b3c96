"""The privacy indicator J (Def. 3.1) and Theorem 1 as a calculator."""

import math

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.errors import SettingsError


def privacy_indicator(unit_residuals: Array, indptr: Array) -> Array:
    """J_u = mean of (r - f_u)^2 over user u's ratings, ratings mapped to [0, 1] (Def. 3.1).

    A small J says that the mask predicts well. It bounds no adversary: a linear mask can be
    inverted exactly at any J (errata 13). Users without ratings get NaN.

    Args:
        unit_residuals: r - f on the [0, 1] scale, ordered by user. (n,)
        indptr: where each user's ratings begin. (n_users + 1,)
    """
    totals = np.concatenate(([0.0], np.cumsum(np.square(unit_residuals, dtype=np.float64))))
    counts = np.diff(indptr)
    sums = totals[indptr[1:]] - totals[indptr[:-1]]  # (n_users,)
    j: Array = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return j


def rating_variances(unit_ratings: Array, indptr: Array) -> Array:
    """The variance of each user's own ratings, on [0, 1]; NaN without ratings. (n_users,).

    Args:
        unit_ratings: mapped to [0, 1], ordered by user. (n,)
        indptr: where each user's ratings begin. (n_users + 1,)
    """
    lists = RatedItems(indptr, unit_ratings)
    first = np.zeros(lists.n_users)
    first[lists.lengths > 0] = unit_ratings[indptr[:-1][lists.lengths > 0]]
    beyond = unit_ratings - first[lists.users]  # all 0, and not nearly, where ratings are equal
    return privacy_indicator(beyond - lists.means(beyond)[lists.users], indptr)


def mean_relative_j(j: Array, variances: Array) -> float | None:
    """The mean of J over the variance of the user's own ratings; None where nobody has any.

    A calm rater has a small J under any mask. Relative to the variance, 1 says that the mask is
    no better than the user's own mean.
    """
    known = variances > 0
    return float(np.mean(j[known] / variances[known])) if known.any() else None


def j_follows_variance(j: Array, variances: Array) -> float | None:
    """Spearman's rank correlation of J with the users' variances; None where all are equal.

    Near 1, the order of users by J is that by variance: J then tells who is calm, and little of
    what masks hide.
    """
    known = np.isfinite(j) & np.isfinite(variances)
    ranks = [_ranks(values[known]) for values in (j, variances)]
    if any(len(np.unique(some)) < 2 for some in ranks):
        return None
    return float(np.corrcoef(ranks)[0, 1])


def _ranks(values: Array) -> Array:
    """Ranks from 1 on; equal values share the mean of theirs. (n,)."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(mean_ranks[which])


def privacy_groups(j: Array, threshold_j: float) -> dict[str, float | int]:
    """The two groups of Algorithm 1: secure iff J <= threshold_j (errata 11)."""
    secure = int(np.count_nonzero(j <= threshold_j))
    return {
        "threshold_j": threshold_j,
        "secure_users": secure,
        "insecure_users": len(j) - secure,
        "mean_j": float(np.nanmean(j)),
    }


def histogram(j: Array, n_bins: int = 40) -> dict[str, list[float]]:
    """Histogram of J over users: counts and edges, for a picture."""
    counts, edges = np.histogram(j[np.isfinite(j)], n_bins)
    return {"edges": edges.round(6).tolist(), "counts": counts.tolist()}


def sample_complexity(epsilon: float, delta: float, log_class_size: float) -> int:
    """Ratings after which J of the best fit is within epsilon of the best possible (Theorem 1).

    n = ceil(2 (log 2 + log|F| - log delta) / epsilon^2); the paper prints half of it (errata 20).

    This is agnostic PAC learnability of a finite class: it assumes independently drawn ratings, a
    loss in [0, 1] and an exact minimiser of the training error. None of these holds for a person's
    ratings and a regularised model. It says how well a mask generalises, and nothing about what an
    attacker learns from masked ratings; it is neither differential privacy nor any other guarantee
    of privacy.

    Args:
        epsilon: tolerated excess of J, in (0, 1).
        delta: tolerated probability of failure, in (0, 1).
        log_class_size: natural logarithm of the number of models |F|, e.g. 32 * log(2) per float32.
    """
    _check("epsilon", epsilon)
    return math.ceil(2 * _log_term(delta, log_class_size) / epsilon**2)


def epsilon_reached(n_ratings: int, delta: float, log_class_size: float) -> float:
    """Return epsilon of Theorem 1 for n ratings; above 1 it says nothing at all.

    The same assumptions and the same silence on attackers as `sample_complexity`.
    """
    if n_ratings < 1:
        raise SettingsError(f"n_ratings must be at least 1; got {n_ratings}")
    return math.sqrt(2 * _log_term(delta, log_class_size) / n_ratings)


def _log_term(delta: float, log_class_size: float) -> float:
    _check("delta", delta)
    if not 0 <= log_class_size < math.inf:
        raise SettingsError(f"log_class_size must be finite and >= 0; got {log_class_size}")
    return math.log(2) + log_class_size - math.log(delta)


def _check(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise SettingsError(f"{name} must be in (0, 1); got {value}")
