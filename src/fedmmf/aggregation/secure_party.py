"""A party's side of secure sums: its update, in fixed point, under masks that cancel."""

import os

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.secagg import SessionClient, Setup
from fedmmf.secagg.shamir import Entropy


def agreed_setup(message: wire.SecureSetup) -> Setup:
    """The session's setup; raises where a condition of the protocol fails."""
    layout = Layout(message.n_items, message.width, message.n_totals)
    bounds = Bounds(message.row_bound, message.total_bound)
    return Setup(
        round_id=message.session,
        parties=tuple(range(message.n_parties)),
        threshold=message.threshold,
        length=layout.length,
        ring=bounds.codec(layout, message.solver, message.n_parties).ring,
        neighbours=message.neighbours or None,
        graph_seed=message.graph_seed,
        minimum=message.minimum,
        active=bool(message.identities),
        identities=message.identities,
    )


class SecureParty:
    """One party in a series of rounds.

    Args:
        message: what the rounds are agreed on.
        identity: the party's 32-byte Ed25519 secret, where parties sign.
        entropy: where secrets come from.
    """

    def __init__(
        self,
        message: wire.SecureSetup,
        identity: bytes | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        self._layout = Layout(message.n_items, message.width, message.n_totals)
        bounds = Bounds(message.row_bound, message.total_bound)
        self._codec = bounds.codec(self._layout, message.solver, message.n_parties)
        self._suppressed = np.array(message.suppressed, np.int32)
        self.n_parties = message.n_parties
        self._session = SessionClient(
            agreed_setup(message), message.party, entropy=entropy, identity=identity
        )

    def answer(self, message: wire.SecureTrip, update: wire.Update | None) -> wire.SecureTrip:
        """Answer a trip; on the first one, with the round's update."""
        if message.trip == 2:
            return wire.SecureTrip(2, self._session.check(message.data))
        if message.trip == 3:
            return wire.SecureTrip(3, self._session.second(message.data))
        vector = np.zeros(self._layout.length)
        if update is not None:
            kept = ~np.isin(update.items, self._suppressed)
            vector = self._layout.pack(update.items[kept], update.rows[kept], update.totals)
        return wire.SecureTrip(1, self._session.first(message.data, self._codec.encode(vector)))
