"""Settings of the solver `vb`."""

from typing import Annotated, Literal

from pydantic import Field

from fedmmf.settings.groups import SettingsGroup

ImplicitPrior = Literal["none", "items", "users", "both"]


class VbSettings(SettingsGroup):
    """Priors of the factors."""

    kind, member = "solver", "vb"

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
