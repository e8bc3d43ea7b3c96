"""Settings of another package's members, in a module that loads nothing of their code."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from fedmmf.settings.groups import SettingsGroup


class EnclaveSettings(SettingsGroup):
    """Of the aggregation scheme `enclave`."""

    kind, member = "aggregation", "enclave"

    enclave_minimum: Annotated[
        int, Field(ge=3, le=1000, description="enclave: the fewest updates that it opens")
    ] = 3

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        if settings.enclave_minimum > 3 and settings.scheme_name != cls.member:
            yield f"enclave_minimum needs aggregation 'enclave'; got {settings.scheme_name!r}"


class HeavyBallSettings(SettingsGroup):
    """Of the solver `heavy-ball`, which has the settings of `sgd` as well."""

    kind, member, shares = "solver", "heavy-ball", ("sgd",)

    momentum: Annotated[
        float, Field(ge=0, lt=1, description="heavy-ball: share of the last step that goes on")
    ] = 0.3
