"""Functions compiled by numba and kept on disk, where the disk has room for them."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, NullCache

Function = TypeVar("Function", bound=Callable[..., Any])


class _OptionalCache(FunctionCache):
    """Numba's cache, without which a full disk is no error: the function is compiled already."""

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled function, if that is possible."""
        with suppress(OSError):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def cached_jit(**options: Any) -> Callable[[Function], Function]:
    """Return a decorator that compiles a function with `numba.njit` and keeps it on disk.

    Numba's own `cache=True` ends a run whose cache cannot be written.
    """

    def decorate(function: Function) -> Function:
        dispatcher: Any = numba.njit(**options)(function)
        try:  # what numba's `enable_caching` does
            dispatcher._cache = _OptionalCache(function)  # type: ignore[no-untyped-call]
        except RuntimeError:  # no folder can be written
            dispatcher._cache = NullCache()
        return cast(Function, dispatcher)

    return decorate
