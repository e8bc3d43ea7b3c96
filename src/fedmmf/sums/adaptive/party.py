"""A party's side of adaptive sums: in the clear or in sums, as it has chosen."""

from collections.abc import Mapping
from typing import Any

from fedmmf.errors import WireError
from fedmmf.sums.adaptive.messages import Collect, Collected
from fedmmf.sums.party_side import PartyDesk, PartySide
from fedmmf.sums.plain.party import PlainParty
from fedmmf.sums.secure.party import SecureParty
from fedmmf.wire import Message


class AdaptiveParty(PartySide):
    """One of the two other sides, by the party's own choice."""

    def __init__(self, desk: PartyDesk) -> None:
        super().__init__(desk)
        self._side: PartySide = PlainParty(desk) if desk.in_clear else SecureParty(desk)
        self.answers = (*self._side.answers, Collect)

    def answer(self, message: Any) -> Message:
        """As the chosen side does; or hand over masked ratings."""
        if not isinstance(message, Collect):
            return self._side.answer(message)
        if not self.desk.in_clear:
            raise WireError("this party does not hand over masked ratings; its policy says so")
        return Collected(*self.desk.collect())

    def state(self) -> dict[str, Any]:
        """Also of the chosen side."""
        return {"own": super().state(), "side": self._side.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as before, with the chosen side."""
        super().restore(state["own"])
        self._side.restore(state["side"])
