"""Work shared between threads: the kernels release the GIL, and no two write the same result."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, suppress
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError

VARIABLE = "FEDMMF_THREADS"


def n_threads() -> int:
    """Number of threads to use: FEDMMF_THREADS, or every core this process may run on."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return len(os.sched_getaffinity(0))
    if not text.isdecimal() or int(text) < 1:
        raise SettingsError(f"{VARIABLE} must be a whole number of at least 1; got {text!r}")
    return int(text)


def ranges(indptr: Array, n_ranges: int) -> list[tuple[int, int]]:
    """Cut rows into at most `n_ranges` runs with about the same number of entries each."""
    targets = np.linspace(indptr[0], indptr[-1], n_ranges + 1)
    cuts = np.searchsorted(indptr, targets, side="left")
    cuts[0], cuts[-1] = 0, len(indptr) - 1
    return [(int(a), int(b)) for a, b in pairwise(cuts) if a < b]


@cache
def _pool(size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix="fedmmf")


# A fork copies the pools without their threads: work given to such a copy would wait for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)


def for_each(function: Callable[[int, int], Any], parts: list[tuple[int, int]]) -> Iterator[int]:
    """Call function(begin, end) for every part on the threads; yield each size as it ends."""
    if len(parts) == 1:
        function(*parts[0])
        yield parts[0][1] - parts[0][0]
        return
    futures = {_pool(n_threads()).submit(function, *part): part for part in parts}
    for future in as_completed(futures):
        future.result()
        yield futures[future][1] - futures[future][0]


def run(function: Callable[[int, int], Any], parts: list[tuple[int, int]]) -> None:
    """Call function(begin, end) for every part on the threads, and wait for all."""
    for _ in for_each(function, parts):
        pass


def one_blas_thread() -> AbstractContextManager[Any]:
    """Give BLAS one thread: its own would compete with ours, and could change the sums."""
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> Any:
    """Libraries with threads of their own; to look for them takes as long as a small round."""
    from threadpoolctl import ThreadpoolController  # a machine with torch alone has none

    with suppress(ImportError):
        import scipy.linalg.cython_blas  # noqa: F401 - kernels multiply matrices with it
    return ThreadpoolController()


def frozen(array: Array, dtype: Any) -> Array:
    """Read-only contiguous view: numba compiles a kernel anew for every kind of array."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view
