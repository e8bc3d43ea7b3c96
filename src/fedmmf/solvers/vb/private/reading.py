"""A broadcast of `vb` under noise as a party reads it, computed once for all its users."""

from dataclasses import dataclass

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import Asked, Broadcast, require_valid_broadcast
from fedmmf.solvers.vb.private.plan import STAGES
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.reading import MAX_PRECISION, MIN_PRECISION


@dataclass(frozen=True, eq=False)
class PrivateReading:
    """The parts of a broadcast, by name; `a` factors are in use, masks have `j` columns."""

    update_shape: PrivateShape
    stage: int  # index into `plan.STAGES`
    n_active: int
    tau: float
    unit: float  # a quarter of the scale's span
    clip: float  # largest length of an update
    middle: float  # the masked rating that is expected of nobody in particular
    mean: Array  # bias and factors of each item (n_items, 1 + a)
    covariance: Array  # of these, packed (n_items, (a + 1) (a + 2) / 2)
    weight: Array  # n_i^-gamma (n_items,)
    design: Array  # (n_items, j)
    prior: Array  # mean of (p_u, mask weights) (a + j,)
    precision: Array  # (a + j,)

    @classmethod
    def of(
        cls, update_shape: PrivateShape, broadcast: Broadcast, design: Array
    ) -> "PrivateReading":
        """Split a broadcast into its named parts."""
        numbers = update_shape.blocks["parameters"].split(broadcast.parameters)
        columns = update_shape.blocks["item_row"].split(broadcast.item_rows.astype(np.float64))
        a, j = int(numbers["n_active"][0]), update_shape.n_joint
        one = {name: float(numbers[name][0]) for name in ("tau", "unit", "clip", "middle")}
        return cls(
            update_shape=update_shape,
            stage=int(numbers["stage"][0]),
            n_active=a,
            **one,
            mean=columns["mean"][:, : 1 + a],
            covariance=columns["covariance"][:, : (a + 1) * (a + 2) // 2],
            weight=columns["weight"][:, 0],
            design=design[:, :j].astype(np.float64),
            prior=np.concatenate((np.zeros(a), numbers["joint_mean"])),
            precision=np.concatenate((np.ones(a), numbers["joint_precision"])),
        )


def asked(update_shape: PrivateShape, broadcast: Broadcast) -> Asked:
    """Return the release that a checked broadcast asks for."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    return Asked(STAGES[int(parts["stage"][0])], float(parts["clip"][0]))


def check_broadcast(update_shape: PrivateShape, broadcast: Broadcast) -> None:
    """Refuse a stage that is no release of the run, and numbers that cannot be computed with."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    columns = update_shape.blocks["item_row"].split(broadcast.item_rows)
    stage, n_active = float(parts["stage"][0]), float(parts["n_active"][0])
    require_valid_broadcast(
        stage in range(len(STAGES)),
        f"a release is one of {', '.join(STAGES)}; got number {stage:g}",
    )
    require_valid_broadcast(
        n_active in range(update_shape.rank),
        f"0 to {update_shape.rank - 1} factors are in use; got {n_active:g}",
    )
    names = ("tau", "unit", "clip", "joint_precision")
    positive = np.concatenate([*(parts[name] for name in names), columns["weight"][:, 0]])
    is_usual = bool(((positive > MIN_PRECISION) & (positive < MAX_PRECISION)).all())
    require_valid_broadcast(
        is_usual, "tau, unit, clip, precisions and weights are in (1e-30, 1e30)"
    )
    variances = columns["covariance"][:, _diagonal(update_shape.rank)]
    require_valid_broadcast(bool((variances >= 0).all()), "variances are not negative")


def _diagonal(rank: int) -> Array:
    """Places of the diagonal in a packed matrix. (rank,)."""
    rows = np.arange(rank)
    return np.asarray(rows * (rows + 3) // 2)
