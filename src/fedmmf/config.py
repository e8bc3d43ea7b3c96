"""Settings: frozen, validated, unknown keys refused, stored with every result.

They are flat for whoever uses them, and each belongs to one component, whose class gives its fields
and its title. Names of masks, solvers, ways to sum and engines are not listed here: they are looked
up in registries, to which other packages add.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedmmf.errors import SettingsError
from fedmmf.mistakes import either, explained
from fedmmf.registry import Registry, imported

Step = Literal["sum", "mean", "adam"]
Sharing = Literal["strict", "adaptive", "plain"]
Grouping = Literal["indicator", "audit"]
Noise = Literal["local", "distributed"]
ImplicitPrior = Literal["none", "items", "users", "both"]
Objective = Literal["rating", "ranking"]
MaskFit = Literal["auto", "alone", "joint"]
Likelihood = Literal["gaussian", "ordinal"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

AUTO = "auto"  # a mask that is chosen when the items are known

# Import paths: a solver or an engine may want settings, which must not need them to be loaded.
REGISTERED = {
    "mask": "fedmmf.masks:FAMILIES",
    "aggregation": "fedmmf.sums:SUMS",
    "solver": "fedmmf.solvers:SOLVERS",
    "engine": "fedmmf.engines:ENGINES",
}
_CHOSEN_BY_SHARING = ("plain", "adaptive")  # ways to sum that `sharing` asks for by itself
_SIGNED = ("secure", "dp")  # ways to sum whose parties can sign
_JOINED = (AUTO, "mean", "lr", "fm", "nn")  # masks that can be estimated with the factors
_DP_ROUNDS, _DP_HELD_OUT = 30, 0.0  # each round and each sum without noise would cost privacy


def names_for(setting: str) -> tuple[str, ...]:
    """The names that `mask`, `aggregation`, `solver` or `engine` may have."""
    known = _registry(setting).names()
    excluded = _CHOSEN_BY_SHARING if setting == "aggregation" else ()
    return tuple(name for name in known if name not in excluded)


def choices_for(setting: str) -> tuple[str, ...]:
    """What may be said for it: these names, and for masks `auto`."""
    return (*((AUTO,) if setting == "mask" else ()), *names_for(setting))


def _registry(setting: str) -> Registry[Any]:
    found: Registry[Any] = imported(REGISTERED[setting])
    return found


class SettingsPart(BaseModel):
    """What the settings of every component have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    title: ClassVar[str] = ""

    @field_validator(*REGISTERED, check_fields=False)
    @classmethod
    def _is_registered(cls, name: str, about: ValidationInfo) -> str:
        known = choices_for(str(about.field_name))
        if name not in known:
            raise ValueError(f"should be {either(known)}")
        return name


class MaskSettings(SettingsPart):
    """The private model of each party."""

    title = "Mask"

    mask: str = Field(
        AUTO,
        description="private model of each party; auto: lr where items have features, else mean",
    )
    mask_strength: Positive | Literal["auto"] | None = Field(
        None, description="regularisation of the mask; auto: each party picks by held-out error"
    )
    cross_fit: bool = Field(False, description="mask each rating by a model that did not see it")
    folds: int = Field(5, ge=2, le=100, description="folds of cross-fitting and out-of-fold J")
    mask_fit: MaskFit = Field(
        "auto",
        description="alone: before the factors; joint: with them, shrunken towards what all users "
        "have in common; auto: joint where vb predicts ratings",
    )
    item_statistics: bool = Field(
        False, description="item means and counts, summed over parties, as mask features"
    )


class SumSettings(SettingsPart):
    """Who shares what, and how it is summed."""

    title = "Sharing and sums"

    threshold_j: float = Field(0.05, ge=0, le=1, description="secure iff J <= threshold_j")
    sharing: Sharing = Field(
        "strict",
        description="strict: everybody's updates are only summed; adaptive: users whom the "
        "grouping calls secure send theirs in the clear, which is obfuscation; plain: all do",
    )
    grouping: Grouping = Field(
        "indicator",
        description="adaptive, who is called secure; indicator: J <= threshold_j, the paper's "
        "rule; audit: whose own attacks find less than audit_limit",
    )
    audit_limit: float = Field(
        0.5, ge=0, le=1, description="share of ratings that a self-audit may find at most"
    )
    aggregation: str = Field("secure", description="how sums are made that hide summands")
    collect_masked: bool = Field(
        False,
        description="adaptive: collect masked ratings of users in the clear once, and train on "
        "them centrally",
    )
    signed: bool = Field(
        False,
        description="secure sums that withstand a server that lies: parties sign, in a third trip",
    )
    smallest_cohort: int = Field(
        3, ge=3, le=100_000, description="secure sums: the fewest parties that may be in a sum"
    )
    batch: int = Field(
        1,
        ge=1,
        le=50,
        description="secure sums: users are summed in batches of so many, whole or not at all, so "
        "that two sums differ by a batch or more",
    )
    min_raters: int = Field(
        3,
        ge=1,
        le=1000,
        description="raters of an item that have to stay in a sum that hides summands; items with "
        "hardly more are left out",
    )


