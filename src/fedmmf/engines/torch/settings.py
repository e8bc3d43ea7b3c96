"""Settings of the torch engine, and their rules."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from fedmmf.settings.explaining import either
from fedmmf.settings.groups import Chosen, Scope, SettingsGroup

Device = Literal["cuda", "cpu"]
_IN_PIECES = ("vb",)  # solvers whose users can take turns on the device


class TorchSettings(SettingsGroup):
    """Where torch computes."""

    kind, member = "engine", "torch"

    device: Annotated[
        Device,
        Field(description="torch: the card (cuda), or the processor (cpu)"),
        Scope.NOT_FEDERATED,
        Scope.NOT_AUDITED,
        Scope.ONLY_WHERE,
    ] = "cuda"
    pieces: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="torch: split users into so many pieces that take turns on the card; more "
            "need less of its memory",
        ),
        Scope.NOT_FEDERATED,
        Scope.NOT_AUDITED,
        Scope.ONLY_WHERE,
    ] = 1

    @classmethod
    def misfits(cls, settings: Any) -> Iterator[str]:
        """Yield an error where no device is used, or one that does not take turns."""
        is_usual = settings.device == cls.model_fields["device"].default and settings.pieces == 1
        if not is_usual and not cls.is_in_use(settings.model_dump(include={"engine"})):
            is_device = settings.pieces == 1
            what = f"device {settings.device!r}" if is_device else f"pieces {settings.pieces}"
            yield f"{what} needs engine {cls.member!r}; got engine {settings.engine!r}"
        if settings.pieces > 1 and settings.solver not in _IN_PIECES:
            yield (
                f"pieces needs solver {either(_IN_PIECES)}; got pieces {settings.pieces} and "
                f"solver {settings.solver!r}"
            )

    @classmethod
    def has_say(cls, name: str, chosen: Chosen) -> bool:
        """Whether users are in pieces at all, for their number."""
        return name != "pieces" or chosen.get("pieces") != 1
