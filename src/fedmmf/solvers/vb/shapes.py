"""Layout of the updates and broadcasts of `vb`, number by number.

Every part has a name, and is there only where the variant calls for it. Symmetric matrices travel
packed: the lower triangle, row by row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

import numpy as np

from fedmmf.arrays import Array, space
from fedmmf.solvers.contract import UpdateShape, require_valid_broadcast

IMPLICIT = ("none", "items", "users", "both")
MAX_VB_COLUMNS = 4096  # of profiles and of a design
KNOWN = (1, 2, 3, 5, 8, 13, 20, 30)  # numbers of ratings that newcomers are known by


def total_bound(span: float) -> float:
    """Bound of each total of one user, on a scale of that span."""
    return 2.0**16 * max(span, 1.0) ** 2


def pack(matrix: Array) -> Array:
    """Pack symmetric matrices as lower triangles. (..., k, k) -> (..., k (k + 1) / 2)."""
    rows, columns, _ = _places(matrix.shape[-1], *_whereabouts(matrix))
    packed: Array = matrix[..., rows, columns]
    return packed


def unpack(packed: Array, k: int) -> Array:
    """Unpack symmetric matrices from lower triangles. (..., k (k + 1) / 2) -> (..., k, k)."""
    *_, places = _places(k, *_whereabouts(packed))
    matrix: Array = packed[..., places]
    return matrix


def _whereabouts(array: Array) -> tuple[Any, Any]:
    return space(array), getattr(array, "device", None)


@lru_cache(maxsize=64)
def _places(k: int, xp: Any, device: Any) -> tuple[Array, Array, Array]:
    """Rows and columns of a lower triangle, and the position of each entry in it."""
    rows, columns = np.tril_indices(k)
    places = np.empty((k, k), np.int64)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    if xp is np:
        return rows, columns, places
    there = (xp.as_tensor(array, device=device) for array in (rows, columns, places))
    return next(there), next(there), next(there)


def triangle(k: int) -> int:
    """Number of entries of a packed matrix."""
    return k * (k + 1) // 2


class Blocks:
    """Named parts of a vector, one after the other; some may be empty."""

    def __init__(self, **sizes: int) -> None:
        ends = np.cumsum(list(sizes.values())).tolist()
        starts = [0, *ends[:-1]]
        self._places = dict(zip(sizes, map(slice, starts, ends), strict=True))
        self.size = int(ends[-1])

    def split(self, values: Array) -> dict[str, Array]:
        """Split a vector into views of its parts. (..., size) -> (..., part) each."""
        return {name: values[..., place] for name, place in self._places.items()}

    def join(self, shape: tuple[int, ...] = (), **parts: Array) -> Array:
        """Join parts into one vector, zeros where one is missing. (*shape, size) float64."""
        whole = np.zeros((*shape, self.size))
        for name, value in parts.items():
            whole[..., self._places[name]] = value
        return whole

    def place(self, name: str) -> slice:
        """Return the slice of the vector that holds a part."""
        return self._places[name]


@dataclass(frozen=True)
class VbShape(UpdateShape):
    """Sizes and named parts of a variant's updates and broadcasts.

    Attributes:
        implicit: which priors depend on who rated what, one of `IMPLICIT`.
        blocks: the parts of the broadcast's rows, of parameters, of totals, and of the totals of
            newcomers (`newcomers`).
    """

    implicit: str = "none"
    blocks: Mapping[str, Blocks] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, k: int, variant: str) -> Self:
        """Read a variant, and lay out its parts."""
        named = _read(variant)
        implicit, d = str(named["implicit"]), int(named["profile"])
        m, levels, joint = (int(named[name]) for name in ("design", "levels", "joint"))
        y = k * (implicit in ("users", "both"))
        e, n_own = y + d, k + joint
        blocks = {
            "item_row": Blocks(mean=k, n_raters=1),
            "parameters": Blocks(
                tau=1,
                user_precision=k,
                item_precision=k,
                mean_user=k,
                curvature=triangle(k),
                base=triangle(k),
                user_weights=e * k,
                profile_mean=d,
                membership=int(implicit in ("items", "both")),
                unrated=2 * (m > 0),
                cuts=max(levels - 1, 0),
                joint_mean=joint,
                joint_precision=joint,
            ),
            "totals": Blocks(
                weight=1,
                error=1,
                n_users=1,
                n_ratings=1,
                user_sum=k,
                deviation=k,
                moment=triangle(k),
                user_gram=triangle(e),
                user_moments=e * k,
                n_profiled=int(d > 0),
                profile_sum=d,
                all_moment=triangle(k) * (m > 0),
                all_line=k * m,
                joint_sum=joint,
                joint_deviation=joint,
                levels=3 * max(levels - 1, 0),
            ),
            "newcomers": Blocks(
                n_users=1,
                fpc=len(KNOWN),
                item_sum=y,
                user_sum=n_own,
                between=triangle(y),
                within=triangle(y),
                cross=y * n_own,
                moment=triangle(n_own),
            ),
        }
        return cls(
            rank=k,
            width=k,
            broadcast_width=blocks["item_row"].size,
            n_parameters=blocks["parameters"].size,
            n_totals=blocks["totals"].size,
            n_profile=d,
            n_design=m,
            implicit=implicit,
            n_levels=levels,
            n_joint=joint,
            blocks=blocks,
        )

    @property
    def matrices(self) -> tuple[slice, ...]:
        """Range of n E[p p^T], which many thousand ratings of a user can bring above the bound."""
        return (self.blocks["totals"].place("moment"),)

    @property
    def n_seen(self) -> int:
        """Number of regressors from the user's rated items in the prior of p_u."""
        return self.rank if self.implicit in ("users", "both") else 0

    @property
    def n_newcomer(self) -> int:
        """Totals of a user in the sum that the prior of newcomers is made from."""
        return self.blocks["newcomers"].size

    @property
    def has_membership_rounds(self) -> bool:
        """Whether the prior of q_i depends on who rated i, which takes membership rounds."""
        return self.implicit in ("items", "both")

    @property
    def ranks(self) -> bool:
        """Whether unrated items count with a small weight."""
        return self.n_design > 0


_COUNTS = ("profile", "design", "levels", "joint")


def write_variant(
    implicit: str, profile: int = 0, design: int = 0, levels: int = 0, joint: int = 0
) -> str:
    """Write a variant as one line of text: `name=value` words."""
    numbers = zip(_COUNTS, (profile, design, levels, joint), strict=True)
    return " ".join((f"implicit={implicit}", *(f"{name}={number}" for name, number in numbers)))


def _read(variant: str) -> dict[str, str]:
    """Parse a variant; accept only the spelling that `write_variant` writes."""
    words = dict(word.partition("=")[::2] for word in variant.split(" "))
    is_known = set(words) == {"implicit", *_COUNTS} and words["implicit"] in IMPLICIT
    numbers = {name: words.get(name, "") for name in _COUNTS}
    is_known &= all(word.isdecimal() and len(word) < 5 for word in numbers.values())
    require_valid_broadcast(is_known, f"there is no variant {variant[:80]!r} of vb")
    most = max(map(int, numbers.values()))
    require_valid_broadcast(
        most <= MAX_VB_COLUMNS, f"{MAX_VB_COLUMNS} columns are the most; got {most}"
    )
    same = write_variant(words["implicit"], **{name: int(n) for name, n in numbers.items()})
    is_one = "0" in (numbers["design"], numbers["joint"])
    require_valid_broadcast(is_one, "masks belong to p_u only where unrated items do not count")
    require_valid_broadcast(same == variant, f"a variant is written {same!r}; got {variant[:80]!r}")
    return words
