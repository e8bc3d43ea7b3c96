"""Settings of all masks, and their rules; nothing here knows a mask's code, or ratings."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import (
    AUTO,
    Chosen,
    Scope,
    SettingsGroup,
    Unset,
    member_in_use,
    solvers_that,
)

MaskFit = Literal["auto", "alone", "joint"]
Strength = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NO_MASK = "none"
_JOINED = (AUTO, "mean", "lr", "fm", "nn")  # masks that can be estimated with the factors


class MaskSettings(SettingsGroup):
    """The private model of each party."""

    kind = "mask"

    mask: Annotated[
        str,
        Field(
            description="private model of each party; auto: lr where items have features, else mean"
        ),
    ] = AUTO
    mask_strength: Annotated[
        Strength | Literal["auto"] | None,
        Field(
            description="regularisation of the mask; auto: each party picks by held-out error",
        ),
        Unset("the mask's own"),
    ] = None
    cross_fit: Annotated[
        bool, Field(description="mask each rating by a model that did not see it")
    ] = False
    folds: Annotated[
        int, Field(ge=2, le=100, description="folds of cross-fitting and out-of-fold J")
    ] = 5
    mask_fit: Annotated[
        MaskFit,
        Field(
            description="alone: before the factors; joint: with them, shrunken towards what all "
            "users have in common; auto: joint where vb predicts ratings, or has a budget",
        ),
    ] = "auto"
    item_statistics: Annotated[
        bool,
        Field(description="item means and counts, summed over parties, as mask features"),
        Scope.NOT_FEDERATED,
    ] = False

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error where a mask cannot be estimated with the factors, and should be."""
        if settings.mask_fit == "joint" and not can_be_joint(settings):
            yield (
                f"mask_fit 'joint' needs solver {either(solvers_that('joins_masks'))}, objective "
                "'rating' or aggregation 'dp', sharing 'strict', a mask, and no mask_strength, "
                "cross_fit or item_statistics"
            )

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Only the mask's name, where nothing is masked."""
        if name == "mask":
            return True
        solver = member_in_use("solver", chosen) if name == "mask_fit" else None
        return is_masked(chosen) and (solver is None or bool(solver.joins_masks))


def is_masked(chosen: Chosen) -> bool:
    """Whether a run masks ratings at all."""
    return bool(chosen.get("mask") != _NO_MASK)


def can_be_joint(settings: Any) -> bool:
    """Whether masks can be estimated together with the factors."""
    is_alone = settings.mask_strength is not None or settings.cross_fit or settings.item_statistics
    # Lists count unrated items too: a budget's solver has masks of these alone.
    is_meant = settings.objective == "rating" or settings.scheme.has_budget
    is_able = settings.mask in _JOINED and is_meant and not is_alone
    return is_able and settings.is_strict and bool(settings.chosen_solver.joins_masks)
