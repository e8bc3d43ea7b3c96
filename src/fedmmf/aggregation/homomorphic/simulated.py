"""Cost of homomorphic aggregation: measured on some ciphertexts, extrapolated to a round.

Every ciphertext takes the same work, so a few give the cost of all. Seconds are CPU
seconds of one core.
"""

import math
from dataclasses import dataclass
from functools import cache
from time import process_time
from typing import Any

import numpy as np

from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey, seal
from fedmmf.aggregation.homomorphic.schemes import PublicKey, SecretKey, generate, load_public
from fedmmf.aggregation.simulated import Cost, CostInput
from fedmmf.aggregation.vector import SumCodec, codec_of
from fedmmf.wire.codec import NAME_BYTES
from fedmmf.wire.frames import HEADER_BYTES

ADDITIONS = 16  # a sum takes microseconds: copies of the measured ciphertexts make it measurable


@dataclass(frozen=True)
class Measured:
    """CPU seconds and bytes of some ciphertexts, and how many a vector takes."""

    encrypt_s: float
    add_s: float
    decrypt_s: float
    n_bytes: float
    error: float  # largest error of a decrypted sum, in steps
    n_measured: int
    n_ciphertexts: int  # of a whole vector

    @property
    def times(self) -> float:
        """Factor from the measured ciphertexts to a whole vector."""
        return self.n_ciphertexts / self.n_measured


def cost(given: CostInput, scheme: str, n_measured: int = 2) -> Cost:
    """Cost of a round: every party encrypts, the server adds, the keeper decrypts."""
    bounds = given.solver.bounds(given.span)
    codec = codec_of(given.sizes, bounds, given.n_users, given.solver.ring)
    found = measure(_measuring_key(scheme), codec, n_measured)
    server_s = found.times * (found.add_s * given.n_users + found.decrypt_s)
    up = len(Ciphertexts(1, b"").encode()) + found.times * found.n_bytes
    down = _sealed_bytes(given) + HEADER_BYTES + NAME_BYTES
    how = f"extrapolated from {n_measured} of {found.n_ciphertexts:,} ciphertexts measured now"
    return Cost(up, down, found.times * found.encrypt_s, server_s, how)


def measure(secret: SecretKey, codec: SumCodec, n_measured: int) -> Measured:
    """Encrypt a vector of so many ciphertexts, read and add it, and decrypt the sum."""
    public, limit = load_public(secret.name, secret.public), codec.largest
    length = n_measured * public.slots(limit)
    largest = min(limit // codec.n_users, 1 << 20)
    integers = np.arange(length, dtype=np.int64) * 7919 % (2 * largest + 1) - largest
    start = process_time()
    data = public.encrypt(integers, limit)
    encrypted = process_time()
    add_s, total = _add_seconds(public, data * ADDITIONS, length * ADDITIONS, limit)
    box = public.write(total[: len(total) // ADDITIONS])
    written = process_time()
    decrypted = secret.decrypt(box, length, limit)
    return Measured(
        encrypt_s=encrypted - start,
        add_s=add_s / ADDITIONS,
        decrypt_s=process_time() - written,
        n_bytes=float(len(data)),
        error=float(np.abs(decrypted - 2 * integers).max()),
        n_measured=n_measured,
        n_ciphertexts=math.ceil(codec.length / public.slots(limit)),
    )


def _sealed_bytes(given: CostInput) -> int:
    key = HomomorphicKey("", given.n_users, bytes(32), b"")
    empty = seal(key, 1, b"")
    return len(empty.encode()) + given.round_bytes


def _add_seconds(
    public: PublicKey, data: bytes, length: int, limit: int
) -> tuple[float, list[Any]]:
    """Measure the seconds to read one vector and add it to another; return also the sum."""
    total = public.read(data, length, limit)
    start = process_time()
    total = public.add(total, public.read(data, length, limit))
    return process_time() - start, total


@cache
def _measuring_key(scheme: str) -> SecretKey:
    """Draw a key that only measurements use; drawing one takes a second."""
    return generate(scheme)