class DpSettings(SettingsPart):
    """Sums with noise; one of the ways to sum, so people find it under the same title."""

    title = SumSettings.title

    dp_epsilon: float = Field(
        8.0, gt=0, le=100, description="dp: epsilon of the whole training, per user"
    )
    dp_delta: float = Field(1e-5, gt=0, lt=1, description="dp: delta of the whole training")
    dp_clip: Positive = Field(1.0, description="dp: largest length of a user's update")
    dp_noise: Noise = Field(
        "distributed",
        description="dp: each user adds enough noise for itself, or its part, under secure sums",
    )


class SolverSettings(SettingsPart):
    """How the factors are learned, and for how long."""

    title = "Solver"

    solver: str = Field("sgd", description="how the factors are learned")
    factors: int = Field(20, ge=1, le=1024, description="latent factors k")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = Field(
        "auto", description="federated rounds at most (T); auto: 200 for sgd, 22 for vb, 30 for dp"
    )
    ensemble: int = Field(1, ge=1, le=100, description="runs from different starts, averaged")
    step: Step = Field("adam", description="sum: the paper's SGD; mean: count-normalised; adam")
    learning_rate: Positive | Literal["auto"] = Field("auto", description="gamma")
    regularization: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["auto"] = Field(
        "auto", description="lambda, once per rating; auto: span/4 / sqrt(ratings per user)"
    )
    user_prior: float = Field(
        1.0,
        allow_inf_nan=False,
        description="what the first user factor is shrunk to; 0: the paper",
    )
    biases: bool = Field(False, description="sgd: learn user and item biases as well")
    item_prior: bool = Field(True, description="vb: item features as the prior of item factors")
    profile_prior: bool = Field(
        True, description="vb: users' profiles, where there are any, as the prior of their factors"
    )
    implicit_prior: ImplicitPrior = Field(
        "both",
        description="vb: which items somebody rated as a prior of their factors (users), who rated "
        "an item as a prior of its factors (items), both, or none",
    )
    held_out: Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"] = Field(
        "auto",
        description="share of each party's ratings for early stopping; auto: 0.05 for sgd, else 0",
    )
    patience: int = Field(50, ge=1, description="rounds without improvement before stopping")


class ObjectiveSettings(SettingsPart):
    """What is learned: ratings, or lists."""

    title = "Objective"

    objective: Objective = Field(
        "rating",
        description="rating: predict ratings; ranking: order items, where every unrated item "
        "counts a little as a low rating",
    )
    likelihood: Likelihood = Field(
        "gaussian",
        description="vb: ratings are numbers, or, ordinal: levels in an order, with cut points "
        "between them that are learned",
    )
    unrated_weight: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"] = Field(
        "auto",
        description="ranking: what an unrated item weighs beside a rated one; auto: all together "
        "about seven times as much as all rated ones, within 0.27 to 0.55",
    )
    unrated_value: Annotated[float, Field(allow_inf_nan=False)] | Literal["auto"] = Field(
        "auto", description="ranking: the rating that an unrated item counts as; auto: the lowest"
    )


class RunSettings(SettingsPart):
    """Of a run as a whole."""

    title = "Run"

    engine: str = Field("numba", description="what computes all users' halves in a simulation")
    seed: int = Field(0, ge=0, description="seed of every random stream")


_PARTS = (MaskSettings, SumSettings, DpSettings, SolverSettings, ObjectiveSettings, RunSettings)


