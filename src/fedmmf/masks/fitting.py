"""Fits a mask per user from ratings and item features, for one user and for many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.errors import SettingsError
from fedmmf.masks.families import FAMILIES
from fedmmf.masks.feature_maps import MAX_JOINT, FeatureViews
from fedmmf.masks.indicator import privacy_indicator, rating_variances
from fedmmf.masks.models import MaskFamily
from fedmmf.masks.population import Population

BLOCK = 1 << 22  # ratings that are worked on at once, where nothing but memory asks for it


@dataclass(frozen=True)
class MaskPlan:
    """Parameters of the masks to fit.

    Args:
        kind: name of the family.
        strength: of the regularisation; None: the family's default; "auto": each user's choice.
        cross_fit: mask each rating by a model that did not see it.
        folds: of cross-fitting, of J out of fold, and of "auto".
        joint: leave all but what users have in common to the solver, if columns are few.
    """

    kind: str = "lr"
    strength: float | Literal["auto"] | None = None
    cross_fit: bool = False
    folds: int = 5
    joint: bool = False

    @classmethod
    def of(cls, settings: Any) -> "MaskPlan":
        """Make the plan that the settings of a run ask for."""
        return cls(
            settings.mask,
            settings.mask_strength,
            settings.cross_fit,
            settings.folds,
            settings.has_joint_mask,
        )

    @property
    def family(self) -> MaskFamily:
        """Mask family of that name."""
        return FAMILIES[self.kind]

    def views(self, content: Array, statistics: Array | None = None) -> FeatureViews:
        """Return the views of item features that these masks take.

        Args:
            content: public item features. (n_items, d)
            statistics: what masks see beside them; None: nothing. (n_items, d)
        """
        more = np.zeros((len(content), 0)) if statistics is None else statistics
        needs = self.family.needs_features
        return FeatureViews(np.asarray(content, np.float64), self.kind, needs, more)

    def strengths(self, shrinkage: float) -> tuple[float, ...]:
        """Strengths of regularisation to choose from, given the shrinkage of a population."""
        if self.strength == "auto":
            return self.family.strengths
        return (float(self.strength or self.family.default_strength or shrinkage),)

    def is_joint(self, n_features: int) -> bool:
        """Whether the solver estimates masks that see so many columns."""
        return self.joint and n_features < MAX_JOINT

    def check_features(self, features: Array) -> None:
        """Refuse a family that needs features where there are none."""
        if self.family.needs_features and features.shape[1] == 0:
            raise SettingsError(
                f"the mask {self.kind!r} needs item features and the data has none; "
                "give some, or use the mask 'mean'"
            )


def resolve_mask(settings: Any, *, has_features: bool) -> Any:
    """Replace the mask `auto` in the settings by one that the items' features allow."""
    if settings.mask != "auto":
        return settings
    return settings.changed(mask="lr" if has_features or settings.item_statistics else "mean")


