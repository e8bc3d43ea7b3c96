"""Settings of all aggregation schemes: who shares what, and how it is summed."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.groups import Chosen, SettingsGroup, member_in_use

Sharing = Literal["strict", "adaptive", "plain"]
_OF_SUMS = ("aggregation", "smallest_cohort", "min_raters")


class SumSettings(SettingsGroup):
    """Who shares what, and how it is summed."""

    kind = "aggregation"

    threshold_j: Annotated[
        float, Field(ge=0, le=1, description="largest J of users whom the paper calls secure")
    ] = 0.05
    sharing: Annotated[
        Sharing,
        Field(
            description="strict: everybody's updates are only summed; adaptive: users whom the "
            "grouping calls secure send theirs in the clear, which is obfuscation; plain: all do",
        ),
    ] = "strict"
    aggregation: Annotated[str, Field(description="how sums are made that hide summands")] = (
        "secure"
    )
    smallest_cohort: Annotated[
        int,
        Field(ge=3, le=100_000, description="secure sums: the fewest parties that may be in a sum"),
    ] = 3
    min_raters: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="raters of an item that have to stay in a sum that hides summands; items "
            "with hardly more are left out",
        ),
    ] = 3

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error where a scheme is named and another one asked for by `sharing`."""
        is_named = settings.aggregation != cls.model_fields["aggregation"].default
        if not settings.is_strict and is_named:
            yield (
                f"aggregation {settings.aggregation!r} needs sharing 'strict'; got "
                f"{settings.sharing!r}"
            )

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether sums hide summands, for settings of such sums."""
        scheme = member_in_use("aggregation", chosen) if name in _OF_SUMS else None
        return scheme is None or bool(scheme.hides)
