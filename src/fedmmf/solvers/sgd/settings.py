"""Settings of the solver `sgd`."""

from typing import Annotated, Literal

from pydantic import Field

from fedmmf.settings.groups import SettingsGroup

Step = Literal["sum", "mean", "adam"]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class SgdSettings(SettingsGroup):
    """Steps along summed gradients."""

    kind, member = "solver", "sgd"

    step: Annotated[
        Step, Field(description="sum: the paper's SGD; mean: count-normalised; adam")
    ] = "adam"
    learning_rate: Annotated[Rate | Literal["auto"], Field(description="gamma")] = "auto"
    regularization: Annotated[
        Weight | Literal["auto"],
        Field(description="lambda, once per rating; auto: span/4 / sqrt(ratings per user)"),
    ] = "auto"
    user_prior: Annotated[
        float,
        Field(
            allow_inf_nan=False,
            description="what the first user factor is shrunk to; 0: the paper",
        ),
    ] = 1.0
    biases: Annotated[bool, Field(description="sgd: learn user and item biases as well")] = False
