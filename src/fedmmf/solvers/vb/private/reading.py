"""A broadcast of `vb` under noise as a party reads it, computed once for all its users."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import Broadcast, RequestedRelease, require_valid_broadcast
from fedmmf.solvers.vb.private.plan import STAGES
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.reading import MAX_PRECISION, MIN_PRECISION
from fedmmf.solvers.vb.shapes import unpack


@dataclass(frozen=True, eq=False)
class ItemEvidence:
    """What items say about p_u and mask weights: a precision, and that times the mean."""

    precision: Array  # (a + j, a + j)
    first: Array  # (a + j,)


@dataclass(frozen=True, eq=False)
class PrivateReading:
    """The parts of a broadcast, by name; `a` factors are in use, masks have `j` columns."""

    update_shape: PrivateShape
    stage: int  # index into `plan.STAGES`
    n_active: int
    tau: float
    unit: float  # a quarter of the scale's span; in lists, the highest rating less the unrated one
    clip: float  # largest length of an update
    middle: float  # the masked rating that is expected of nobody in particular
    unrated_weight: float  # of an unrated item beside a rated one; 0: only ratings count
    unrated_value: float  # the masked rating that it counts as
    usual_weight: float  # of a user, by which the totals of lists are weighted
    mean: Array  # bias and factors of each item (n_items, 1 + a)
    covariance: Array  # of these, packed (n_items, (a + 1) (a + 2) / 2)
    weight: Array  # n_i^-gamma (n_items,)
    design: Array  # in lists, divided by the weights (n_items, j)
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
        known = design[:, :j].astype(np.float64)
        if update_shape.ranks:
            known /= columns["weight"]
        names = ("middle", "unrated_weight", "unrated_value", "usual_weight")
        one = {name: float(numbers[name][0]) for name in ("tau", "unit", "clip")}
        one |= {name: float(numbers.get(name, np.zeros(1))[0]) for name in names}
        return cls(
            update_shape=update_shape,
            stage=int(numbers["stage"][0]),
            n_active=a,
            **one,
            mean=columns["mean"][:, : 1 + a],
            covariance=columns["covariance"][:, : (a + 1) * (a + 2) // 2],
            weight=columns["weight"][:, 0],
            design=known,
            prior=np.concatenate((np.zeros(a), numbers["joint_mean"])),
            precision=np.concatenate((np.ones(a), numbers["joint_precision"])),
        )

    @cached_property
    def unrated(self) -> ItemEvidence:
        """What the whole catalogue would say, were all of it unrated; 0 where that is no news."""
        size = self.n_active + self.update_shape.n_joint
        if not self.unrated_weight:
            return ItemEvidence(np.zeros((size, size)), np.zeros(size))
        told = np.full(len(self.mean), self.unrated_value)
        whole = self.evidence(slice(None), told)
        weight = self.unrated_weight
        return ItemEvidence(weight * whole.precision, weight * whole.first)

    def columns(self, items: Array | slice) -> Array:
        """Factors in use, and public features. (n, a + j)."""
        return np.hstack((self.mean[items, 1:], self.design[items]))

    def evidence(self, items: Array | slice, ratings: Array, part: float = 1.0) -> ItemEvidence:
        """What some items say; items with uncertain biases weigh less.

        Args:
            items: codes. (n,)
            ratings: of these, masked; all together less, where `part` is less than 1. (n,)
            part: of everything but the ratings.
        """
        a, mean, columns = self.n_active, self.mean[items], self.columns(items)
        spread = unpack(self.covariance[items], 1 + a)  # (n, 1 + a, 1 + a)
        weight = 1.0 / (self.tau + spread[:, 0, 0])
        precision = part * ((weight[:, np.newaxis] * columns).T @ columns)
        precision[:a, :a] += part * np.einsum("n,nij->ij", weight, spread[:, 1:, 1:])
        first = (weight * (ratings - part * mean[:, 0])) @ columns
        first[:a] -= part * (weight @ spread[:, 0, 1:])
        return ItemEvidence(precision, first)


def requested_release(update_shape: PrivateShape, broadcast: Broadcast) -> RequestedRelease:
    """Return the release that a checked broadcast asks for."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    return RequestedRelease(STAGES[int(parts["stage"][0])], float(parts["clip"][0]))


def check_broadcast(update_shape: PrivateShape, broadcast: Broadcast) -> None:
    """Refuse a stage that is no release of the run, and numbers that cannot be computed with."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    columns = update_shape.blocks["item_row"].split(broadcast.item_rows)
    stage, n_active = float(parts["stage"][0]), float(parts["n_active"][0])
    known = [n for n, name in enumerate(STAGES) if name != "means" or not update_shape.ranks]
    require_valid_broadcast(
        stage in known,
        f"a release is one of {', '.join(STAGES[n] for n in known)}; got number {stage:g}",
    )
    require_valid_broadcast(
        n_active in range(update_shape.rank),
        f"0 to {update_shape.rank - 1} factors are in use; got {n_active:g}",
    )
    names = ("tau", "unit", "clip", "joint_precision", *["usual_weight"] * update_shape.ranks)
    positive = np.concatenate([*(parts[name] for name in names), columns["weight"][:, 0]])
    is_usual = bool(((positive > MIN_PRECISION) & (positive < MAX_PRECISION)).all())
    require_valid_broadcast(is_usual, f"{', '.join(names)} and weights are in (1e-30, 1e30)")
    variances = columns["covariance"][:, _diagonal(update_shape.rank)]
    require_valid_broadcast(bool((variances >= 0).all()), "variances are not negative")
    if update_shape.ranks:
        weight = float(parts["unrated_weight"][0])
        require_valid_broadcast(0 < weight < 1, "an unrated item weighs less than a rated one")


def _diagonal(rank: int) -> Array:
    """Places of the diagonal in a packed matrix. (rank,)."""
    rows = np.arange(rank)
    return np.asarray(rows * (rows + 3) // 2)
