"""The server over many rounds; see `session` for the trips."""

from collections.abc import Iterable, Mapping

from fedmmf.arrays import Array
from fedmmf.secagg.errors import BelowThresholdError, RoundError, require
from fedmmf.secagg.server import Receipt, RoundServer
from fedmmf.secagg.session import CHECK, FIRST, SECOND, Trip, require_short, setup_of
from fedmmf.secagg.setup import Setup


class SessionServer:
    """The server's state machine over many rounds.

    For each round: `first`, `receive`, [`check`, `receive`,] `second`, `receive`, `result`. An
    answer is taken with both its parts or with neither.

    Args:
        setup: of the session, as every party has it.
    """

    def __init__(self, setup: Setup) -> None:
        require_short(setup)
        self.setup, self.number = setup, 0
        self.survivors: tuple[int, ...] = ()  # of the last round that ended
        self.wrong: frozenset[int] = frozenset()  # who revealed wrong shares in it
        self.complaints: Mapping[int, set[int]] = {}  # which holders complain of each party in it
        self._trip = 0
        self._current: RoundServer | None = None
        self._following = RoundServer(setup_of(setup, 1))
        self._boxes: dict[int, bytes] = {}
        self._failed: dict[RoundServer | None, BelowThresholdError] = {}

    def first(self, about: bytes = b"") -> dict[int, bytes]:
        """Return the first trip, for all: who is not in this round is invited to the next.

        Args:
            about: name of what is summed, as sent to the parties.
        """
        self._move(FIRST, 0)
        if self._current is not None:
            self._current.about = about
        return self._messages(self.setup.parties, self._boxes, {})

    def check(self) -> dict[int, bytes]:
        """Return the consistency check, for the survivors (active variant)."""
        self._move(CHECK, FIRST)
        survivors = self._close(self._current)
        return self._messages(survivors, survivors, {})

    def second(self) -> dict[int, bytes]:
        """Return the second trip: the request of this round and the keys of the next."""
        self._move(SECOND, CHECK if self.setup.active else FIRST)
        request, keys = self._close(self._current), self._close(self._following)
        return self._messages({*request, *keys}, request, keys)

    def receive(self, party: int, data: bytes) -> Receipt:
        """Take one answer; raise `SecAggError` if it is not right, and stay as before."""
        require(party in self.setup.index, party, "it is not in the cohort")
        message = Trip.decode(self.setup, party, data)
        place, due = (message.number, message.trip), (self.number, self._trip)
        if place < due:
            return Receipt.LATE
        require(place == due, party, f"out of turn: round and trip {due} are due")
        begun = self._current is not None or not message.current
        require(begun, party, f"round {self.number} sums nothing")
        parts = (self._current, message.current), (self._following, message.following)
        readings = [server.reading(party, part) for server, part in parts if server and part]
        for take in readings:
            take()
        return Receipt.ACCEPTED

    def result(self) -> Array | None:
        """End the round and return its sum, or None for round 0.

        If the round fell below its threshold the error is raised here, when the next round is
        ready: go on with `first`.
        """
        self._move(0, SECOND)
        self._boxes = self._close(self._following)
        ended, self._current, self.survivors = self._current, self._following, ()
        self.wrong, self.complaints = frozenset(), {}
        self.number += 1
        self._following = RoundServer(setup_of(self.setup, self.number + 1))
        if ended in self._failed:
            raise self._failed.pop(ended)
        if ended is None:
            return None
        try:
            total = ended.result()
        finally:
            self.wrong, self.complaints = ended.wrong, ended.complaints
        self.survivors = ended.survivors
        return total

    def _move(self, trip: int, after: int) -> None:
        if self._trip != after:
            raise RoundError(f"round {self.number}: trip {trip} does not follow {self._trip}")
        self._trip = trip

    def _close(self, server: RoundServer | None) -> dict[int, bytes]:
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
