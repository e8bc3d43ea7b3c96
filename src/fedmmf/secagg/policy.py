"""Security conditions on cohort, threshold and neighbours, and how to choose them.

A secret of a party is shared among its holders: itself and its k neighbours, K = k + 1 in all
(K = n in the complete graph).

Passive (Bonawitz et al. 2017): t > K / 2, so that not even a server that lies about
who dropped out gets both secrets of a party from honest holders alone. Active (same paper):
t > 2 K / 3, which withstands a server in league with fewer than a third of the holders.

In a sparse graph (Bell et al. 2020: the three properties that its semi-honest security
and correctness theorems ask of the graph) all of the following must hold for every party: fewer
than t of its neighbours are corrupt; the honest survivors stay connected; at least t of its
neighbours survive. `parameters` bounds the probability that one fails by a union over the parties
of exact hypergeometric tails.
"""

from bisect import bisect_left
from math import ceil, lgamma, log, log2

from fedmmf.secagg.errors import PolicyError

MINIMUM_COHORT = 3
LARGEST_COHORT = 100_000  # what a party must hold of a cohort stays at some tens of megabytes


def check(n: int, k: int, threshold: int, *, active: bool, minimum: int) -> None:
    """Raise unless cohort, neighbour count and threshold are fit for the adversary.

    Call this on a size that comes from somebody else before building anything of that size: a
    large number costs its sender nothing.
    """
    holders = k + 1
    conditions = [
        (
            n <= LARGEST_COHORT,
            f"the cohort must have at most {LARGEST_COHORT} parties; got {n}. "
            "Invite fewer, or make several sums and add them.",
        ),
        (
            minimum >= MINIMUM_COHORT,
            f"minimum must be at least {MINIMUM_COHORT}; got {minimum}. In a sum of two, each "
            "knows the other's part.",
        ),
        (n >= minimum, f"the cohort must have at least {minimum} parties; got {n}"),
        (2 <= k < n, f"neighbours must be in [2, {n - 1}]; got {k}"),
        (n * k % 2 == 0, f"neighbours must be even when parties are odd; got {k} of {n}"),
        (2 <= threshold <= holders, f"threshold must be in [2, {holders}]; got {threshold}"),
        (2 * threshold > holders, _condition("1/2", holders, threshold, holders // 2 + 1)),
        (
            not active or 3 * threshold > 2 * holders,
            _condition("2/3 (active)", holders, threshold, 2 * holders // 3 + 1),
        ),
    ]
    for holds, rule in conditions:
        if not holds:
            raise PolicyError(rule)


def least_threshold(holders: int, *, active: bool = False) -> int:
    """Return the smallest admissible threshold for a number of holders."""
    return 2 * holders // 3 + 1 if active else holders // 2 + 1


def parameters(
    n: int,
    corrupt: float,
    dropout: float,
    security_bits: float = 40,
    failure_bits: float = 20,
    *,
    active: bool = False,
) -> tuple[int, int]:
    """Return the fewest neighbours k (within 3 %) and a threshold t that keep every property.

    Args:
        n: parties in the cohort.
        corrupt: share of them in league with the server, placed before the graph is drawn.
        dropout: share of them that may drop out in a round, at random.
        security_bits: privacy fails with probability at most 2^-security_bits.
        failure_bits: a round fails with probability at most 2^-failure_bits.
        active: whether the server may also lie about who dropped out.
    """
    if not (0 <= corrupt < 1 and 0 <= dropout < 1 and n >= MINIMUM_COHORT):
        raise PolicyError("corrupt and dropout must be in [0, 1) and n at least 3")
    # Below the smallest cohort there is no sum anyway, so that nobody need be spared for it.
    n_corrupt, n_dropped = ceil(corrupt * n), min(ceil(dropout * n), n - MINIMUM_COHORT)
    k = 2
    while k < n - 1:
        least = _least_secure(n, k, n_corrupt, n_dropped, security_bits, active)
        if least <= k and too_few_survive(n, k, n_dropped, least) <= -failure_bits:
            return k, least
        k += 2 * max(1, k // 64)
    return _complete(n, n_corrupt, n_dropped, active)


def too_many_corrupt(n: int, k: int, n_corrupt: int, limit: int) -> float:
    """Return log2 of a bound on P[some party has `limit` or more corrupt neighbours]."""
    return log2(n) + log_upper_tail(n - 1, n_corrupt, k, limit)


def disconnected(n: int, k: int, n_lost: int) -> float:
    """Return log2 of a bound on P[the honest survivors fall apart].

    Two parties at most k // 2 apart on the ring are neighbours, so that a component ends where
    k // 2 parties in a row are corrupt or lost; there are n places where such a row may begin.
    """
    row = k // 2
    if n_lost < row:
        return -float("inf")
    return log2(n) + (_log_choose(n - row, n_lost - row) - _log_choose(n, n_lost)) / log(2)


def too_few_survive(n: int, k: int, n_dropped: int, threshold: int) -> float:
    """Return log2 of a bound on P[some party has fewer than `threshold` surviving neighbours]."""
    return log2(n) + log_upper_tail(n - 1, n_dropped, k, k - threshold + 1)


def log_upper_tail(population: int, marked: int, drawn: int, at_least: int) -> float:
    """Return log2 P[X >= at_least] for X hypergeometric: marked ones among those drawn.

    At or below the mode, where the tail is no longer small, 0 is returned: a bound.
    """
    marked = min(marked, population)
    if at_least > min(marked, drawn):
        return -float("inf")
    if at_least <= (drawn + 1) * (marked + 1) // (population + 2):
        return 0.0
    rest = population - marked
    first = _log_choose(marked, at_least) + _log_choose(rest, drawn - at_least)
    total = term = 1.0  # relative to the first term; beyond the mode they fall
    for i in range(at_least, min(marked, drawn)):
        term *= (marked - i) * (drawn - i) / ((i + 1) * (rest - drawn + i + 1))
        total += term
        if term < 1e-18:
            break
    return (first - _log_choose(population, drawn) + log(total)) / log(2)


def _least_secure(n: int, k: int, n_corrupt: int, n_dropped: int, bits: float, active: bool) -> int:
    """Return the smallest secure threshold for k neighbours; more than k if there is none.

    Passive: two events share the failure probability equally. Active: the server chooses who is
    lost. With at most c corrupt neighbours, t > 1 + k / 2 + c suffices: a party whose secret is
    recovered has more than half of its neighbours honest and answering, so no row of k / 2 parties
    beside it is corrupt or lost and the survivors stay connected; and 2 t > K + c, so both secrets
    of one party never come out (docstring of `client`).
    """
    if not active and disconnected(n, k, n_corrupt + n_dropped) > -bits - 1:
        return k + 1
    most = bisect_left(
        range(k + 1), True, key=lambda c: too_many_corrupt(n, k, n_corrupt, c + 1) <= -bits - 1
    )
    if active:
        return max(least_threshold(k + 1, active=True), k // 2 + most + 2)
    return max(least_threshold(k + 1), most + 1)


def _complete(n: int, n_corrupt: int, n_dropped: int, active: bool) -> tuple[int, int]:
    least = least_threshold(n, active=active)
    bearable = 2 * least - n - 1 if active else least - 1
    if n_corrupt > bearable:
        raise PolicyError(f"{n} parties bear at most {bearable} corrupt ones; got {n_corrupt}")
    if n - n_dropped < least:
        raise PolicyError(
            f"{n} parties need {least} survivors; with {n_dropped} drop-outs {n - n_dropped} "
            "are left. Invite more parties, form smaller batches, or shorten the round."
        )
    return n - 1, least


def _condition(fraction: str, holders: int, threshold: int, least: int) -> str:
    return (
        f"threshold must exceed {fraction} of the {holders} holders of a secret; got {threshold}. "
        f"Set it to {least} or more."
    )


def _log_choose(n: int, k: int) -> float:
    if not 0 <= k <= n:
        return -float("inf")
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
