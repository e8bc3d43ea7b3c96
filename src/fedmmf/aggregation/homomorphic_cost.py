"""What homomorphic sums cost: measured on some ciphertexts, extrapolated to a whole round.

A round's work is the same for every ciphertext, so a few tell the price of all. Seconds are CPU
seconds of one core.
"""

import math
from time import process_time
from typing import Any

import numpy as np

from fedmmf.aggregation.homomorphic_party import largest_sum
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.aggregation.schemes import PublicKey, SecretKey, load_public

ADDITIONS = 16  # a sum takes microseconds: copies of the measured ciphertexts make it measurable


def cost(
    secret: SecretKey,
    n_parties: int,
    layout: Layout,
    solver: str,
    span: float,
    *,
    n_measured: int = 16,
) -> dict[str, Any]:
    """Cost of one round.

    Args:
        secret: a key of the scheme.
        n_parties: in the sum.
        layout: of their vectors.
        solver: sgd or vb; it sets how large the numbers are.
        span: of the rating scale.
        n_measured: ciphertexts to measure.
    """
    codec = Bounds.of(solver, span).codec(layout, solver, n_parties)
    limit = largest_sum(codec)
    slots = load_public(secret.name, secret.public).slots(limit)
    n_ciphertexts = math.ceil(layout.length / slots)
    each = _measure(secret, limit, min(limit // n_parties, 1 << 20), n_measured * slots)
    return {
        "scheme": secret.name,
        "extrapolated": True,
        "measured": {"ciphertexts": n_measured, "numbers": n_measured * slots, **each},
        "n_parties": n_parties,
        "numbers": layout.length,
        "numbers_per_ciphertext": slots,
        "ciphertexts": n_ciphertexts,
        "party_cpu_s": each["encrypt_s"] / n_measured * n_ciphertexts,
        "server_cpu_s": each["add_s"] / n_measured * n_ciphertexts * n_parties,
        "keeper_cpu_s": each["decrypt_s"] / n_measured * n_ciphertexts,
        "up_bytes": round(each["bytes"] / n_measured * n_ciphertexts),
        "largest_error": secret.largest_error(n_parties, limit),
    }


def _measure(secret: SecretKey, limit: int, largest: int, length: int) -> dict[str, float]:
    """Encrypt a vector, read and add it, and decrypt the sum."""
    public = load_public(secret.name, secret.public)
    integers = np.arange(length, dtype=np.int64) * 7919 % (2 * largest + 1) - largest
    start = process_time()
    data = public.encrypt(integers, limit)
    encrypted = process_time()
    add_s, total = _add_seconds(public, data * ADDITIONS, length * ADDITIONS, limit)
    box = public.write(total[: len(total) // ADDITIONS])
    written = process_time()
    decrypted = secret.decrypt(box, length, limit)
    return {
        "encrypt_s": encrypted - start,
        "add_s": add_s / ADDITIONS,
        "decrypt_s": process_time() - written,
        "bytes": float(len(data)),
        "error": float(np.abs(decrypted - 2 * integers).max()),
    }


def _add_seconds(
    public: PublicKey, data: bytes, length: int, limit: int
) -> tuple[float, list[Any]]:
    """Seconds that a server needs to read one vector and add it to another; and the sum."""
    total = public.read(data, length, limit)
    start = process_time()
    total = public.add(total, public.read(data, length, limit))
    return process_time() - start, total