# The bases are listed backwards: fields come in the order of `_PARTS`, masks first.
class Settings(
    RunSettings, ObjectiveSettings, SolverSettings, DpSettings, SumSettings, MaskSettings
):
    """Everything that decides the result of a training run, given the ratings."""

    title = "Settings"

    @classmethod
    def groups(cls) -> dict[str, tuple[str, ...]]:
        """Names of the settings by the title of their component."""
        found: dict[str, tuple[str, ...]] = {}
        for part in _PARTS:
            found[part.title] = (*found.get(part.title, ()), *part.model_fields)
        return found

    @property
    def sums(self) -> str:
        """Name of the way to sum that is asked for."""
        return self.aggregation if self.sharing == "strict" else self.sharing

    @property
    def max_rounds(self) -> int:
        """`rounds`, or the solver's default."""
        if self.rounds != "auto":
            return self.rounds
        return _DP_ROUNDS if self.aggregation == "dp" else int(self._declared.default_rounds)

    @property
    def held_out_share(self) -> float:
        """`held_out`, or the solver's default."""
        if self.held_out != "auto":
            return self.held_out
        return _DP_HELD_OUT if self.aggregation == "dp" else float(self._declared.default_held_out)

    @property
    def has_joint_mask(self) -> bool:
        """Whether masks are estimated together with the factors."""
        return self._can_join_mask if self.mask_fit == "auto" else self.mask_fit == "joint"

    @property
    def _can_join_mask(self) -> bool:
        is_alone = self.mask_strength is not None or self.cross_fit or self.item_statistics
        is_able = self.mask in _JOINED and self.objective == "rating" and not is_alone
        return is_able and self.sharing == "strict" and bool(self._declared.joins_masks)

    @property
    def _declared(self) -> Any:
        """What the solver says of itself."""
        return _registry("solver")[self.solver]

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        misfits = chain(self._sharing_misfits(), self._dp_misfits(), self._ranking_misfits())
        misfit = next(misfits, None)
        if misfit is not None:
            raise ValueError(misfit)
        return self

    @property
    def _sums_securely(self) -> bool:
        """Whether there are secure sums, whose parties can sign and be in batches."""
        is_local = self.aggregation == "dp" and self.dp_noise == "local"
        return self.aggregation in _SIGNED and self.sharing != "plain" and not is_local

    def _sharing_misfits(self) -> Iterator[str]:
        if self.sharing != "strict" and self.aggregation != "secure":
            yield f"aggregation {self.aggregation!r} needs sharing 'strict'; got {self.sharing!r}"
        if self.sharing == "adaptive" and not self._declared.may_be_clear:
            yield (
                f"sharing 'adaptive' needs solver {_solvers_that('may_be_clear')}: one update of "
                f"{self.solver!r} holds masked ratings"
            )
        if self.collect_masked and self.sharing != "adaptive":
            yield f"collect_masked needs sharing 'adaptive'; got {self.sharing!r}"
        if self.signed and not self._sums_securely:
            yield (
                f"signed needs secure sums; got sharing {self.sharing!r} and aggregation "
                f"{self.aggregation!r}"
            )
        if self.batch > 1 and not self._sums_securely:
            yield (
                f"batch needs secure sums; got batch {self.batch} with sharing {self.sharing!r} "
                f"and aggregation {self.aggregation!r}"
            )

    def _dp_misfits(self) -> Iterator[str]:
        if self.aggregation != "dp":
            return
        if not self._declared.may_be_noisy or self.step == "mean":
            yield (
                f"aggregation 'dp' needs solver {_solvers_that('may_be_noisy')} and step 'sum' or "
                "'adam': it bounds and hides gradients, and does not give away how many users "
                "rated an item"
            )
        if self.held_out_share > 0 or self.item_statistics:
            yield (
                "aggregation 'dp' needs held_out 0 and no item_statistics: each would be a sum "
                "without noise"
            )

    def _ranking_misfits(self) -> Iterator[str]:
        if self.objective == "ranking" and not self._declared.ranks:
            yield f"objective 'ranking' needs solver {_solvers_that('ranks')}; got {self.solver!r}"
        is_ordinal = self.likelihood == "ordinal"
        if is_ordinal and not (self._declared.ranks and self.objective == "rating"):
            yield (
                f"likelihood 'ordinal' needs solver {_solvers_that('ranks')} and objective "
                f"'rating'; got {self.solver!r} and {self.objective!r}"
            )
        if self.mask_fit == "joint" and not self._can_join_mask:
            yield (
                f"mask_fit 'joint' needs solver {_solvers_that('joins_masks')}, objective 'rating'"
                ", sharing 'strict', a mask, and no mask_strength, cross_fit or item_statistics"
            )
        if self.objective == "ranking" and self.held_out_share > 0:
            yield (
                "objective 'ranking' needs held_out 0: the error of held-out ratings does not say "
                "how good lists are"
            )

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build settings; a mistake raises `SettingsError` that names the field, value and rule."""
        plain = {  # searches over grids hand out numpy's numbers
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in _completed(values).items()
        }
        try:
            return cls(**plain)
        except ValidationError as error:
            raise SettingsError(explained(error, cls)) from None

    def changed(self, **values: Any) -> Self:
        """Return a copy with some values replaced, validated anew."""
        return self.checked(**{**self.model_dump(), **_completed(values)})


def _completed(values: dict[str, Any]) -> dict[str, Any]:
    """What somebody chose, and what follows from it where nothing was said."""
    wants_lists = values.get("objective") == "ranking" and "solver" not in values
    return {**values, "solver": _able_to("ranks")[0]} if wants_lists else values


def _able_to(ability: str) -> tuple[str, ...]:
    """The solvers that declare an ability."""
    solvers = _registry("solver")
    return tuple(name for name in solvers.names() if getattr(solvers[name], ability))


def _solvers_that(ability: str) -> str:
    """The same in words."""
    return either(_able_to(ability))
