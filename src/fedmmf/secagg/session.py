"""Many rounds among the same parties at two round trips each, with fresh keys in every round.

    first trip of round t:   boxes of t                   -> masked input of t, keys of t + 1
    second trip of round t:  request of t, keys of t + 1  -> shares revealed of t, boxes of t + 1

The active variant has one trip more between the two, for the consistency check. Round 0 sums
nothing and only starts the pipeline. A party that misses a trip is out of the round that trip
belongs to, and perhaps of the next; its answer to the first trip of a later round brings it back.

A round is a `Client` or `Server` of its own, with its own `Setup`; this file only carries two of
them at a time. If a round is aborted, the next one goes on.
"""

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from fedmmf.arrays import Array
from fedmmf.secagg.client import Client
from fedmmf.secagg.errors import BelowThresholdError, RoundError, SecAggError, require
from fedmmf.secagg.framing import name
from fedmmf.secagg.server import Receipt, Server
from fedmmf.secagg.setup import SERVER, Setup
from fedmmf.secagg.shamir import Entropy

_PARTS = struct.Struct("<4s16sBIII")  # magic, session, trip, round, sizes of the two parts
_MAGIC = b"FMSS"
_FIRST, _CHECK, _SECOND = 1, 2, 3


@lru_cache(maxsize=8)
def setup_of(setup: Setup, number: int) -> Setup:
    """Return the setup of one round of a session."""
    return replace(setup, round_id=setup.round_id + struct.pack("<I", number))


@dataclass(frozen=True)
class Trip:
    """One message of a session: a part of this round and a part of the next, either empty."""

    trip: int
    number: int
    current: bytes = b""
    following: bytes = b""

    def encode(self, setup: Setup) -> bytes:
        """Write the message."""
        sizes = len(self.current), len(self.following)
        head = _PARTS.pack(_MAGIC, setup.context[:16], self.trip, self.number, *sizes)
        return head + self.current + self.following

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> "Trip":
        """Read the message."""
        who = name(sender)
        require(len(data) >= _PARTS.size, who, f"needs {_PARTS.size} bytes; got {len(data)}")
        magic, tag, trip, number, current, following = _PARTS.unpack_from(data)
        require(magic == _MAGIC and _FIRST <= trip <= _SECOND, who, "not a message of a session")
        require(tag == setup.context[:16], who, "it belongs to another session or setup")
        size = _PARTS.size + current + following
        require(len(data) == size, who, f"must have {size} bytes; got {len(data)}")
        middle = _PARTS.size + current
        return cls(trip, number, data[_PARTS.size : middle], data[middle:])


class SessionClient:
    """A party over many rounds.

    Args:
        setup: of the session; its `round_id` names the session and has at most 60 bytes.
        party: its number.
        entropy: where secrets come from.
        identity: its 32-byte Ed25519 secret, when active.
    """

    def __init__(
        self,
        setup: Setup,
        party: int,
        *,
        entropy: Entropy = os.urandom,
        identity: bytes | None = None,
    ) -> None:
        self.setup, self.party = setup, party
        self._entropy, self._identity = entropy, identity
        self._done = (-1, _SECOND)  # the last (round, trip) that was answered
        self._current: Client | None = None
        self._following: Client | None = None
        self._boxes = b""  # of the following round, once made

    def first(self, data: bytes, values: Array) -> bytes:
        """Answer the first trip of a round; `values` count only if this party is in the round."""
        message = self._read(data, _FIRST)
        current = self._following if message.number == self._done[0] + 1 else None
        masked = b""
        if message.current:
            masked = _running(current).masked_input(message.current, values)
        following = self._client(message.number + 1)
        self._current = current if masked else None
        self._following, self._boxes = following, b""
        return self._write(message, masked, following.advertise())

    def check(self, data: bytes) -> bytes:
        """Answer the consistency check of a round (active variant)."""
        message = self._read(data, _CHECK)
        return self._write(message, _running(self._current).confirm(message.current))

    def second(self, data: bytes) -> bytes:
        """Answer the second trip of a round."""
        message = self._read(data, _SECOND)
        if message.following and not self._boxes:
            self._boxes = _running(self._following).share_keys(message.following)
        revealed = b""
        if message.current:
            revealed = _running(self._current).unmask(message.current)
        self._current = None
        return self._write(message, revealed, self._boxes)

    def _read(self, data: bytes, trip: int) -> Trip:
        message, who = Trip.decode(self.setup, SERVER, data), name(SERVER)
        place = (message.number, message.trip)
        require(message.trip == trip, who, f"trip {trip} was asked for; got {message.trip}")
        require(place > self._done, who, f"round and trip {place} do not follow {self._done}")
        begun = trip == _FIRST or message.number == self._done[0]
        require(begun, who, f"this party did not begin round {message.number}")
        return message

    def _write(self, message: Trip, current: bytes, following: bytes = b"") -> bytes:
        self._done = (message.number, message.trip)
        return Trip(message.trip, message.number, current, following).encode(self.setup)

    def _client(self, number: int) -> Client:
        setup = setup_of(self.setup, number)
        return Client(setup, self.party, entropy=self._entropy, identity=self._identity)


