"""Who masks with whom: a k-regular graph from a public seed (Bell et al. 2020).

The parties are put on a ring in an order that the seed fixes, and each is joined to its nearest k
(a Harary graph under a random permutation). Anybody can recompute it. With k = n - 1 it is the
complete graph of Bonawitz et al. 2017. Parties appear here as positions 0 .. n - 1.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from fedmmf.secagg.keys import digest

Graph = tuple[tuple[int, ...], ...]  # neighbours of each position, increasing


def harary(n: int, k: int, seed: bytes) -> Graph:
    """Return the neighbours of each of n positions; n k must be even."""
    return tuple(neighbours(n, k, seed, i) for i in range(n))


@lru_cache(maxsize=1 << 16)
def neighbours(n: int, k: int, seed: bytes, position: int) -> tuple[int, ...]:
    """Return the neighbours of one position, increasing."""
    if k == n - 1:
        return tuple(j for j in range(n) if j != position)
    order, place = circle(n, seed)
    steps = [step for d in range(1, k // 2 + 1) for step in (d, -d)] + [n // 2] * (k % 2)
    return tuple(sorted(order[(place[position] + step) % n] for step in steps))


@lru_cache(maxsize=16)
def circle(n: int, seed: bytes) -> tuple[list[int], dict[int, int]]:
    """Return the order on the ring, and where each position is in it."""
    order = permutation(n, seed)
    return order, {position: i for i, position in enumerate(order)}


def permutation(n: int, seed: bytes) -> list[int]:
    """Return 0 .. n - 1 in the order of their digests under the seed."""
    return sorted(range(n), key=lambda i: digest(b"fedmmf secagg 1 graph", seed, b"%d" % i))


def core(
    holders: Mapping[int, Sequence[int]], alive: Collection[int], threshold: int
) -> frozenset[int]:
    """Return the largest subset of `alive` whose every member has `threshold` holders in it.

    A party with fewer could not be unmasked, so it is left out before it matters; that may leave
    others with too few, hence the loop. In a complete graph this is all of `alive`, or nothing.
    """
    kept = set(alive)
    while True:
        short = [p for p in kept if len(kept.intersection(holders[p])) < threshold]
        if not short:
            return frozenset(kept)
        kept.difference_update(short)
