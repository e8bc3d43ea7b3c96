"""The one name for arrays in signatures; shapes and types stand in comments and docstrings.

A solver's server may keep its arrays on a device, as tensors of torch. Its equations are the same
lines for both: operators and methods that mean the same, and functions of `space`.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def space(array: Array) -> Any:
    """The module whose functions take such an array: numpy, or torch for its tensors."""
    return np if isinstance(array, (np.ndarray, np.generic)) else sys.modules["torch"]


def doubles(array: Array) -> Array:
    """In float64."""
    return _as(array, "float64")


def singles(array: Array) -> Array:
    """In float32."""
    return _as(array, "float32")


def _as(array: Any, name: str) -> Array:
    xp = space(array)
    found: Array = np.asarray(array, name) if xp is np else array.to(getattr(xp, name))
    return found
