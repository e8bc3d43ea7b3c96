"""Ratings and item features in, a fitted mask per user out; for one user and for a crowd."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError
from fedmmf.lists import UserLists
from fedmmf.masks.families import FAMILIES
from fedmmf.masks.indicator import privacy_indicator
from fedmmf.masks.models import MaskFamily
from fedmmf.scale import RatingScale


@dataclass(frozen=True)
class MaskPlan:
    """What masks are fitted.

    Args:
        kind: name of the family.
        strength: of the regularisation; None: the family's default; "auto": each user's choice.
        cross_fit: mask each rating by a model that did not see it.
        folds: of cross-fitting, of J out of fold, and of "auto".
    """

    kind: str = "lr"
    strength: float | Literal["auto"] | None = None
    cross_fit: bool = False
    folds: int = 5

    @property
    def family(self) -> MaskFamily:
        """The family of that name."""
        return FAMILIES[self.kind]

    @property
    def strengths(self) -> tuple[float, ...]:
        """What the regularisation may be."""
        if self.strength == "auto":
            return self.family.strengths
        return (float(self.strength or self.family.default_strength),)

    @property
    def starts_at_random(self) -> bool:
        """Whether the family starts from random numbers."""
        return len(self.family.start(np.random.default_rng(0), 1)) > 0

    def check_features(self, features: Array) -> None:
        """Refuse a family that needs features where there are none."""
        if self.family.needs_features and features.shape[1] == 0:
            raise SettingsError(
                f"the mask {self.kind!r} needs item features and the data has none; "
                "give some, or use the mask 'mean'"
            )


class Runner(Protocol):
    """How the trainer and the applier of a family are executed."""

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.train`."""

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.apply`."""


class OneByOne:
    """One user after the other, in numpy: what a device runs."""

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.train` as it is."""
        family.train(indptr, *arrays)

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.apply` as it is."""
        family.apply(indptr, *arrays)


@dataclass(frozen=True, eq=False)
class FittedMasks:
    """The private models of some users, with what they predict for the ratings they saw."""

    plan: MaskPlan
    scale: RatingScale
    theta: Array  # (n_users, n_parameters)
    strengths: Array  # (n_users,) of the regularisation, as chosen
    indptr: Array  # (n_users + 1,)
    unit_ratings: Array  # (n,) ratings mapped to [0, 1]
    unit_fitted: Array  # (n,) f_u(i) on the [0, 1] scale
    unit_held_out: Array  # (n,) the same from models that did not see the rating's fold

    @classmethod
    def together(cls, parts: Sequence["FittedMasks"]) -> "FittedMasks":
        """The models of several parties as one."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        return cls(
            parts[0].plan,
            parts[0].scale,
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.strengths for part in parts]),
            np.concatenate(([0], np.cumsum(sizes))),
            np.concatenate([part.unit_ratings for part in parts]),
            np.concatenate([part.unit_fitted for part in parts]),
            np.concatenate([part.unit_held_out for part in parts]),
        )

    @property
    def family(self) -> MaskFamily:
        """What kind of models they are."""
        return self.plan.family

    @cached_property
    def j_train(self) -> Array:
        """J on the ratings that the masks were trained on. (n_users,)."""
        return privacy_indicator(self.unit_ratings - self.unit_fitted, self.indptr)

    @cached_property
    def j_out_of_fold(self) -> Array:
        """J on ratings that the models had not seen. (n_users,)."""
        return privacy_indicator(self.unit_ratings - self.unit_held_out, self.indptr)

    @cached_property
    def masked_ratings(self) -> Array:
        """R - f on the rating scale; cross-fitted where the plan says so. (n,)."""
        seen = self.unit_held_out if self.plan.cross_fit else self.unit_fitted
        offset = 0.0 if self.family.is_centred else self.scale.min
        return np.asarray(offset + self.scale.span * (self.unit_ratings - seen), np.float32)

    def predict(self, lists: UserLists, features: Array, runner: Runner) -> Array:
        """f_u(i) on the rating scale for the users' items. (n,)."""
        return apply_mask(self, lists, features, runner)


class Applicable(Protocol):
    """Masks that can be applied: a family, a scale and parameters."""

    @property
    def family(self) -> MaskFamily:
        """What kind of models they are."""

    @property
    def scale(self) -> RatingScale:
        """Of the ratings."""

    @property
    def theta(self) -> Array:
        """(n_users, n_parameters)."""


def apply_mask(masks: Applicable, lists: UserLists, features: Array, runner: Runner) -> Array:
    """f_u(i) on the rating scale for the users' items. (n,)."""
    out = np.empty(len(lists.items))
    runner.apply(masks.family, lists.indptr, lists.items, features, masks.theta, out)
    return _on_scale(masks, out)


def apply_one_mask(masks: Applicable, user: int, features: Array) -> Array:
    """f_u(i) on the rating scale for one user and every row of `features`. (n,).

    Unlike `apply_mask` it copies no features, so that whole catalogues can be gone through.
    """
    return _on_scale(masks, masks.family.predict(features, masks.theta[user]))


def _on_scale(masks: Applicable, unit: Array) -> Array:
    """What masks predict, from a span of 1 to the span of the ratings."""
    base = masks.scale.midpoint if masks.family.is_centred else 0.0
    return np.asarray(base + masks.scale.span * unit, np.float32)


@dataclass(frozen=True, eq=False)
class MaskInput:
    """What masks are fitted on.

    Args:
        lists: the items of each user.
        ratings: of these items, on their own scale. (n,)
        scale: of the ratings.
        features: public item features; may have no columns for `none` and `mean`. (n_items, d)
        streams: one random stream per user, for families that start at random; else empty.
    """

    lists: UserLists
    ratings: Array
    scale: RatingScale
    features: Array
    streams: Sequence[np.random.Generator] = ()

    def starts(self, family: MaskFamily) -> Array:
        """Where each user's training starts. (n_users, n_parameters or 0)."""
        if not self.streams:
            return np.zeros((self.lists.n_users, 0))
        n_features = self.features.shape[1]
        return np.stack([family.start(stream, n_features) for stream in self.streams])


def fit_masks(plan: MaskPlan, given: MaskInput, runner: Runner) -> FittedMasks:
    """Train a private model per user, on that user's ratings alone."""
    family, lists, features = plan.family, given.lists, given.features
    plan.check_features(features)
    candidates = np.array(plan.strengths)
    theta = np.zeros((lists.n_users, family.n_parameters(features.shape[1])))
    chosen = np.zeros(lists.n_users, np.int64)
    fitted, held_out = np.zeros(len(lists.items)), np.zeros(len(lists.items))
    unit_ratings = given.scale.to_unit(given.ratings.astype(np.float64))
    targets = unit_ratings - (0.5 if family.is_centred else 0.0)
    inputs = (lists.items, features, targets, candidates, plan.folds, given.starts(family))
    runner.train(family, lists.indptr, *inputs, theta, chosen, fitted, held_out)
    offset = unit_ratings - targets
    return FittedMasks(
        plan=plan,
        scale=given.scale,
        theta=theta,
        strengths=candidates[chosen],
        indptr=lists.indptr,
        unit_ratings=unit_ratings,
        unit_fitted=fitted + offset,
        unit_held_out=held_out + offset,
    )
