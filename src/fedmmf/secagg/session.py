"""Many rounds among the same parties at two round trips each, with fresh keys in every round.

    first trip of round t:   boxes of t                   -> masked input of t, keys of t + 1
    second trip of round t:  request of t, keys of t + 1  -> shares revealed of t, boxes of t + 1

The active variant has one trip more between the two, for the consistency check. Round 0 sums
nothing and only starts the pipeline. A party that misses a trip is out of the round that trip
belongs to, and perhaps of the next; its answer to the first trip of a later round brings it back.

A round is a `RoundClient` or `RoundServer` of its own, with its own `Setup`; this file only carries
two of them at a time. If a round is aborted, the next one goes on. A message is taken whole or
refused whole: whoever refuses it is as it was before, and the right one may still follow.
"""

import os
import struct
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache

from fedmmf.arrays import Array
from fedmmf.secagg.client import RoundClient, require_member
from fedmmf.secagg.errors import PolicyError, SecAggError, require
from fedmmf.secagg.framing import reader_of
from fedmmf.secagg.setup import LARGEST_NAME, SERVER, Setup
from fedmmf.secagg.shamir import Entropy

_PARTS = struct.Struct("<4s16sBIII")  # magic, session, trip, round, sizes of the two parts
_MAGIC = b"FMSS"
FIRST, CHECK, SECOND = 1, 2, 3
_ROUND = struct.Struct("<I")  # behind the session's name: the name of a round
_LAST = (1 << 8 * _ROUND.size) - 1
TRIP_BYTES = _PARTS.size  # of a trip whose parts are empty


@lru_cache(maxsize=4)
def setup_of(setup: Setup, number: int) -> Setup:
    """Return the setup of one round of a session."""
    if number > _LAST:
        raise PolicyError(f"a session has rounds up to {_LAST}; got {number}. Begin a new one.")
    return replace(setup, round_id=setup.round_id + _ROUND.pack(number))


@dataclass(frozen=True)
class Trip:
    """One message of a session: a part of this round and a part of the next, either empty."""

    trip: int
    number: int
    current: bytes = b""
    following: bytes = b""

    def encode(self, setup: Setup) -> bytes:
        """Encode the trip: a header, then the parts of this and the next round."""
        sizes = len(self.current), len(self.following)
        head = _PARTS.pack(_MAGIC, setup.context[:16], self.trip, self.number, *sizes)
        return head + self.current + self.following

    @classmethod
    def decode(cls, setup: Setup, sender: int, data: bytes) -> "Trip":
        """Decode a trip from `sender`, checking session, trip and sizes."""
        reader = reader_of(sender, data)
        magic, tag, trip, number, *sizes = reader.unpack(_PARTS)
        reader.require(magic == _MAGIC and FIRST <= trip <= SECOND, "not a message of a session")
        reader.require(tag == setup.context[:16], "it belongs to another session or setup")
        parts = [reader.take(size) for size in sizes]
        reader.end()
        return cls(trip, number, *map(bytes, parts))


class SessionClient:
    """A party's state machine over many rounds.

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
        require_short(setup)
        require_member(setup, party, identity)
        self.setup, self.party = setup, party
        self._entropy, self._identity = entropy, identity
        self._done = (-1, SECOND)  # the last (round, trip) that was answered
        self._current: RoundClient | None = None
        self._following: RoundClient | None = None

    def first(self, data: bytes, values: Array, about: bytes = b"") -> bytes:
        """Answer the first trip of a round; `values` count only if this party is in the round.

        Args:
            data: what the server sent.
            values: this party's ring elements. (length,)
            about: name of what is summed; see `RoundClient.masked_input`.
        """
        message = self._read(data, FIRST)
        current = self._following if message.number == self._done[0] + 1 else None
        following = self._client(message.number + 1)
        advertised, masked = following.advertise(), b""
        if message.current:
            masked = _running(current).masked_input(message.current, values, about)
        self._current, self._following = current if masked else None, following
        return self._write(message, masked, advertised)

    def check(self, data: bytes) -> bytes:
        """Answer the consistency check of a round (active variant)."""
        message = self._read(data, CHECK)
        return self._write(message, _running(self._current).confirm(message.current))

    def second(self, data: bytes) -> bytes:
        """Answer the second trip of a round."""
        message = self._read(data, SECOND)
        following, boxes, revealed = copy(self._following), b"", b""
        if message.following:
            boxes = _running(following).share_keys(message.following)
        if message.current:
            revealed = _running(self._current).unmask(message.current)
        self._current, self._following = None, following
        return self._write(message, revealed, boxes)

    def _read(self, data: bytes, trip: int) -> Trip:
        message = Trip.decode(self.setup, SERVER, data)
        place = (message.number, message.trip)
        require(message.trip == trip, SERVER, f"trip {trip} was asked for; got {message.trip}")
        require(place > self._done, SERVER, f"round and trip {place} do not follow {self._done}")
        begun = trip == FIRST or message.number == self._done[0]
        require(begun, SERVER, f"this party did not begin round {message.number}")
        require(
            message.number < _LAST, SERVER, f"round {message.number} leaves no number for a next"
        )
        alone = trip == SECOND or not message.following
        require(alone, SERVER, "only the second trip brings a part of the next round")
        return message

    def _write(self, message: Trip, current: bytes, following: bytes = b"") -> bytes:
        self._done = (message.number, message.trip)
        return Trip(message.trip, message.number, current, following).encode(self.setup)

    def _client(self, number: int) -> RoundClient:
        setup = setup_of(self.setup, number)
        return RoundClient(setup, self.party, entropy=self._entropy, identity=self._identity)


def require_short(setup: Setup) -> None:
    """Raise unless the session's name leaves room for the number of a round."""
    most, given = LARGEST_NAME - _ROUND.size, len(setup.round_id)
    if given > most:
        raise PolicyError(f"the round_id of a session has at most {most} bytes; got {given}")


def _running(client: RoundClient | None) -> RoundClient:
    if client is None:
        raise SecAggError(SERVER, "this party is not in that round")
    return client
