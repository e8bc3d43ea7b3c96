"""A party's side of homomorphic sums: rounds arrive sealed, updates leave encrypted."""

import os
import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fedmmf import wire
from fedmmf.aggregation.layout import Bounds, Layout
from fedmmf.aggregation.schemes import load_public
from fedmmf.errors import WireError
from fedmmf.secagg import FixedPoint
from fedmmf.secagg.keys import derive, digest

_NONCE_BYTES = 12


def channel_key(key: wire.HomomorphicKey) -> bytes:
    """The AES key of everything that goes down, for this public key alone."""
    return derive(key.channel, digest(key.public), b"homomorphic rounds")


def seal(key: wire.HomomorphicKey, round_: int, task: wire.Task) -> wire.SealedRound:
    """Encrypt and authenticate what all parties are sent in a round."""
    nonce = os.urandom(_NONCE_BYTES)
    box = AESGCM(channel_key(key)).encrypt(nonce, task.encode(), _associated(round_))
    return wire.SealedRound(round_, nonce, box)


def unseal(key: wire.HomomorphicKey, message: wire.SealedRound) -> wire.Task:
    """The task; raises where anything about it is not as it was sealed."""
    try:
        aead = AESGCM(channel_key(key))
        return wire.Task.decode(
            aead.decrypt(message.nonce, message.box, _associated(message.round))
        )
    except InvalidTag:
        raise WireError(
            f"the box of round {message.round} was not sealed for that round by the holder of "
            "this party's key"
        ) from None


def sum_codec(key: wire.HomomorphicKey, layout: Layout, solver: str) -> FixedPoint:
    """Fixed point of the sums under a key; the same for the keeper and every party."""
    return Bounds.of(solver, key.span).codec(layout, solver, key.n_parties)


def largest_sum(codec: FixedPoint) -> int:
    """The largest absolute value that an entry of an honest sum can have, as an integer."""
    return int(codec.n_parties * codec.bound.max())


class HomomorphicParty:
    """One party in the rounds of one training; a key serves one training.

    Args:
        key: as the keeper handed it out.
    """

    def __init__(self, key: wire.HomomorphicKey) -> None:
        self._key = key
        self._public = load_public(key.scheme, key.public)
        self._last_round = -1  # a survey has the number 0

    @property
    def n_parties(self) -> int:
        """How many parties a sum has at most."""
        return self._key.n_parties

    def unseal(self, message: wire.SealedRound) -> wire.Task:
        """The task of a round; each is taken once, so that a replay brings no second answer."""
        task = unseal(self._key, message)
        if message.round <= self._last_round:
            text = f"round {self._last_round} was answered already; got round {message.round}"
            raise WireError(f"rounds must increase: {text}")
        self._last_round = message.round
        return task

    def encrypt(self, task: wire.Task, update: wire.Update) -> wire.Ciphertexts:
        """Answer a task with an update."""
        solver = _solver_of(task)
        if solver is None:
            return wire.Ciphertexts(update.round, b"")
        layout = Layout(task.n_items, update.rows.shape[1], len(update.totals))
        codec = sum_codec(self._key, layout, solver)
        kept = ~np.isin(update.items, np.array(task.suppressed, np.int32))
        vector = layout.pack(update.items[kept], update.rows[kept], update.totals)
        data = self._public.encrypt(codec.quantize(vector), largest_sum(codec))
        return wire.Ciphertexts(update.round, data)


def _solver_of(task: wire.Task) -> str | None:
    """Whose numbers are summed; None after the last round, where none are."""
    if wire.kind_of(task.message) == wire.Survey.kind:
        return "sgd"
    round_ = wire.Round.decode(task.message)
    return None if round_.is_last else round_.solver


def _associated(round_: int) -> bytes:
    return b"fedmmf homomorphic round" + struct.pack("<I", round_)
