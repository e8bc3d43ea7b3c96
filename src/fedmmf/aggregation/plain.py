"""Sums in the clear: the server sees every party's update."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fedmmf import wire
from fedmmf.coordinator import Transport, n_update_totals
from fedmmf.errors import WireError
from fedmmf.factorization.contract import ItemSums


class Plain:
    """Parties behind a transport; their updates arrive in the clear and are summed here."""

    def __init__(self, transport: Transport, parties: list[str], *, timeout: float = 60.0) -> None:
        self.transport = transport
        self._timeout = timeout
        self.parties = parties

    def join(self) -> list[str]:
        """Ask everybody how they share; from now on, sum those who do so in the clear."""
        replies = self._ask("join", wire.Join().encode())
        self.parties = sorted(
            name
            for name, data in replies.items()
            if self._read(name, wire.Joined.decode, data).in_clear
        )
        return self.parties

    def survey(self, n_items: int, *, with_ratings: bool) -> ItemSums:
        """Sums that come before training: how many ratings each item has, and their sum.

        With ratings, the rows that parties send are ratings; only those with the policy `plain`
        answer.
        """
        message = wire.Survey(with_ratings).encode()
        return self._sum("survey", message, 0, n_items, width=1, n_totals=0)

    def collect(self, n_items: int) -> dict[str, wire.Collected]:
        """Masked ratings of everybody, by name."""
        replies = self._ask("collect", wire.Collect().encode())
        decode = wire.Collected.decode
        return {
            name: self._read(name, decode, data, n_items=n_items)
            for name, data in sorted(replies.items())
        }

    def sums(self, message: wire.Round) -> ItemSums:
        """Collect one round's updates and sum them; a party that does not answer is left out."""
        n_items, width = message.public.item_rows.shape
        totals = n_update_totals(message.solver, message.public)
        return self._sum("round", message.encode(), message.round, n_items, width, totals)

    def finish(self, message: wire.Round) -> None:
        """Send the final factors to everybody."""
        self._ask("finish", message.encode())

    def _sum(
        self, stage: str, message: bytes, round_: int, n_items: int, width: int, n_totals: int
    ) -> ItemSums:
        rows = np.zeros((n_items, width), np.float32)
        n_raters, totals = np.zeros(n_items, np.int64), np.zeros(n_totals)
        sizes = {"n_items": n_items, "width": width, "n_totals": n_totals}
        for party, data in self._ask(stage, message).items():
            update = self._read(party, wire.Update.decode, data, **sizes)
            if update.round != round_:
                text = f"sent an update of round {update.round} in round {round_}"
                raise WireError(f"party {party!r} {text}")
            rows[update.items] += update.rows
            n_raters[update.items] += 1
            totals += update.totals
        return ItemSums(rows, n_raters, totals)

    def _ask(self, stage: str, message: bytes) -> dict[str, bytes]:
        return self.transport.exchange(stage, dict.fromkeys(self.parties, message), self._timeout)

    def _read(self, party: str, decode: Callable[..., Any], data: bytes, **known: int) -> Any:
        try:
            return decode(data, **known)
        except WireError as error:
            raise WireError(f"party {party!r} sent a {error}") from None
