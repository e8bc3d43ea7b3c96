"""A party's side of adaptive aggregation: in the clear or in secure sums, as it has chosen."""

from typing import Any

from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.party_side import PartyContext, PartySide
from fedmmf.aggregation.plain.party import PlainParty
from fedmmf.aggregation.secure.party import SecureParty
from fedmmf.errors import WireError
from fedmmf.wire import Ask, Message


class AdaptiveParty(PartySide):
    """The plain and the secure side: secure until the party has chosen, then the one it chose."""

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._plain, self._secure = PlainParty(context), SecureParty(context)
        self.answers = (*self._plain.answers, *self._secure.answers, Collect)

    def answer(self, message: Any) -> Message:
        """Answer by the side that knows the message, or send the masked ratings."""
        if isinstance(message, Ask):
            return self._plain.answer(message)
        if not isinstance(message, Collect):
            return self._secure.answer(message)
        if self.context.layout is None or not self.context.in_clear:
            raise WireError("this party does not hand over masked ratings; its policy says so")
        return Collected(*self.context.collect())
