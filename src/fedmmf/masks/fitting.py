"""Ratings and item features in, a fitted mask per party out; for one party and for a crowd."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError
from fedmmf.masks.indicator import privacy_indicator
from fedmmf.masks.models import FAMILIES, MaskFamily
from fedmmf.scale import RatingScale


class Runner(Protocol):
    """How the trainer and the applier of a family are executed."""

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.train`."""

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.apply`."""


class Plain:
    """One party after the other, in numpy: what a device runs."""

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.train` as it is."""
        family.train(indptr, *arrays)

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.apply` as it is."""
        family.apply(indptr, *arrays)


@dataclass(frozen=True, eq=False)
class FittedMasks:
    """The private models of some parties, with what they predict for the ratings they saw."""

    family: MaskFamily
    scale: RatingScale
    theta: Array  # (n_users, n_parameters)
    strengths: Array  # (n_users,)
    indptr: Array  # (n_users + 1,)
    unit_ratings: Array  # (n,) ratings mapped to [0, 1]
    unit_fitted: Array  # (n,) f_u(i) on the [0, 1] scale
    unit_held_out: Array  # (n,) the same from models that did not see the rating's fold

    @classmethod
    def together(cls, parts: Sequence["FittedMasks"]) -> "FittedMasks":
        """The models of several parties as one."""
        first = parts[0]
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        return cls(
            first.family,
            first.scale,
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.strengths for part in parts]),
            indptr,
            np.concatenate([part.unit_ratings for part in parts]),
            np.concatenate([part.unit_fitted for part in parts]),
            np.concatenate([part.unit_held_out for part in parts]),
        )

    @cached_property
    def j_train(self) -> Array:
        """J on the ratings that the masks were trained on. (n_users,)."""
        return privacy_indicator(self.unit_ratings - self.unit_fitted, self.indptr)

    @cached_property
    def j_out_of_fold(self) -> Array:
        """J on ratings that the models had not seen. (n_users,)."""
        return privacy_indicator(self.unit_ratings - self.unit_held_out, self.indptr)

    def masked_ratings(self, cross_fit: bool) -> Array:
        """R - f on the rating scale; `cross_fit` uses models that had not seen the rating. (n,)."""
        unit = self.unit_ratings - (self.unit_held_out if cross_fit else self.unit_fitted)
        offset = 0.0 if self.family.is_centred else self.scale.min
        return np.asarray(offset + self.scale.span * unit, np.float32)

    def predict(self, indptr: Array, items: Array, features: Array, runner: Runner) -> Array:
        """f_u(i) on the rating scale for pairs ordered by user. (n,)."""
        out = np.empty(len(items))
        runner.apply(self.family, indptr, items, features, self.theta, out)
        base = self.scale.midpoint if self.family.is_centred else 0.0
        return np.asarray(base + self.scale.span * out, np.float32)


def fit_masks(
    kind: str,
    indptr: Array,
    items: Array,
    ratings: Array,
    features: Array,
    scale: RatingScale,
    *,
    strength: float | Literal["auto"] | None,
    folds: int,
    streams: list[np.random.Generator],
    runner: Runner,
) -> FittedMasks:
    """Train a private model per user, on that user's ratings alone.

    Args:
        kind: name of the family: none, mean, lr, fm or nn.
        indptr: where each user's ratings begin. (n_users + 1,)
        items: item codes, rows of `features`. (n,)
        ratings: on their own scale. (n,)
        features: public item features; may have no columns for `none` and `mean`. (n_items, d)
        scale: of the ratings.
        strength: of the regularisation; None: the family's default; "auto": each party's choice.
        folds: of the out-of-fold predictions and of "auto".
        streams: one random stream per user, for families that start at random; else empty.
        runner: how to execute the training.
    """
    family = FAMILIES[kind]
    n_users, n = len(indptr) - 1, len(items)
    _check_features(family, features)
    candidates = _candidates(family, strength)
    theta = np.zeros((n_users, family.n_parameters(features.shape[1])))
    chosen = np.zeros(n_users, np.int64)
    fitted, held_out = np.zeros(n), np.zeros(n)
    unit_ratings = scale.to_unit(ratings.astype(np.float64))
    targets = unit_ratings - (0.5 if family.is_centred else 0.0)
    starts = _starts(family, streams, n_users, features.shape[1])
    arrays = (items, features, targets, candidates, folds, starts, theta, chosen, fitted, held_out)
    runner.train(family, indptr, *arrays)
    offset = unit_ratings - targets
    return FittedMasks(
        family=family,
        scale=scale,
        theta=theta,
        strengths=candidates[chosen],
        indptr=indptr,
        unit_ratings=unit_ratings,
        unit_fitted=fitted + offset,
        unit_held_out=held_out + offset,
    )


def needs_streams(kind: str) -> bool:
    """Whether the family starts from random numbers."""
    return len(FAMILIES[kind].start(np.random.default_rng(0), 1)) > 0


def _candidates(family: MaskFamily, strength: float | Literal["auto"] | None) -> Array:
    if strength == "auto":
        return np.array(family.strengths)
    return np.array([family.default_strength if strength is None else float(strength)])


def _starts(
    family: MaskFamily, streams: list[np.random.Generator], n_users: int, n_features: int
) -> Array:
    if not streams:
        return np.zeros((n_users, 0))
    return np.stack([family.start(stream, n_features) for stream in streams])


def _check_features(family: MaskFamily, features: Array) -> None:
    if family.needs_features and features.shape[1] == 0:
        raise SettingsError(
            f"the mask {family.name!r} needs item features and the data has none; "
            "give some (--features items.csv) or use --mask mean"
        )
