"""Masks of all users at once: the functions of `models`, compiled, over chunks of users."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.extending import register_jitable

from fedmmf.arrays import Array
from fedmmf.engines.kernels import threads
from fedmmf.masks.models import MaskFamily
from fedmmf.storage.kernel_cache import cached_jit

CHUNKS_PER_THREAD = 8  # small enough for a smooth progress bar, large enough to hide the dispatch


@cache
def compiled(family: MaskFamily) -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile (train, apply) of a family; both release the GIL, so threads may share the users.

    Compiled without numba's own parallelism: that costs several times the compilation, and threads
    over chunks of users do the same work. A family that names no helpers stays as it is.
    """
    if family.helpers is None:
        return family.train, family.apply
    functions: tuple[Any, ...] = (*family.helpers, family.fit, family.predict)
    for helper in functions:
        register_jitable(helper)
    jit = cached_jit(nogil=True)
    return jit(family.train), jit(family.apply)


class CompiledRunner:
    """A `Runner` that divides users between threads; results do not depend on their number."""

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self._progress = progress or (lambda users_done: None)

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run the compiled trainer; the arguments are those of `models._trainer`."""
        items, features, *inputs, theta, chosen, fitted, held_out = arrays
        items, features = threads.frozen(items, np.int32), threads.frozen(features, np.float64)
        indptr = threads.frozen(indptr, np.int64)
        kernel, _ = compiled(family)

        def run(begin: int, end: int) -> None:
            rows = slice(begin, end)
            outputs = (theta[rows], chosen[rows], fitted, held_out)
            kernel(indptr[begin : end + 1], items, features, *inputs, *outputs)

        self._share(run, indptr)

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run the compiled applier; the arguments are those of `models._applier`."""
        items, features, theta, out = arrays
        items, features = threads.frozen(items, np.int32), threads.frozen(features, np.float64)
        indptr, theta = threads.frozen(indptr, np.int64), threads.frozen(theta, np.float64)
        _, kernel = compiled(family)

        def run(begin: int, end: int) -> None:
            kernel(indptr[begin : end + 1], items, features, theta[begin:end], out)

        self._share(run, indptr)

    def _share(self, run: Callable[[int, int], None], indptr: Array) -> None:
        parts = threads.ranges(indptr, CHUNKS_PER_THREAD * threads.n_threads())
        with threads.one_blas_thread():
            for n_users in threads.for_each(run, parts):
                self._progress(n_users)
