"""Positions of a user's or an item's ratings among all ratings."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmmf.errors import UnknownNameError


@dataclass(frozen=True)
class ItemIndex:
    """Positions of each item's ratings: those of item i are `order[indptr[i]:indptr[i + 1]]`."""

    indptr: npt.NDArray[np.int64]  # (n_items + 1,)
    order: npt.NDArray[np.int64]  # (n,) positions in the columns, sorted by (item, user)


def bounds(codes: npt.NDArray[np.int32], size: int) -> npt.NDArray[np.int64]:
    """Bounds of the rows of each code, for rows sorted by code. (size + 1,)."""
    indptr = np.zeros(size + 1, dtype=np.int64)  # (size + 1,)
    np.cumsum(np.bincount(codes, minlength=size), out=indptr[1:])
    indptr.flags.writeable = False
    return indptr


def code_of(ids: npt.NDArray[Any], wanted: int | str, kind: str, name: str) -> int:
    """Position of an id among sorted ones; an integer may be given as text."""
    try:
        key = ids.dtype.type(wanted)
    except (ValueError, OverflowError):
        key = None
    if key is not None:
        code = int(np.searchsorted(ids, key))
        if code < len(ids) and ids[code] == key:
            return code
    raise UnknownNameError(
        f"{name!r} has no {kind} {wanted!r}; its {len(ids):,} {kind}s include {ids[0].item()!r}."
    )
