"""Settings of all engines."""

from typing import Annotated

from pydantic import Field

from fedmmf.settings.groups import Scope, SettingsGroup


class EngineSettings(SettingsGroup):
    """What computes a simulation."""

    kind = "engine"

    engine: Annotated[
        str,
        Field(description="what computes all users' halves in a simulation"),
        Scope.NOT_FEDERATED,
        Scope.NOT_AUDITED,
    ] = "numba"
