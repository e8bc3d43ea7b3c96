"""Shamir t-of-n over the prime 2^256 + 297, for several 32-byte secrets at once.

Shamir 1979, as used by Bonawitz et al. 2017. A secret is the value at 0 of a random
polynomial of degree t - 1; the share of a holder is its value at the holder's point. All
combinations of one set of holders share its weights.
Python's integers do not run in constant time; see the module `keys` for what that means.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

PRIME = 2**256 + 297  # the smallest prime above 2^256
SECRET_BYTES = 32
SHARE_BYTES = 33
_REDUCED = 32  # degrees between reductions; the last is 0
_WIDE = 48  # bytes per coefficient before reduction: a bias below 2^-127

Entropy = Callable[[int], bytes]


def share(
    secrets: Sequence[bytes], threshold: int, points: Sequence[int], entropy: Entropy
) -> dict[int, bytes]:
    """Return, per point, the shares of all secrets, SHARE_BYTES each, in order."""
    polynomials = [_polynomial(secret, threshold, entropy) for secret in secrets]
    return {
        point: b"".join(to_bytes(_evaluate(polynomial, point)) for polynomial in polynomials)
        for point in points
    }


def combine(shares: Sequence[int], points: tuple[int, ...]) -> bytes | None:
    """Return the secret that `shares` at `points` give; None if it has more than 32 bytes."""
    secret = sum(map(mul, shares, weights(points))) % PRIME
    return secret.to_bytes(SECRET_BYTES, "big") if secret < 2**256 else None


@lru_cache(maxsize=64)
def weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Return the Lagrange weights at 0: prod over j != i of x_j / (x_j - x_i)."""
    product = math.prod(points)
    denominators = [
        point * math.prod([other - point for other in points if other != point]) % PRIME
        for point in points
    ]
    return tuple(product * inverse % PRIME for inverse in invert_all(denominators))


def invert_all(values: Sequence[int]) -> list[int]:
    """Return all inverses at the price of one (Montgomery's trick)."""
    prefixes = list(accumulate(values, lambda a, b: a * b % PRIME, initial=1))
    running = pow(prefixes[-1], -1, PRIME)
    inverses = [0] * len(values)
    for i in range(len(values) - 1, -1, -1):
        inverses[i] = running * prefixes[i] % PRIME
        running = running * values[i] % PRIME
    return inverses


def to_bytes(element: int) -> bytes:
    """Write a field element as SHARE_BYTES big-endian bytes."""
    return element.to_bytes(SHARE_BYTES, "big")


def from_bytes(data: bytes) -> int:
    """Read a big-endian field element; the caller checks that it is below PRIME."""
    return int.from_bytes(data, "big")


def _polynomial(secret: bytes, threshold: int, entropy: Entropy) -> list[int]:
    noise = entropy(_WIDE * (threshold - 1))
    starts = range(0, len(noise), _WIDE)
    return [from_bytes(secret)] + [from_bytes(noise[i : i + _WIDE]) % PRIME for i in starts]


def _evaluate(polynomial: Sequence[int], point: int) -> int:
    """Evaluate by Horner's rule; reduce only now and then, as products with points are cheaper."""
    value = 0
    for degree in range(len(polynomial) - 1, -1, -1):
        value = value * point + polynomial[degree]
        if degree % _REDUCED == 0:
            value %= PRIME
    return value
