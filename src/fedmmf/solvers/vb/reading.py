"""What a party works out of a publication, once for all its users."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedmmf.arrays import Array
from fedmmf.solvers.contract import Public, require_published
from fedmmf.solvers.vb.form import VbForm, unpack


def prior_mean(k: int) -> Array:
    """m: the pinned coordinate is 1, the others 0. (k,)."""
    mean = np.zeros(k)
    mean[0] = 1.0
    return mean


@dataclass(frozen=True, eq=False)
class Spread:
    """Posterior covariances of all items, which depend on their numbers of raters alone.

    T_n = (n A + B)^-1 with A the curvature that one rating adds and B what is there without any.
    One basis serves all n: V^T B V = 1 and V^T A V = diag(l) give T_n = V diag(1 / (1 + n l)) V^T.
    """

    basis: Array  # V (k, k); with as many rows of zeros below as there are known columns
    spectrum: Array  # l (k,)

    @classmethod
    def of(cls, curvature: Array, base: Array) -> "Spread":
        """Diagonalise A and B together."""
        half = np.linalg.inv(np.linalg.cholesky(base))  # half B half^T = 1
        spectrum, turn = np.linalg.eigh(half @ curvature @ half.T)
        return cls(half.T @ turn, np.maximum(spectrum, 0.0))

    def shrinkage(self, n_raters: Array) -> Array:
        """1 / (1 + n l). (n_items, k)."""
        return np.asarray(1.0 / (1.0 + np.multiply.outer(n_raters, self.spectrum)))

    def matrix(self, shrinkage: Array) -> Array:
        """V diag(shrinkage) V^T, or a sum of them from a sum of shrinkages. (k, k)."""
        return np.asarray((self.basis * shrinkage) @ self.basis.T)

    def apply(self, n_raters: Array, vectors: Array) -> Array:
        """T_n v of each item. (n_items, k)."""
        return np.asarray(((vectors @ self.basis) * self.shrinkage(n_raters)) @ self.basis.T)

    def beside(self, n_known: int) -> "Spread":
        """The same with columns beside q_i that are known."""
        below = np.zeros((n_known, self.basis.shape[1]))
        return Spread(np.vstack((self.basis, below)), self.spectrum)

    def variances(self, n_raters: Array) -> Array:
        """Diagonals of T_n. (n_items, k)."""
        return np.asarray(self.shrinkage(n_raters) @ np.square(self.basis).T)


@dataclass(frozen=True, eq=False)
class Unrated:
    """Sums over the whole catalogue, where every unrated item counts a little (Steck 2010)."""

    weight: float  # of an unrated item beside a rated one
    value: float  # the rating that it counts as
    design: Array  # (n_items, m)
    moment: Array  # sum of E[q q^T] (k + j, k + j)
    line: Array  # sum of E[q] x^T (k + j, m)
    gram: Array  # sum of x x^T (m, m)


@dataclass(frozen=True, eq=False)
class VbReading:
    """A publication in parts.

    Where masks belong to p_u, so do their weights: of k + j entries of p_u, the last j are the
    weights of the columns of the design, which stand beside E[q_i] and are known.
    """

    form: VbForm
    tau: float
    user_precision: Array  # a (k + j,)
    user_middle: Array  # prior mean of p_u of whom nothing is known (k + j,)
    spread: Spread
    mean: Array  # E[q_i], and the design (n_items, k + j)
    n_raters: Array  # (n_items,)
    user_weights: Array  # of what is known of a user, in the prior mean of p_u (e, k + j)
    profile_mean: Array  # of all who have one; those without are taken for it (d,)
    is_look: bool  # rows are to be p_u instead of gradients
    cuts: Array  # between the levels of ordered ratings (n_levels - 1 or 0,)
    unrated: Unrated | None

    @classmethod
    def of(cls, form: VbForm, public: Public, design: Array) -> "VbReading":
        """Take a publication apart."""
        k = form.rank
        numbers = form.blocks["parameters"].split(public.parameters)
        columns = form.blocks["published"].split(public.item_rows.astype(np.float64))
        spread = Spread.of(unpack(numbers["curvature"], k), unpack(numbers["base"], k))
        spread, n_raters = spread.beside(form.n_joint), columns["n_raters"][:, 0]
        mean = np.hstack((columns["mean"], design[:, : form.n_joint]))
        weights = numbers["user_weights"].reshape(-1, k)
        unrated = None
        if form.ranks:
            weight, value = numbers["unrated"].tolist()
            moment = spread.matrix(spread.shrinkage(n_raters).sum(axis=0))
            sums = (moment + mean.T @ mean, mean.T @ design, design.T @ design)
            unrated = Unrated(weight, value, design, *sums)
        return cls(
            form=form,
            tau=float(numbers["tau"][0]),
            user_precision=np.concatenate((numbers["user_precision"], numbers["joint_precision"])),
            user_middle=np.concatenate((prior_mean(k), numbers["joint_mean"])),
            spread=spread,
            mean=mean,
            n_raters=n_raters,
            user_weights=np.hstack((weights, np.zeros((len(weights), form.n_joint)))),
            profile_mean=numbers["profile_mean"],
            is_look=bool(numbers["look"].any()),
            cuts=numbers["cuts"],
            unrated=unrated,
        )

    @cached_property
    def shrinkage(self) -> Array:
        """Of every item. (n_items, k)."""
        return self.spread.shrinkage(self.n_raters)


def check_publication(form: VbForm, public: Public) -> None:
    """Refuse numbers that a party cannot compute with."""
    parts = form.blocks["parameters"].split(public.parameters)
    names = ("tau", "user_precision", "item_precision", "joint_precision")
    positive = np.concatenate([parts[name] for name in names])
    is_usual = bool(((positive > 1e-30) & (positive < 1e30)).all())
    require_published(is_usual, "tau and precisions are in (1e-30, 1e30)")
    for name, least in (("curvature", -1e-6), ("base", 1e-30)):
        matrix = unpack(parts[name], form.rank)
        values = np.linalg.eigvalsh(matrix)
        usual = bool(values[0] > least * max(1.0, values[-1]) and values[-1] < 1e30)
        require_published(usual, f"the {name} is positive")
    n_raters = form.blocks["published"].split(public.item_rows)["n_raters"]
    require_published(bool((n_raters >= 0).all()), "numbers of raters are not negative")
    is_switch = bool(np.isin(parts["look"], (0.0, 1.0)).all())
    require_published(is_switch, "a round looks at who rated what, or it does not")
    is_ordered = bool((np.diff(parts["cuts"]) > 0).all())
    require_published(is_ordered, "cut points increase")
    weight = parts["unrated"][:1]
    is_share = bool(((weight > 0) & (weight < 1)).all())
    require_published(is_share, "an unrated item weighs less than a rated one")
