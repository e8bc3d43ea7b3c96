"""Settings of the solver `vb`."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.masks.settings import is_masked
from fedmmf.settings.groups import SettingsGroup

ImplicitPrior = Literal["none", "items", "users", "both"]


def misfits_of_budget(settings: Any) -> Iterator[str]:
    """Yield an error for what sums with noise are not made for."""
    if settings.profile_prior or settings.implicit_prior in ("items", "users", "both"):
        yield (
            "aggregation 'dp' needs profile_prior False and implicit_prior 'none': their sums are "
            f"not in the budget. Got profile_prior {settings.profile_prior} and implicit_prior "
            f"{settings.implicit_prior!r}; leave both out"
        )
    is_alone = is_masked(settings.model_dump()) and not settings.has_joint_mask
    if settings.objective == "ranking" and is_alone:
        yield (
            "objective 'ranking' under aggregation 'dp' fits masks to all items, with the factors: "
            "it needs mask_fit 'auto' or 'joint', and no mask_strength or cross_fit. Leave these "
            "out, or use mask 'none'"
        )


class VbSettings(SettingsGroup):
    """Priors of the factors."""

    kind, member = "solver", "vb"

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error for what a budget has no sums for."""
        if settings.solver == cls.member and settings.scheme.has_budget:
            yield from misfits_of_budget(settings)

    item_prior: Annotated[
        bool, Field(description="vb: item features as the prior of item factors")
    ] = True
    profile_prior: Annotated[
        bool,
        Field(
            description="vb: users' profiles, where there are any, as the prior of their factors"
        ),
    ] = True
    implicit_prior: Annotated[
        ImplicitPrior,
        Field(
            description="vb: which items somebody rated as a prior of their factors (users), who "
            "rated an item as a prior of its factors (items), both, or none",
        ),
    ] = "both"
