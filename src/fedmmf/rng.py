"""Named random streams.

A stream depends on its name alone, never on how many numbers other streams have drawn, so results
do not change with the order of users or the number of threads. Nothing secret may come from here:
secrets are drawn from the operating system.
"""

import hashlib

import numpy as np


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the generator called `name` under `seed`, e.g. `stream(0, "split")`.

    The name's parts are hashed with their lengths, so ("ab", "c") and ("a", "bc") differ.
    """
    parts = [f"{len(str(part))}:{part}" for part in (seed, *name)]
    digest = hashlib.sha256("/".join(parts).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
