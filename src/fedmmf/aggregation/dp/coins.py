"""Coins of exact probability, many at once, in whole numbers: no floating point, nothing rounded.

- A coin of probability n / d compares a uniform whole number below d with n.
- A coin of probability exp(-x), for x = n / d in [0, 1), is algorithm 1 of Canonne, Kamath and
  Steinke 2020 (The discrete Gaussian for differential privacy): flip coins of probability x / 1,
  x / 2, x / 3 ... until one fails. The k-th is the first to fail with probability x^(k-1) / (k-1)!
  - x^k / k!, and the sum over odd k is exp(-x). A coin of probability x / k is two independent
  ones, 1 / k and x, so that no product is too long for 64 bits.
- A coin of probability exp(-x - y) is two independent coins.

Bits are the keystream of AES-256 in counter mode, as those of secure sums' masks, under a fresh key
from the operating system for every call.
"""

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedmmf.arrays import Array

_WORD = 1 << 64


def flip_repeatedly(is_kept: Array, times: Array, flip: Callable[[Array], Array]) -> None:
    """Unset `is_kept` where one of that many coins fails; `flip` is told whose to flip."""
    turn = 0
    while len(who := np.flatnonzero(is_kept & (times > turn))):
        is_kept[who] = flip(who)
        turn += 1


def exp_coins(numerators: Array, denominator: int) -> Array:
    """Flip coins of probability exp(-n / d), for n < d or n = d = 1. (n,) bool."""
    falls = coins(numerators, denominator)
    fails_at_odd, who, k = ~falls, np.flatnonzero(falls), 2
    while len(who):
        falls = coins(np.ones(len(who), np.uint64), k)
        falls[falls] = coins(numerators[who[falls]], denominator)
        fails_at_odd[who[~falls]] = k % 2 == 1
        who, k = who[falls], k + 1
    return fails_at_odd


def coins(numerators: Array, denominator: int) -> Array:
    """Flip coins of probability n / d: whether a uniform whole number below d is below n."""
    if denominator == 1:
        return np.asarray(numerators == 1)
    return np.asarray(_scaled(len(numerators), denominator) < _unit(denominator) * numerators)


def below(n: int, bound: int) -> Array:
    """Draw uniform whole numbers below `bound`. (n,) uint64."""
    return np.zeros(n, np.uint64) if bound == 1 else _scaled(n, bound) // _unit(bound)


def _unit(bound: int) -> np.uint64:
    """Number of words of 64 bits that stand for one number below `bound`, which is 2 or more."""
    return np.uint64(_WORD // bound)


def _scaled(n: int, bound: int) -> Array:
    """Draw uniform words below the largest multiple of `bound` in 2^64; others are drawn anew."""
    found, largest = words(n), np.uint64(_WORD // bound * bound - 1)
    while len(who := np.flatnonzero(found > largest)):
        found[who] = words(len(who))
    return found


def words(n: int) -> Array:
    """Random words of 64 bits. (n,) uint64."""
    stream = Cipher(algorithms.AES(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(bytearray(stream.update(bytes(8 * n))), np.uint64)
