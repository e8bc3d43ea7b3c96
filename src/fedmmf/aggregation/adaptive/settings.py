"""Settings of adaptive sharing, and their rules."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import Chosen, Scope, SettingsGroup, solvers_that

Grouping = Literal["indicator", "audit"]


class AdaptiveSettings(SettingsGroup):
    """Who shares in the clear; the others' sums are secure."""

    kind, member, shares = "aggregation", "adaptive", ("secure",)

    grouping: Annotated[
        Grouping,
        Field(
            description="adaptive, who is called secure; indicator: J <= threshold_j, the paper's "
            "rule; audit: whose own attacks find less than audit_limit",
        ),
        Scope.ALWAYS_AUDITED,
    ] = "indicator"
    audit_limit: Annotated[
        float,
        Field(ge=0, le=1, description="share of ratings that a self-audit may find at most"),
        Scope.ALWAYS_AUDITED,
    ] = 0.5
    collect_masked: Annotated[
        bool,
        Field(
            description="adaptive: collect masked ratings of users in the clear once, and train "
            "on them centrally",
        ),
        Scope.NOT_FEDERATED,
        Scope.NOT_AUDITED,
    ] = False

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error for a solver whose updates may not be seen, and for what is not shared."""
        is_adaptive = settings.sharing == cls.member
        if is_adaptive and not settings.chosen_solver.may_be_clear:
            yield (
                f"sharing 'adaptive' needs solver {either(solvers_that('may_be_clear'))}: one "
                f"update of {settings.solver!r} holds masked ratings"
            )
        if settings.collect_masked and not is_adaptive:
            yield f"collect_masked needs sharing 'adaptive'; got {settings.sharing!r}"

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether there are self-audits, for their limit."""
        return name != "audit_limit" or chosen.get("grouping", "audit") == "audit"
