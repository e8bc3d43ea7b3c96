"""Layout of the updates and broadcasts of `vb` under noise, number by number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from fedmmf.solvers.contract import UpdateShape, require_valid_broadcast
from fedmmf.solvers.vb.shapes import MAX_VB_COLUMNS, Blocks, triangle

_PREFIX = "stages=counts,means,factors joint="


@dataclass(frozen=True)
class PrivateShape(UpdateShape):
    """Sizes and named parts of updates and broadcasts under noise.

    Attributes:
        blocks: the parts of the broadcast's rows, of parameters and of totals.
    """

    blocks: Mapping[str, Blocks] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, rank: int, variant: str) -> Self:
        """Lay out the parts of a variant; raise `WireError` if there is no such variant."""
        number = variant.removeprefix(_PREFIX)
        is_known = number.isdecimal() and len(number) < 5 and rank > 1
        is_known = is_known and write_variant(int(number)) == variant
        require_valid_broadcast(is_known, f"there is no variant {variant[:80]!r} of vb with noise")
        joint, k = int(number), rank - 1
        require_valid_broadcast(
            joint <= MAX_VB_COLUMNS, f"{MAX_VB_COLUMNS} columns are the most; got {joint}"
        )
        blocks = {
            "item_row": Blocks(mean=rank, covariance=triangle(rank), weight=1),
            "parameters": Blocks(
                stage=1,
                n_active=1,
                tau=1,
                unit=1,
                clip=1,
                middle=1,
                joint_mean=joint,
                joint_precision=joint,
            ),
            "totals": Blocks(
                user_sum=k,
                moment=triangle(k),
                covariance=triangle(k),
                cross=k * joint,
                level=int(joint > 0),
            ),
        }
        return cls(
            rank=rank,
            width=rank,
            broadcast_width=blocks["item_row"].size,
            n_parameters=blocks["parameters"].size,
            n_totals=blocks["totals"].size,
            n_joint=joint,
            blocks=blocks,
        )

    @property
    def n_noisy_totals(self) -> int:
        """All totals are clipped with the rows, and have noise."""
        return self.n_totals

    @property
    def solves_last(self) -> bool:
        """Parties compute p_u anew from the final item factors: that costs no privacy."""
        return True


def write_variant(joint: int) -> str:
    """Write the variant as one line of text."""
    return f"{_PREFIX}{joint}"


def is_private(variant: str) -> bool:
    """Whether a variant of `vb` is one with noise."""
    return variant.startswith(_PREFIX.split(" ")[0])
