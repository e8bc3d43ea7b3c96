"""Masks are fitted on the workers and applied locally: applying one costs less than sending it."""

from collections.abc import Callable
from typing import Any

from fedmmf.arrays import Array
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.masks import CompiledRunner
from fedmmf.engines.ray.cluster import Cluster
from fedmmf.masks.models import MaskFamily

CHUNKS_PER_WORKER = 4  # progress is reported after each


class RayRunner:
    """A `Runner` that divides users between workers; results do not depend on their number."""

    def __init__(self, cluster: Cluster, progress: Callable[[int], None] | None = None) -> None:
        self._cluster = cluster
        self._progress = progress or (lambda users_done: None)

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Train on the workers; the arguments are those of `models._trainer`."""
        items, features, targets, penalties, n_folds, *outputs = arrays
        workers = self._cluster.workers()
        parts = threads.ranges(indptr, CHUNKS_PER_WORKER * len(workers))
        shared = self._cluster.put(features)
        pickled = self._cluster.pickled(family)
        pending = []
        for number, (begin, end) in enumerate(parts):
            mine = slice(int(indptr[begin]), int(indptr[end]))
            lists = (indptr[begin : end + 1] - indptr[begin], items[mine])
            inputs = (*lists, targets[mine], penalties, n_folds)
            worker = workers[number % len(workers)]
            pending.append(worker.train.remote(pickled, shared, *inputs))
        for number, found in self._cluster.as_answered(pending):
            self._keep(found, outputs, indptr, *parts[number])

    def _keep(
        self, found: tuple[Array, ...], outputs: list[Array], indptr: Array, begin: int, end: int
    ) -> None:
        """Copy a worker's results for users begin..end to their place."""
        users, mine = slice(begin, end), slice(int(indptr[begin]), int(indptr[end]))
        for output, part, rows in zip(outputs, found, (users, users, mine, mine), strict=True):
            output[rows] = part
        self._progress(end - begin)

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Apply on this machine's threads; the arguments are those of `models._applier`."""
        CompiledRunner().apply(family, indptr, *arrays)
