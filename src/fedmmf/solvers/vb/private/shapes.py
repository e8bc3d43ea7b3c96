"""Layout of the updates and broadcasts of `vb` under noise, number by number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from fedmmf.solvers.contract import UpdateShape, require_valid_broadcast
from fedmmf.solvers.vb.shapes import MAX_VB_COLUMNS, Blocks, triangle

_PREFIXES = ("stages=counts,means,factors joint=", "stages=counts,factors joint=")


@dataclass(frozen=True)
class PrivateShape(UpdateShape):
    """Sizes and named parts of updates and broadcasts under noise.

    Attributes:
        ranks: whether unrated items count; then there is no stage of means.
        blocks: the parts of the broadcast's rows, of parameters and of totals.
    """

    ranks: bool = False
    blocks: Mapping[str, Blocks] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, rank: int, variant: str) -> Self:
        """Lay out the parts of a variant; raise `WireError` if there is no such variant."""
        ranks = variant.startswith(_PREFIXES[True])
        number = variant.removeprefix(_PREFIXES[ranks])
        is_known = number.isdecimal() and len(number) < 5 and rank > 1
        is_known = is_known and write_variant(int(number), ranks=ranks) == variant
        require_valid_broadcast(is_known, f"there is no variant {variant[:80]!r} of vb with noise")
        joint = int(number)
        require_valid_broadcast(
            joint <= MAX_VB_COLUMNS, f"{MAX_VB_COLUMNS} columns are the most; got {joint}"
        )
        blocks = _blocks(rank, joint, ranks=ranks)
        return cls(
            rank=rank,
            width=rank,
            broadcast_width=blocks["item_row"].size,
            n_parameters=blocks["parameters"].size,
            n_totals=blocks["totals"].size,
            n_joint=joint,
            ranks=ranks,
            blocks=blocks,
        )

    @property
    def n_noisy_totals(self) -> int:
        """All totals are clipped with the rows, and have noise."""
        return self.n_totals

    @property
    def divisor(self) -> int | None:
        """In lists, the weights of items: masks know more of frequent ones."""
        return self.blocks["item_row"].place("weight").start if self.ranks else None

    @property
    def solves_last(self) -> bool:
        """Parties compute p_u anew from the final item factors: that costs no privacy."""
        return True


def _blocks(rank: int, joint: int, *, ranks: bool) -> dict[str, Blocks]:
    """Name the parts; lists have the mean of (1, p) theta^T where ratings have Cov[p, theta]."""
    k = rank - 1
    one = dict.fromkeys(("stage", "n_active", "tau", "unit", "clip"), 1)
    of_objective = (
        {"unrated_weight": 1, "unrated_value": 1, "usual_weight": 1} if ranks else {"middle": 1}
    )
    return {
        "item_row": Blocks(mean=rank, covariance=triangle(rank), weight=1),
        "parameters": Blocks(**one, **of_objective, joint_mean=joint, joint_precision=joint),
        "totals": Blocks(
            user_sum=k,
            moment=triangle(k),
            covariance=triangle(k),
            cross=(rank if ranks else k) * joint,
            level=int(joint > 0 and not ranks),
        ),
    }


def write_variant(joint: int, *, ranks: bool = False) -> str:
    """Write the variant as one line of text."""
    return f"{_PREFIXES[ranks]}{joint}"


def is_private(variant: str) -> bool:
    """Whether a variant of `vb` is one with noise."""
    return variant.startswith("stages=")
