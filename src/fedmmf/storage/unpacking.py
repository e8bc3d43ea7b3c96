"""Limits on unpacking: a few bytes can unpack into more than a machine's memory.

Texts of ratings shrink to a third, repetitive ones to a tenth. Files of our own are not compressed,
so they hold no more than there is to read in them (`checkpoints`).
"""

MAX_BYTES, MAX_TIMES = 256 << 20, 20


def is_bomb(n_unpacked: int, n_packed: int) -> bool:
    """Whether a packed size is implausibly small for the unpacked one, both in bytes."""
    return n_unpacked > MAX_BYTES and n_unpacked > MAX_TIMES * n_packed