class SessionServer:
    """The server over many rounds.

    For each round: `first`, `receive`, [`check`, `receive`,] `second`, `receive`, `result`.

    Args:
        setup: of the session, as every party has it.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup, self.number = setup, 0
        self.survivors: tuple[int, ...] = ()  # of the last round that ended
        self._trip = 0
        self._current: Server | None = None
        self._following = Server(setup_of(setup, 1))
        self._boxes: dict[int, bytes] = {}
        self._failed: dict[Server | None, BelowThresholdError] = {}

    def first(self) -> dict[int, bytes]:
        """Return the first trip, for all: who is not in this round is invited to the next."""
        self._move(_FIRST, 0)
        return self._messages(self.setup.parties, self._boxes, {})

    def check(self) -> dict[int, bytes]:
        """Return the consistency check, for the survivors (active variant)."""
        self._move(_CHECK, _FIRST)
        survivors = self._close(self._current)
        return self._messages(survivors, survivors, {})

    def second(self) -> dict[int, bytes]:
        """Return the second trip: the request of this round and the keys of the next."""
        self._move(_SECOND, _CHECK if self.setup.active else _FIRST)
        request, keys = self._close(self._current), self._close(self._following)
        return self._messages({*request, *keys}, request, keys)

    def receive(self, party: int, data: bytes) -> Receipt:
        """Take one answer; raise `SecAggError` if a part is not right, and do without that part."""
        message = Trip.decode(self.setup, party, data)
        place, due = (message.number, message.trip), (self.number, self._trip)
        if place < due:
            return Receipt.LATE
        require(place == due, name(party), f"out of turn: round and trip {due} are due")
        try:
            if self._current is not None and message.current:
                self._current.receive(party, message.current)
        finally:
            if message.following:
                self._following.receive(party, message.following)
        return Receipt.ACCEPTED

    def result(self) -> Array | None:
        """End the round and return its sum, or None for round 0.

        If the round fell below its threshold the error is raised here, when the next round is
        ready: go on with `first`.
        """
        self._move(0, _SECOND)
        self._boxes = self._close(self._following)
        ended, self._current, self.survivors = self._current, self._following, ()
        self.number += 1
        self._following = Server(setup_of(self.setup, self.number + 1))
        if ended in self._failed:
            raise self._failed.pop(ended)
        if ended is None:
            return None
        total = ended.result()
        self.survivors = ended.survivors
        return total

    def _move(self, trip: int, after: int) -> None:
        if self._trip != after:
            raise RoundError(f"round {self.number}: trip {trip} does not follow {self._trip}")
        self._trip = trip

    def _close(self, server: Server | None) -> dict[int, bytes]:
        if server is None or server in self._failed:
            return {}
        try:
            return server.next_messages()
        except BelowThresholdError as error:
            self._failed[server] = error
            return {}

    def _messages(
        self, parties: Iterable[int], current: Mapping[int, bytes], following: Mapping[int, bytes]
    ) -> dict[int, bytes]:
        return {
            party: Trip(
                self._trip, self.number, current.get(party, b""), following.get(party, b"")
            ).encode(self.setup)
            for party in parties
        }


def _running(client: Client | None) -> Client:
    if client is None:
        raise SecAggError(name(SERVER), "this party is not in that round")
    return client
