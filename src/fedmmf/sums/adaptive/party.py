"""A party's side of adaptive sums: in the clear or in sums, as it has chosen."""

from collections.abc import Mapping
from typing import Any

from fedmmf.errors import WireError
from fedmmf.sums.adaptive.messages import Collect, Collected
from fedmmf.sums.party_side import PartyDesk, PartySide
from fedmmf.sums.plain.party import PlainParty
from fedmmf.sums.secure.party import SecureParty
from fedmmf.wire import Ask, Message


class AdaptiveParty(PartySide):
    """Both other sides: sums until it has chosen, and what it has chosen from then on."""

    def __init__(self, desk: PartyDesk) -> None:
        super().__init__(desk)
        self._plain, self._secure = PlainParty(desk), SecureParty(desk)
        self.answers = (*self._plain.answers, *self._secure.answers, Collect)

    def answer(self, message: Any) -> Message:
        """As the side does that knows the message; or hand over masked ratings."""
        if isinstance(message, Ask):
            return self._plain.answer(message)
        if not isinstance(message, Collect):
            return self._secure.answer(message)
        if self.desk.layout is None or not self.desk.in_clear:
            raise WireError("this party does not hand over masked ratings; its policy says so")
        return Collected(*self.desk.collect())

    def state(self) -> dict[str, Any]:
        """Also of both sides."""
        sides = {"plain": self._plain.state(), "secure": self._secure.state()}
        return {"own": super().state(), **sides}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be as before, with both sides."""
        super().restore(state["own"])
        self._plain.restore(state["plain"])
        self._secure.restore(state["secure"])
