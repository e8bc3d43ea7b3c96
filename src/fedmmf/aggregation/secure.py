"""Secure sums: the server learns the sum over the parties that stayed, and nothing else.

Two trips a round, with fresh keys every round (`secagg.session`); a third, between them, where
parties sign what they see, against a server that lies. A party that misses a trip has dropped out
of that round; one that sends something wrong is treated the same, and named in `refused`.
"""

import os
from collections.abc import Mapping

from fedmmf import wire
from fedmmf.aggregation.layout import Bounds, Layout, rare_items
from fedmmf.aggregation.secure_party import agreed_setup
from fedmmf.arrays import Array
from fedmmf.coordinator import Transport, n_update_totals
from fedmmf.errors import WireError
from fedmmf.factorization.contract import ItemSums
from fedmmf.secagg import FixedPoint, SessionServer, least_threshold
from fedmmf.secagg.policy import MINIMUM_COHORT
from fedmmf.secagg.shamir import Entropy

MIN_RATERS = 3


class Secure:
    """Parties behind a transport, summed by secure aggregation.

    Args:
        transport: carries the bytes.
        parties: their names.
        span: of the rating scale, for the bounds of the fixed-point numbers.
        neighbours: of each party in the graph; None: everybody.
        threshold: holders that recover a secret; None: the fewest that the conditions allow.
        min_raters: after a survey, items with fewer raters are left out.
        bounds: of what a party adds in a round; None: what the solver calls for.
        minimum: the fewest parties that may be in a sum.
        identities: Ed25519 public keys of the parties, in their order; empty: nobody signs.
        timeout: seconds a trip stays open.
        entropy: where the session's name and the graph's seed come from.
    """

    def __init__(
        self,
        transport: Transport,
        parties: list[str],
        span: float,
        *,
        neighbours: int | None = None,
        threshold: int | None = None,
        min_raters: int = MIN_RATERS,
        bounds: Bounds | None = None,
        minimum: int = MINIMUM_COHORT,
        identities: tuple[bytes, ...] = (),
        timeout: float = 60.0,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.transport, self._timeout, self._entropy = transport, timeout, entropy
        self._parties, self._span, self._neighbours = parties, span, neighbours
        holders = len(parties) if neighbours is None else neighbours + 1
        self._threshold = threshold or least_threshold(holders, active=bool(identities))
        self._identities = identities
        self._numbers = {name: number for number, name in enumerate(parties)}
        self._min_raters, self._bounds, self._minimum = min_raters, bounds, minimum
        self._suppressed: tuple[int, ...] = ()
        self._layout: Layout | None = None
        self.refused: dict[str, str] = {}

    @property
    def survivors(self) -> list[str]:
        """Whose updates are in the last sum."""
        if self._layout is None:
            return []
        return [self._parties[number] for number in self._session.survivors]

    def survey(self, n_items: int, *, with_ratings: bool) -> ItemSums:
        """How many parties rated each item and, if asked for, the sums of their ratings.

        From then on, items with fewer than `min_raters` are left out of every round. The survey's
        own sums still hold them: they show that somebody rated the item, and how (errata 34).
        """
        message = wire.Survey(with_ratings).encode()
        sums = self._sum(Layout(n_items, 1, 0), "sgd", message)
        self._suppressed = rare_items(sums, self._min_raters)
        return sums

    def sums(self, message: wire.Round) -> ItemSums:
        """Run one round of the protocol."""
        n_items, width = message.public.item_rows.shape
        layout = Layout(n_items, width, n_update_totals(message.solver, message.public))
        return self._sum(layout, message.solver, message.encode())

    def _sum(self, layout: Layout, solver: str, message: bytes) -> ItemSums:
        if layout != self._layout:
            self._start(layout, solver)
        total = self._round(message)
        if total is None:
            raise WireError("the session gave no sum for this round")
        return layout.unpack(self._codec.decode(total))

    def finish(self, message: wire.Round) -> None:
        """Send the final factors to everybody."""
        self._exchange("finish", dict.fromkeys(range(len(self._parties)), message.encode()))

    def _start(self, layout: Layout, solver: str) -> None:
        """Agree on a session and fill its pipeline."""
        n, bounds = len(self._parties), self._bounds or Bounds.of(solver, self._span)
        session, seed = self._entropy(16), self._entropy(32)
        messages = [
            wire.SecureSetup(
                session, seed, number, n, self._threshold, self._neighbours or 0, solver,
                layout.n_items, layout.width, layout.n_totals, bounds.row, bounds.total,
                self._minimum, self._suppressed, self._identities,
            )
            for number in range(n)
        ]  # fmt: skip
        self._session = SessionServer(agreed_setup(messages[0]))
        self._codec: FixedPoint = bounds.codec(layout, solver, n)
        self._exchange("setup", {message.party: message.encode() for message in messages})
        self._layout = layout
        self._round(b"")

    def _round(self, message: bytes) -> Array | None:
        check = [(2, self._session.check, b"")] if self._identities else []
        for trip, outgoing, round_ in (
            (1, self._session.first, message),
            *check,
            (3, self._session.second, b""),
        ):
            data = {
                number: wire.SecureTrip(trip, part, round_).encode()
                for number, part in outgoing().items()
            }
            self._receive(self._exchange(f"trip {trip}", data))
        return self._session.result()

    def _receive(self, replies: Mapping[int, bytes]) -> None:
        for number, data in replies.items():
            try:
                self._session.receive(number, wire.SecureTrip.decode(data).data)
            except WireError as error:
                self.refused[self._parties[number]] = str(error)

    def _exchange(self, stage: str, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        named = {self._parties[number]: data for number, data in messages.items()}
        replies = self.transport.exchange(stage, named, self._timeout)
        return {self._numbers[name]: data for name, data in replies.items()}
