"""Check ids and whole numbers that Python users pass in."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError

_LARGEST = float(2**53)  # beyond it, a float no longer says which whole number it is


def as_ids(given: Any, what: str = "ids") -> Array:
    """Return ids as an array, from one id, a list, an array or a column. (n,).

    Args:
        given: whole numbers and text; a float counts where it has no fraction.
        what: what they are called in errors.
    """
    if hasattr(given, "columns"):
        raise SettingsError(f"{what} must be one column; got a whole frame. Pick a column of it")
    if not is_many(given):
        given = [given]
    if not isinstance(given, np.ndarray):
        return _of_list(list(given), what)
    if given.ndim != 1:
        raise SettingsError(f"{what} must be a flat list; got an array of shape {given.shape}")
    return given if given.dtype.kind in "iuU" else _of_list(given.tolist(), what)


def is_many(given: Any) -> bool:
    """Whether a value holds several ids, rather than being one."""
    is_scalar = isinstance(given, np.ndarray) and given.ndim == 0
    return isinstance(given, Iterable) and not isinstance(given, str | bytes) and not is_scalar


def _of_list(values: list[Any], what: str) -> Array:
    """Ids one by one: a list hides what an array would make of it, as of [1, True]. (n,)."""
    plain = [_plain_id(value, what) for value in values]
    return np.array(plain) if plain else np.zeros(0, np.int64)


def _plain_id(value: Any, what: str) -> int | str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.item()
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        return int(value)
    raise SettingsError(f"{what} must be whole numbers or text; got {value!r}. {_remedy(value)}")


def _remedy(value: Any) -> str:
    if isinstance(value, bool):
        return "Give the ids themselves, not which of them"
    if str(value) in ("None", "nan", "<NA>", "NaT"):
        return "Leave out what is missing"
    if isinstance(value, float):
        return "Round it if a whole number was meant"
    return f"Convert it: it is of the type {type(value).__name__}"


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number that is large enough; anything else is refused by the argument's name."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole:
        raise SettingsError(f"{name} must be a whole number; got {value!r}. Give an int")
    if value < least:
        raise SettingsError(f"{name} must be at least {least}; got {value}")
    return int(value)
