"""Indexes of the items for quick search: the nearest by inner product are the best scores.

What a user has rated is not left out by an index; ask for more, and leave it out afterwards. Items
are called by their ids where these are whole numbers from 0 on, and by their places in `item_ids`
otherwise.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedmmf.interop import needed
from fedmmf.interop.vectors import Vectors, labels_of

_NEIGHBOURS, _WIDTH, _SEED = 32, 400, 100  # of hnswlib's graph: more is slower and more exact


def faiss_index(vectors: Vectors) -> Any:
    """Make an exact FAISS index over all items."""
    faiss = needed("faiss", "faiss-cpu")
    index = faiss.IndexIDMap2(faiss.IndexFlatIP(vectors.items.shape[1]))
    index.add_with_ids(np.ascontiguousarray(vectors.items), labels_of(vectors.item_ids))
    return index


def write_faiss(vectors: Vectors, path: Path) -> None:
    """Write an index in the format that `faiss.read_index` reads."""
    needed("faiss", "faiss-cpu").write_index(faiss_index(vectors), str(path))


def hnsw_index(vectors: Vectors) -> Any:
    """Make an approximate hnswlib index over all items; its distances are 1 less the score."""
    hnswlib = needed("hnswlib", "hnswlib")
    n_items, k = vectors.items.shape
    index = hnswlib.Index(space="ip", dim=k)
    index.init_index(n_items, ef_construction=_WIDTH, M=_NEIGHBOURS, random_seed=_SEED)
    index.add_items(vectors.items, labels_of(vectors.item_ids), num_threads=1)
    index.set_ef(_WIDTH)
    return index


def write_hnsw(vectors: Vectors, path: Path) -> None:
    """Write an index that hnswlib's `Index(space="ip", dim=k).load_index` reads."""
    hnsw_index(vectors).save_index(str(path))
