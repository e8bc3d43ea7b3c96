"""Settings of secure aggregation, and their rules."""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from fedmmf.settings.groups import SettingsGroup


class SecureSettings(SettingsGroup):
    """Of every scheme whose sums are made by `secagg`."""

    kind, member = "aggregation", "secure"

    signed: Annotated[
        bool,
        Field(
            description="secure sums that withstand a server that lies: parties sign, in a third "
            "trip",
        ),
    ] = False
    batch: Annotated[
        int,
        Field(
            ge=1,
            le=50,
            description="secure sums: users are summed in batches of so many, whole or not at all, "
            "so that two sums differ by a batch or more",
        ),
    ] = 1

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error where parties cannot sign, or be in batches."""
        got = f"sharing {settings.sharing!r} and aggregation {settings.aggregation!r}"
        if settings.signed and not settings.scheme.is_secagg(settings):
            yield f"signed needs secure sums; got {got}"
        if settings.batch > 1 and not settings.scheme.is_secagg(settings):
            yield f"batch needs secure sums; got batch {settings.batch} with {got}"
