"""How much a packed file may hold: a few bytes can unpack into more than a machine has."""

MOST_BYTES, MOST_TIMES = 256 << 20, 100


def is_bomb(n_unpacked: int, n_packed: int) -> bool:
    """Whether so much, in bytes, out of so little is more than anybody packs in earnest."""
    return n_unpacked > MOST_BYTES and n_unpacked > MOST_TIMES * n_packed
