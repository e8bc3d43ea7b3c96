"""Who masks with whom: a k-regular graph from a public seed (Bell et al. 2020).

The parties are put on a ring in an order that the seed fixes, and each is joined to its nearest k
(a Harary graph under a random permutation). Anybody can recompute it. With k = n - 1 it is the
complete graph of Bonawitz et al. 2017. Parties appear here as positions 0 .. n - 1.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg.keys import DIGEST_BYTES, digest

_CIRCLES = 8  # kept at most; one of 100,000 parties has 0.8 MB


def neighbours(n: int, k: int, seed: bytes, position: int) -> tuple[int, ...]:
    """Return the neighbours of one position, increasing; n k must be even."""
    if k == n - 1:
        return (*range(position), *range(position + 1, n))
    near = neighbour_rows(n, k, seed, np.array([position]))[0]  # (k,)
    return tuple(np.sort(near).tolist())


def neighbour_rows(n: int, k: int, seed: bytes, positions: Array) -> Array:
    """Return the neighbours of several positions, in the order of the ring. (n_positions, k)."""
    side = np.arange(1, k // 2 + 1)  # (k // 2,)
    steps = np.concatenate([side, -side, [n // 2] * (k % 2)]).astype(np.int64)  # (k,)
    if k == n - 1:  # everybody, whatever the order
        return (positions[:, np.newaxis] + np.arange(1, n)) % n
    order, place = circle(n, seed)
    near: Array = order[(place[positions][:, np.newaxis] + steps) % n]
    return near


@lru_cache(maxsize=_CIRCLES)
def circle(n: int, seed: bytes) -> tuple[Array, Array]:
    """Return the order on the ring, and where each position is in it; int32, not to be changed."""
    order = permutation(n, seed)  # (n,)
    place = np.empty_like(order)
    place[order] = np.arange(n, dtype=order.dtype)
    order.setflags(write=False)
    place.setflags(write=False)
    return order, place


def permutation(n: int, seed: bytes) -> Array:
    """Return 0 .. n - 1 in the order of their digests under the seed, int32.

    The digests lie in one block: as so many objects they would take several times the room.
    """
    block = bytearray(DIGEST_BYTES * n)
    for i in range(n):
        start = DIGEST_BYTES * i
        block[start : start + DIGEST_BYTES] = digest(b"fedmmf secagg 1 graph", seed, b"%d" % i)
    words = np.frombuffer(block, ">u8").reshape(n, -1)  # (n, 4), the first the most significant
    return np.lexsort(words.T[::-1]).astype(np.int32)


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
