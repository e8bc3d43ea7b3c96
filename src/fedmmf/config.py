"""Settings: frozen, validated, unknown keys refused, stored with every result."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedmmf.errors import SettingsError

Mask = Literal["none", "mean", "lr", "fm", "nn"]
Solver = Literal["sgd", "vb"]
Step = Literal["sum", "mean", "adam"]
Sharing = Literal["strict", "adaptive", "plain"]
Aggregation = Literal["secure", "homomorphic-paillier", "homomorphic-ckks", "dp"]
Grouping = Literal["indicator", "audit"]
Noise = Literal["local", "distributed"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseModel):
    """Everything that decides the result of a training run, given the ratings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    mask: Mask = Field("lr", description="private model of each party")
    mask_strength: Positive | Literal["auto"] | None = Field(
        None,
        description="regularisation of the mask; auto: each party picks by its held-out error",
    )
    cross_fit: bool = Field(False, description="mask each rating by a model that did not see it")
    folds: int = Field(5, ge=2, le=100, description="folds of cross-fitting and out-of-fold J")
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
    aggregation: Aggregation = Field("secure", description="how sums are made that hide summands")
    collect_masked: bool = Field(
        False,
        description="adaptive: collect masked ratings of users in the clear once, and train on "
        "them centrally",
    )
    signed: bool = Field(
        False,
        description="secure sums that withstand a server that lies: parties sign, in a third trip",
    )
    min_raters: int = Field(
        3, ge=1, description="items with fewer raters are left out of sums that hide summands"
    )
    dp_epsilon: float = Field(
        8.0, gt=0, le=100, description="dp: epsilon of the whole training, per user"
    )
    dp_delta: float = Field(1e-5, gt=0, lt=1, description="dp: delta of the whole training")
    dp_clip: Positive = Field(1.0, description="dp: largest length of a user's update")
    dp_noise: Noise = Field(
        "distributed",
        description="dp: each user adds enough noise for itself, or its part, under secure sums",
    )
    solver: Solver = Field("sgd", description="how the factors are learned")
    factors: int = Field(20, ge=1, le=1024, description="latent factors k")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = Field(
        "auto", description="federated rounds at most (T); auto: 200 for sgd, 30 for vb and dp"
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
    item_statistics: bool = Field(
        False, description="item means and counts, summed over parties, as mask features"
    )
    held_out: Annotated[float, Field(ge=0, le=0.5)] | Literal["auto"] = Field(
        "auto",
        description="share of each party's ratings kept for early stopping; "
        "auto: 0.05 for sgd, 0 for vb and dp",
    )
    patience: int = Field(50, ge=1, description="rounds without improvement before stopping")
    seed: int = Field(0, ge=0, description="seed of every random stream")

    @property
    def max_rounds(self) -> int:
        """`rounds`, or the solver's default."""
        if self.rounds != "auto":
            return self.rounds
        return 200 if self.solver == "sgd" and self.aggregation != "dp" else 30

    @property
    def held_out_share(self) -> float:
        """`held_out`, or the solver's default."""
        if self.held_out != "auto":
            return self.held_out
        return 0.05 if self.solver == "sgd" and self.aggregation != "dp" else 0.0

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        is_dp = self.aggregation == "dp"
        rules = [
            (
                self.sharing == "strict" or self.aggregation == "secure",
                f"aggregation {self.aggregation!r} needs sharing 'strict'; got {self.sharing!r}",
            ),
            (
                self.sharing != "adaptive" or self.solver == "sgd",
                "sharing 'adaptive' needs solver 'sgd': one update of 'vb' holds masked ratings",
            ),
            (
                self.sharing == "adaptive" or not self.collect_masked,
                f"collect_masked needs sharing 'adaptive'; got {self.sharing!r}",
            ),
            (
                not self.signed or not self.aggregation.startswith("homomorphic"),
                f"signed needs secure sums; got aggregation {self.aggregation!r}",
            ),
            (
                not is_dp or (self.solver == "sgd" and self.step != "mean"),
                "aggregation 'dp' needs solver 'sgd' and step 'sum' or 'adam': it bounds and "
                "hides gradients, and does not give away how many users rated an item",
            ),
            (
                not is_dp or (self.held_out_share == 0 and not self.item_statistics),
                "aggregation 'dp' needs held_out 0 and no item_statistics: each would be a sum "
                "without noise",
            ),
        ]
        for holds, rule in rules:
            if not holds:
                raise ValueError(rule)
        return self

    @classmethod
    def checked(cls, **values: Any) -> Self:
        """Build settings; a mistake raises `SettingsError` that names the field, value and rule."""
        plain = {  # searches over grids hand out numpy's numbers
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in values.items()
        }
        try:
            return cls(**plain)
        except ValidationError as error:
            raise SettingsError(_explain(error, cls)) from None

    def changed(self, **values: Any) -> Self:
        """Return a copy with some values replaced, validated anew."""
        return self.checked(**{**self.model_dump(), **values})


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """One sentence per field; the alternatives of a field are joined by `or`."""
    rules: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    for detail in error.errors():
        if not detail["loc"]:  # a rule about several fields explains itself
            return detail["msg"].removeprefix("Value error, ")
        name = str(detail["loc"][0])
        rules.setdefault(name, []).append(detail["msg"].removeprefix("Input "))
        given[name] = detail["input"]
    return "; ".join(_explain_field(name, rules[name], given[name], model) for name in rules)


def _explain_field(name: str, rules: list[str], given: Any, model: type[BaseModel]) -> str:
    if name not in model.model_fields:
        return f"unknown setting {name!r}; the settings are {', '.join(model.model_fields)}"
    meaning = model.model_fields[name].description
    return f"{name} {' or '.join(rules)}; got {given!r} ({meaning})"
