"""A broadcast of `vb` as a party reads it, computed once for all its users."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedmmf.arrays import Array, doubles, space
from fedmmf.solvers.contract import Broadcast, require_valid_broadcast
from fedmmf.solvers.vb.newcomers import NewcomerPrior
from fedmmf.solvers.vb.shapes import VbShape, unpack

MIN_PRECISION, MAX_PRECISION = 1e-30, 1e30  # variances and precisions that a party computes with


def prior_mean(k: int) -> Array:
    """Prior mean m: the pinned coordinate is 1, the others 0. (k,)."""
    mean = np.zeros(k)
    mean[0] = 1.0
    return mean


@dataclass(frozen=True, eq=False)
class Spread:
    """Posterior covariances of all items, which depend only on their numbers of raters.

    T_n = (n A + B)^-1 with A the curvature that one rating adds and B what is there without any.
    One basis serves all n: V^T B V = 1 and V^T A V = diag(l) give T_n = V diag(1 / (1 + n l)) V^T.
    """

    basis: Array  # V (k, k); with as many rows of zeros below as there are known columns
    spectrum: Array  # l (k,)

    @classmethod
    def of(cls, curvature: Array, base: Array, linalg: Any = np.linalg) -> "Spread":
        """Diagonalise A and B together."""
        half = linalg.inv(linalg.cholesky(base))  # half B half^T = 1
        spectrum, turn = linalg.eigh(half @ curvature @ half.T)
        return cls(half.T @ turn, spectrum.clip(0.0))

    def shrinkage(self, n_raters: Array) -> Array:
        """Shrinkage factors 1 / (1 + n l). (n_items, k)."""
        shrunk: Array = 1.0 / (1.0 + n_raters[:, np.newaxis] * self.spectrum)
        return shrunk

    def matrix(self, shrinkage: Array) -> Array:
        """V diag(shrinkage) V^T, or a sum of them from a sum of shrinkages. (k, k)."""
        matrix: Array = (self.basis * shrinkage) @ self.basis.T
        return matrix

    def apply(self, n_raters: Array, vectors: Array) -> Array:
        """Products T_n v for each item. (n_items, k)."""
        applied: Array = ((vectors @ self.basis) * self.shrinkage(n_raters)) @ self.basis.T
        return applied

    def beside(self, n_known: int) -> "Spread":
        """Return the same covariances with known columns beside q_i."""
        xp = space(self.basis)
        below = n_known * [xp.zeros_like(self.basis[:1])]
        return Spread(xp.vstack((self.basis, *below)), self.spectrum)

    def variances(self, n_raters: Array) -> Array:
        """Diagonals of T_n. (n_items, k)."""
        variances: Array = self.shrinkage(n_raters) @ (self.basis * self.basis).T
        return variances


@dataclass(frozen=True, eq=False)
class Unrated:
    """Sums over the whole catalogue, where every unrated item has a small weight (Steck 2010)."""

    weight: float  # of an unrated item beside a rated one
    value: float  # the rating that it counts as
    design: Array  # (n_items, m)
    moment: Array  # sum of E[q q^T] (k + j, k + j)
    line: Array  # sum of E[q] x^T (k + j, m)
    gram: Array  # sum of x x^T (m, m)

    @classmethod
    def of(
        cls, numbers: list[float], mean: Array, n_raters: Array, spread: Spread, design: Array
    ) -> "Unrated | None":
        """Compute the sums from weight and value; None where unrated items do not count."""
        if not numbers:
            return None
        mean, (weight, value) = doubles(mean), numbers
        moment = spread.matrix(spread.shrinkage(n_raters).sum(axis=0)) + mean.T @ mean
        return cls(weight, value, design, moment, mean.T @ design, design.T @ design)


@dataclass(frozen=True, eq=False)
class VbReading:
    """The parts of a broadcast, by name.

    Where masks belong to p_u, so do their weights: of k + j entries of p_u, the last j are the
    weights of the columns of the design, which stand beside E[q_i] and are known.
    """

    update_shape: VbShape
    tau: Array  # ()
    user_precision: Array  # a (k + j,)
    user_middle: Array  # prior mean of p_u of whom nothing is known (k + j,)
    spread: Spread
    mean: Array  # E[q_i], and the design (n_items, k + j)
    n_raters: Array  # (n_items,)
    user_weights: Array  # of what is known of a user, in the prior mean of p_u (e, k + j)
    profile_mean: Array  # of all who have one; those without are taken for it (d,)
    is_membership_round: bool  # rows are to be p_u instead of gradients
    cuts: Array  # between the levels of ordered ratings (n_levels - 1 or 0,)
    unrated: Unrated | None
    newcomers: NewcomerPrior | None = None  # of users who had no part in any round

    @classmethod
    def of(cls, update_shape: VbShape, broadcast: Broadcast, design: Array) -> "VbReading":
        """Split a broadcast into its named parts."""
        numbers = update_shape.blocks["parameters"].split(broadcast.parameters)
        columns = update_shape.blocks["item_row"].split(broadcast.item_rows.astype(np.float64))
        matrices = (unpack(numbers[name], update_shape.rank) for name in ("curvature", "base"))
        numbers["tau"] = numbers["tau"][0]
        rows = (columns["mean"], columns["n_raters"][:, 0])
        found = cls.made(update_shape, numbers, rows, design, Spread.of(*matrices))
        if broadcast.newcomers is None:
            return found
        return replace(found, newcomers=NewcomerPrior.of(update_shape, broadcast.newcomers))

    @classmethod
    def made(
        cls,
        update_shape: VbShape,
        numbers: Mapping[str, Array],
        rows: tuple[Array, Array],
        design: Array,
        spread: Spread,
    ) -> "VbReading":
        """Assemble a reading from the parts of a broadcast, where their arrays are.

        Args:
            update_shape: of the run.
            numbers: parameters by name.
            rows: E[q_i] and numbers of raters. (n_items, k), (n_items,)
            design: of the same items. (n_items, m)
            spread: of these items.
        """
        (mean, n_raters), xp = rows, space(rows[0])
        spread = spread.beside(update_shape.n_joint)
        weights = numbers["user_weights"].reshape(-1, update_shape.rank)
        if update_shape.n_joint:
            known = xp.asarray(design[:, : update_shape.n_joint], dtype=mean.dtype)
            mean = xp.hstack((mean, known))
            none = xp.zeros_like(weights[:, :1] * numbers["joint_mean"])
            weights = xp.hstack((weights, none))
        middle = xp.zeros_like(numbers["mean_user"])
        middle[:1] = 1.0  # not [0]: torch would copy a number from the host
        return cls(
            update_shape=update_shape,
            tau=numbers["tau"],
            user_precision=xp.hstack((numbers["user_precision"], numbers["joint_precision"])),
            user_middle=xp.hstack((middle, numbers["joint_mean"])),
            spread=spread,
            mean=mean,
            n_raters=n_raters,
            user_weights=weights,
            profile_mean=numbers["profile_mean"],
            is_membership_round=bool(numbers["membership"].any()),
            cuts=numbers["cuts"],
            unrated=Unrated.of(numbers["unrated"].tolist(), mean, n_raters, spread, design),
        )

    @cached_property
    def shrinkage(self) -> Array:
        """Shrinkage of the posterior covariance of every item. (n_items, k)."""
        return self.spread.shrinkage(self.n_raters)


def check_broadcast(update_shape: VbShape, broadcast: Broadcast) -> None:
    """Refuse numbers that a party cannot compute with."""
    parts = update_shape.blocks["parameters"].split(broadcast.parameters)
    names = ("tau", "user_precision", "item_precision", "joint_precision")
    positive = np.concatenate([parts[name] for name in names])
    is_usual = bool(((positive > MIN_PRECISION) & (positive < MAX_PRECISION)).all())
    require_valid_broadcast(is_usual, "tau and precisions are in (1e-30, 1e30)")
    for name, least in (("curvature", -1e-6), ("base", 1e-30)):
        matrix = unpack(parts[name], update_shape.rank)
        values = np.linalg.eigvalsh(matrix)
        usual = bool(values[0] > least * max(1.0, values[-1]) and values[-1] < 1e30)
        require_valid_broadcast(usual, f"the {name} is positive")
    n_raters = update_shape.blocks["item_row"].split(broadcast.item_rows)["n_raters"]
    require_valid_broadcast(bool((n_raters >= 0).all()), "numbers of raters are not negative")
    is_switch = bool(np.isin(parts["membership"], (0.0, 1.0)).all())
    require_valid_broadcast(is_switch, "a round asks who rated what, or it does not")
    is_ordered = bool((np.diff(parts["cuts"]) > 0).all())
    require_valid_broadcast(is_ordered, "cut points increase")
    weight = parts["unrated"][:1]
    is_share = bool(((weight > 0) & (weight < 1)).all())
    require_valid_broadcast(is_share, "an unrated item weighs less than a rated one")
