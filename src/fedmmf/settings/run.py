"""Settings of a run as a whole."""

from typing import Annotated

from pydantic import Field

from fedmmf.settings.groups import SettingsGroup


class RunSettings(SettingsGroup):
    """Of a run as a whole."""

    title = "Run"

    seed: Annotated[int, Field(ge=0, description="seed of every random stream")] = 0
