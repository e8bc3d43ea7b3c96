"""Masks from 32-byte seeds: the keystream of AES-256 in counter mode as ring elements.

The pseudorandom generator of Bonawitz et al. 2017, who also use AES in counter mode. A seed is used
for one mask only, so the counter starts at zero.

Masks are added into a vector where it lies. The loop runs over pieces of the vector outside and
over seeds inside: a piece, the keystream and the zeros stay in the cache of the processor, and what
is left is the cost of AES itself.
"""

from collections.abc import Callable, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from fedmmf.arrays import Array
from fedmmf.secagg.ring import Ring

SEED_BYTES = 32
CHUNK_BYTES = 1 << 17
_GROUP = 128  # ciphers open at once
_ZEROS = bytes(CHUNK_BYTES)
_SLACK = 16  # update_into asks for room for one block more

Words = Callable[[int], Array]  # the next n words of a stream


def apply_masks(
    total: Array, ring: Ring, added: Sequence[bytes], subtracted: Sequence[bytes] = ()
) -> None:
    """Compute total <- total + sum of PRG(added) - sum of PRG(subtracted), in place."""
    jobs = [(seed, ring.add_into) for seed in added]
    jobs += [(seed, ring.subtract_into) for seed in subtracted]
    step = CHUNK_BYTES // ring.width
    buffer = bytearray(CHUNK_BYTES + _SLACK)
    for first in range(0, len(jobs), _GROUP):
        group = [(mask_words(s, ring, buffer), into) for s, into in jobs[first : first + _GROUP]]
        for start in range(0, len(total), step):
            piece = total[start : start + step]
            for words, into in group:
                into(piece, words(len(piece)))


def expand(seed: bytes, ring: Ring, length: int) -> Array:
    """Return PRG(seed): one mask, as a new array."""
    mask = np.zeros(length, ring.dtype)
    apply_masks(mask, ring, [seed])
    return mask


def mask_words(seed: bytes, ring: Ring, buffer: bytearray) -> Words:
    """Return the stream of ring elements of a seed; what it yields lies in `buffer`."""
    words = keystream(seed, ring, buffer)
    return words if ring.is_binary else unbiased(words, ring)


def keystream(seed: bytes, ring: Ring, buffer: bytearray) -> Words:
    """Return the keystream of a seed as words of the ring's width, at most a chunk at a time."""
    update_into = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update_into
    width, view = ring.width, np.frombuffer(buffer, ring.dtype, CHUNK_BYTES // ring.width)

    def words(count: int) -> Array:
        update_into(_ZEROS[: width * count], buffer)
        return view[:count]

    return words


def unbiased(words: Words, ring: Ring) -> Words:
    """Return uniform elements of a prime ring: cut to its bits and leave out what is too large."""
    bits = np.uint64((1 << ring.modulus.bit_length()) - 1)

    def accepted(count: int) -> Array:
        values = words(count)
        np.bitwise_and(values, bits, out=values)
        if ring.contains(values):
            return values
        kept = values[values < ring.modulus]  # a copy: `words` overwrites its buffer
        while len(kept) < count:
            kept = np.concatenate([kept, accepted(count - len(kept))])
        return kept

    return accepted