class Runner(Protocol):
    """Executes the trainer and the applier of a family."""

    def train(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.train` for all users."""

    def apply(self, family: MaskFamily, indptr: Array, *arrays: Any) -> None:
        """Run `family.apply` for all users."""


class OneByOne:
    """Runs one user after the other, in numpy, as on a device."""

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
    population: Population  # which masks shrink towards
    theta: Array  # (n_users, n_parameters)
    strengths: Array  # (n_users,) of the regularisation, as chosen
    indptr: Array  # (n_users + 1,)
    ratings: Array  # (n,) on their own scale
    unit_fitted: Array  # (n,) f_u(i) with ratings mapped to [0, 1]; float32: there may be many
    unit_held_out: Array  # (n,) the same from models that did not see the rating's fold

    @classmethod
    def together(cls, parts: Sequence["FittedMasks"]) -> "FittedMasks":
        """Combine the models of several parties."""
        sizes = np.concatenate([np.diff(part.indptr) for part in parts])
        return cls(
            parts[0].plan,
            parts[0].scale,
            parts[0].population,
            np.concatenate([part.theta for part in parts]),
            np.concatenate([part.strengths for part in parts]),
            np.concatenate(([0], np.cumsum(sizes))),
            np.concatenate([part.ratings for part in parts]),
            np.concatenate([part.unit_fitted for part in parts]),
            np.concatenate([part.unit_held_out for part in parts]),
        )

    @property
    def family(self) -> MaskFamily:
        """Family of all these models, which share one kind."""
        return self.plan.family

    @property
    def unit_ratings(self) -> Array:
        """Ratings mapped to [0, 1]. (n,)."""
        return self.scale.to_unit(self.ratings.astype(np.float64))

    @cached_property
    def j_train(self) -> Array:
        """J on the ratings that the masks were trained on. (n_users,)."""
        return self._indicator(self.unit_fitted)

    @cached_property
    def j_out_of_fold(self) -> Array:
        """J on ratings that the models had not seen. (n_users,)."""
        return self._indicator(self.unit_held_out)

    @cached_property
    def variances(self) -> Array:
        """Variance of each user's ratings on [0, 1], to compare J with. (n_users,)."""
        parts = [rating_variances(unit, indptr) for _, unit, indptr in self._blocks()]
        return np.concatenate(parts)

    def _indicator(self, seen: Array) -> Array:
        """Privacy indicator J of each user. (n_users,)."""
        parts = [
            privacy_indicator(unit - seen[mine], indptr) for mine, unit, indptr in self._blocks()
        ]
        return np.concatenate(parts)

    def _blocks(self) -> Iterator[tuple[slice, Array, Array]]:
        """Yield slices of some users' ratings, the ratings mapped to [0, 1], and their indptr."""
        for some in RatedItems(self.indptr, self.ratings).blocks():
            unit = self.scale.to_unit(self.ratings[some.entries].astype(np.float64))
            yield some.entries, unit, some.indptr - some.indptr[0]

    @cached_property
    def masked_ratings(self) -> Array:
        """Masked ratings r - f on the rating scale; cross-fitted where the plan says so. (n,)."""
        seen = self.unit_held_out if self.plan.cross_fit else self.unit_fitted
        base = self.scale.min if self.family.is_centred else 0.0
        masked = np.empty(len(seen), np.float32)
        for begin in range(0, len(seen), BLOCK):
            here = slice(begin, begin + BLOCK)
            shown = base + self.scale.span * seen[here].astype(np.float64)
            masked[here] = self.ratings[here].astype(np.float64) - shown
        return masked

    def predict(self, lists: RatedItems, features: Array, runner: Runner) -> Array:
        """Predictions f_u(i) on the rating scale for the users' items. (n,)."""
        return apply_mask(self, lists, features, runner)


class Applicable(Protocol):
    """Masks that can be applied: a family, a scale and parameters."""

    @property
    def family(self) -> MaskFamily:
        """Family of the models to apply."""

    @property
    def scale(self) -> RatingScale:
        """Scale of the ratings that masks predict."""

    @property
    def population(self) -> Population:
        """Population towards which masks are shrunk."""

    @property
    def theta(self) -> Array:
        """Parameters of each user's mask. (n_users, n_parameters)."""


def apply_mask(masks: Applicable, lists: RatedItems, features: Array, runner: Runner) -> Array:
    """Apply masks: f_u(i) on the rating scale for the users' items. (n,)."""
    out = np.empty(len(lists.items))
    runner.apply(masks.family, lists.indptr, lists.items, features, masks.theta, out)
    return _on_scale(masks, out, mask_base(masks, features)[lists.items])


def apply_one_mask(
    masks: Applicable, user: int, features: Array, base: Array | None = None
) -> Array:
    """Apply one user's mask to every row of `features`, on the rating scale. (n,).

    Unlike `apply_mask` it copies no features, so that it can score whole catalogues. For many
    users, pass the result of `mask_base`, which is the same for all of them.
    """
    unit = masks.family.predict(features, masks.theta[user])
    return _on_scale(masks, unit, mask_base(masks, features) if base is None else base)


def mask_base(masks: Applicable, features: Array) -> Array:
    """Ratings of the default user, at which masks are centred, on the rating scale. (n,)."""
    if masks.family.is_centred:
        return masks.population.base(features, masks.scale)
    return np.zeros(len(features))


def _on_scale(masks: Applicable, unit: Array, base: Array) -> Array:
    """Scale predictions from a span of 1 to the span of the ratings. (n,)."""
    return np.asarray(base + masks.scale.span * unit, np.float32)


@dataclass(frozen=True, eq=False)
class MaskInput:
    """Training data of masks.

    Args:
        lists: the items of each user.
        ratings: of these items, on their own scale. (n,)
        scale: of the ratings.
        features: public item features; may have no columns for `none` and `mean`. (n_items, d)
        population: which masks shrink towards; None: nothing is known of it.
    """

    lists: RatedItems
    ratings: Array
    scale: RatingScale
    features: Array
    population: Population | None = None


def fit_masks(plan: MaskPlan, given: MaskInput, runner: Runner) -> FittedMasks:
    """Train a private model per user, on that user's ratings alone."""
    family, lists, features = plan.family, given.lists, given.features
    plan.check_features(features)
    population = given.population or Population.unknown(given.scale)
    strengths = np.array(plan.strengths(population.shrinkage))
    penalties = np.column_stack((strengths, np.full(len(strengths), population.shrinkage)))
    theta = np.zeros((lists.n_users, family.n_parameters(features.shape[1])))
    chosen = np.zeros(lists.n_users, np.int64)
    fitted, held_out = np.zeros((2, len(lists.items)), np.float32)
    base = np.zeros(len(features))
    if family.is_centred:
        base[:] = given.scale.to_unit(population.base(features, given.scale))
    targets = given.ratings.astype(np.float64)
    targets -= given.scale.min  # in place: of a hundred million ratings, copies are gigabytes
    targets /= given.scale.span
    _add(targets, -base, lists.items)
    inputs = (lists.items, features, targets, penalties, plan.folds)
    if not plan.is_joint(features.shape[1]):
        _try_on_one(plan, lists, features, targets, penalties[0])
        runner.train(family, lists.indptr, *inputs, theta, chosen, fitted, held_out)
        _require_finite(plan, theta, fitted, held_out)
    _add(fitted, base, lists.items)
    _add(held_out, base, lists.items)
    return FittedMasks(
        plan=plan,
        scale=given.scale,
        population=population,
        theta=theta,
        strengths=strengths[chosen],
        indptr=lists.indptr,
        ratings=given.ratings,
        unit_fitted=fitted,
        unit_held_out=held_out,
    )


def _try_on_one(
    plan: MaskPlan, lists: RatedItems, features: Array, targets: Array, penalty: Array
) -> None:
    """Refuse a family whose results have a wrong shape; numpy would spread some of them silently.

    Args:
        plan: names the family.
        lists: the first user with ratings is tried.
        features: of all items. (n_items, d)
        targets: of the users' ratings. (n,)
        penalty: strength and pull. (2,)
    """
    has_ratings = np.flatnonzero(np.diff(lists.indptr))
    if len(has_ratings) == 0:
        return
    own = slice(*lists.indptr[has_ratings[0] : has_ratings[0] + 2])
    x, y = features[lists.items[own]], targets[own]
    theta = plan.family.fit(x, y, *penalty)
    n_parameters = plan.family.n_parameters(features.shape[1])
    _require_shape(plan, "fit(x, y, strength, pull)", theta, (n_parameters,))
    _require_shape(plan, "predict(x, theta)", plan.family.predict(x, theta), (len(x),))


def _require_shape(plan: MaskPlan, call: str, found: Any, shape: tuple[int, ...]) -> None:
    if np.shape(found) != shape:
        raise SettingsError(
            f"the mask {plan.kind!r} must return an array of shape {shape} from {call}; got "
            f"{np.shape(found)}. `n_parameters` says how many parameters there are, and x has a "
            "row for each item. Mend the mask, or use another one"
        )


def _require_finite(plan: MaskPlan, theta: Array, *predicted: Array) -> None:
    """Refuse masks whose parameters or predictions are not all finite."""
    for name, values in (("fit", theta), *(("predict", some) for some in predicted)):
        for begin in range(0, len(values), BLOCK):
            here = values[begin : begin + BLOCK]
            if not np.isfinite(here).all():
                bad = here[~np.isfinite(here)].flat[0]
                raise SettingsError(
                    f"the mask {plan.kind!r} must return finite numbers from {name}; got {bad} for "
                    "some user. Mend the mask, or use another one"
                )


def _add(values: Array, base: Array, items: Array) -> None:
    """Add base[items] to the values in place, block by block."""
    for begin in range(0, len(values), BLOCK):
        here = slice(begin, begin + BLOCK)
        values[here] += base[items[here]].astype(values.dtype)
