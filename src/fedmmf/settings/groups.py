"""The settings of each component: its fields, and the title that people find them under.

Names of masks, solvers, aggregation schemes and engines are not listed here: they are looked up in
registries, to which other packages add.
"""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from fedmmf.errors import SettingsError
from fedmmf.registry import Registry, imported
from fedmmf.settings.explaining import either, explain_errors

Step = Literal["sum", "mean", "adam"]
Sharing = Literal["strict", "adaptive", "plain"]
Grouping = Literal["indicator", "audit"]
Noise = Literal["local", "distributed"]
ImplicitPrior = Literal["none", "items", "users", "both"]
Objective = Literal["rating", "ranking"]
MaskFit = Literal["auto", "alone", "joint"]
Likelihood = Literal["gaussian", "ordinal"]
Device = Literal["cuda", "cpu"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

AUTO = "auto"  # a mask that is chosen when the items are known

# Import paths: a solver or an engine may want settings, which must not need them to be loaded.
REGISTERED = {
    "mask": "fedmmf.masks:FAMILIES",
    "aggregation": "fedmmf.aggregation:AGGREGATIONS",
    "solver": "fedmmf.solvers:SOLVERS",
    "engine": "fedmmf.engines:ENGINES",
}
_CHOSEN_BY_SHARING = ("plain", "adaptive")  # aggregation schemes that `sharing` asks for by itself


def names_for(setting: str) -> tuple[str, ...]:
    """The names that `mask`, `aggregation`, `solver` or `engine` may have."""
    known = registry_of(setting).names()
    excluded = _CHOSEN_BY_SHARING if setting == "aggregation" else ()
    return tuple(name for name in known if name not in excluded)


def choices_for(setting: str) -> tuple[str, ...]:
    """Return the values that the setting may have: these names, and for masks `auto`."""
    return (*((AUTO,) if setting == "mask" else ()), *names_for(setting))


def registry_of(setting: str) -> Registry[Any]:
    """The members that `mask`, `aggregation`, `solver` or `engine` may name."""
    found: Registry[Any] = imported(REGISTERED[setting])
    return found


class SettingsPart(BaseModel):
    """What the settings of every component have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    title: ClassVar[str] = ""

    def __init__(self, **values: Any) -> None:
        """Check the values; a mistake raises `SettingsError` with the field, value and rule."""
        plain = {  # searches over grids hand out numpy's numbers
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in values.items()
        }
        try:
            super().__init__(**plain)
        except ValidationError as error:
            raise SettingsError(explain_errors(error, type(self))) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise SettingsError(f"settings do not change; make others, with {name}={value!r} in them")

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
    """Sums with noise; one of the aggregation schemes, so people find it under the same title."""

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
    device: Device = Field("cuda", description="torch: the card (cuda), or the processor (cpu)")
    pieces: int = Field(
        1,
        ge=1,
        le=10_000,
        description="torch: split users into so many pieces that take turns on the card; more need "
        "less of its memory",
    )
    seed: int = Field(0, ge=0, description="seed of every random stream")
