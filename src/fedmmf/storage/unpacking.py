"""How much a packed text may hold: a few bytes can unpack into more than a machine has.

Texts of ratings shrink to a third, repetitive ones to a tenth. Files of our own are not compressed,
so they hold no more than there is to read in them (`checkpoints`).
"""

MAX_BYTES, MAX_TIMES = 256 << 20, 20


def is_bomb(n_unpacked: int, n_packed: int) -> bool:
    """Whether so much, in bytes, out of so little is more than anybody packs in earnest."""
    return n_unpacked > MAX_BYTES and n_unpacked > MAX_TIMES * n_packed
