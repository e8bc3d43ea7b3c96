"""Settings of differential privacy, and their rules."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import SettingsGroup, solvers_that

Noise = Literal["local", "distributed"]


class DpSettings(SettingsGroup):
    """Differential privacy: shorten each user's update and add noise."""

    kind, member, shares = "aggregation", "dp", ("secure",)

    dp_epsilon: Annotated[
        float, Field(gt=0, le=100, description="dp: epsilon of the whole training, per user")
    ] = 8.0
    dp_delta: Annotated[float, Field(gt=0, lt=1, description="dp: delta of the whole training")] = (
        1e-5
    )
    dp_clip: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="dp: largest length of a user's update"),
    ] = 1.0
    dp_noise: Annotated[
        Noise,
        Field(
            description="dp: each user adds enough noise for itself, or its part, under secure "
            "sums",
        ),
    ] = "distributed"

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error for what a budget does not cover, and for a budget that nothing keeps."""
        if settings.aggregation != cls.member:
            if settings.dp_epsilon != cls.model_fields["dp_epsilon"].default:
                yield (
                    f"dp_epsilon needs aggregation {cls.member!r}, which adds the noise; got "
                    f"dp_epsilon {settings.dp_epsilon:g} with aggregation {settings.aggregation!r}"
                )
            return
        if not settings.chosen_solver.may_be_noisy or settings.step == "mean":
            yield (
                f"aggregation 'dp' needs solver {either(solvers_that('may_be_noisy'))} and step "
                "'sum' or 'adam': it bounds and hides gradients, and does not give away how many "
                "users rated an item"
            )
        if settings.likelihood != "gaussian":
            yield (
                f"likelihood {settings.likelihood!r} under aggregation 'dp' is not there yet: its "
                "sums would need bounds of their own. Use likelihood 'gaussian', or aggregation "
                "'secure'"
            )
        if settings.held_out_share > 0:
            yield (
                "aggregation 'dp' needs held_out 0: held-out errors, by which training stops "
                f"early, would be sums outside the budget; got {settings.held_out_share:g}. Leave "
                "held_out out: all rounds that dp_epsilon pays for are used"
            )
        if settings.item_statistics:
            yield (
                "aggregation 'dp' needs no item_statistics: a survey of ratings would be a sum "
                "outside the budget; got item_statistics True. Leave it out"
            )
