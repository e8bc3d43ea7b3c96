"""The server of one round: bytes in, bytes out (Bonawitz et al. 2017, server side).

For each stage: `receive` the answers that come, then `next_messages` closes the stage and gives
what to send to whom; a party that did not answer has dropped out. After the last stage `result`
gives the sum of the survivors and nothing else. There is no clock here: how long a stage stays open
is the caller's business.
"""

from collections.abc import Callable
from enum import Enum, IntEnum
from functools import partial

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import keys, messages
from fedmmf.secagg.errors import BelowThresholdError, RoundError, SecAggError, require
from fedmmf.secagg.framing import kind_of
from fedmmf.secagg.graph import core
from fedmmf.secagg.recovery import Recovery
from fedmmf.secagg.setup import SERVER, Setup
from fedmmf.wire.codec import bit_map

_Keep = Callable[[], None]  # what puts an answer that was checked where it belongs


class Receipt(Enum):
    """Outcome of a message that was not refused."""

    ACCEPTED = "accepted"
    LATE = "late"  # its stage is closed: ignored, the sender counts as dropped out


class Stage(IntEnum):
    """The stage whose answers are due; the values are the kinds of those answers."""

    ADVERTISE = messages.Advertise.kind
    SHARE_KEYS = messages.Shares.kind
    MASKED_INPUT = messages.Masked.kind
    CONFIRM = messages.Confirmed.kind
    UNMASK = messages.Revealed.kind
    DONE = 254
    ABORTED = 255

    @property
    def title(self) -> str:
        """Name of the stage in lower case, for messages to people."""
        return self.name.lower().replace("_", " ")


class RoundServer:
    """The server's state machine in one round.

    Args:
        setup: what all sides agreed on.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.about = b""  # name of what is summed, as sent to the parties
        self.stage = Stage.ADVERTISE
        self._expected: frozenset[int] = frozenset(setup.parties)
        self._answered: set[int] = set()
        self._holders = {party: setup.holders(party) for party in setup.parties}
        self._keys: dict[int, messages.Advertise] = {}
        self._public: set[bytes] = set()  # all keys advertised
        self._shares: dict[int, messages.Shares] = {}
        self._signatures: dict[int, bytes] = {}
        self._revealed: dict[int, messages.Revealed] = {}
        self._total: Array = np.zeros(setup.length, setup.ring.dtype)
        self._waiting: dict[int, dict[int, Array]] = {}  # vectors of batches, until all are there
        self.wrong: frozenset[int] = frozenset()  # who revealed other shares than it was given
        self.complaints: dict[int, set[int]] = {}  # which holders miss a right box, by owner
        self._sharing: frozenset[int] = frozenset()  # U2: whose pairwise masks are in use
        self._survivors: frozenset[int] = frozenset()  # U3: whose vectors are in the sum
        self._request = messages.Request(frozenset(), frozenset())

    @property
    def survivors(self) -> tuple[int, ...]:
        """The parties whose vectors are in the sum, once the masked inputs are in."""
        return tuple(sorted(self._survivors))

    @property
    def expected(self) -> tuple[int, ...]:
        """The parties whose answers are due in this stage and have not come."""
        return tuple(sorted(self._expected - self._answered))

    def receive(self, party: int, data: bytes) -> Receipt:
        """Take one answer; raise `SecAggError` if it is not right, and stay as before."""
        return self.reading(party, data)()

    def reading(self, party: int, data: bytes) -> Callable[[], Receipt]:
        """Check one answer and return what takes it; only the check can fail.

        A session's message has parts for two rounds: both are checked before either is taken.
        """
        require(party in self.setup.index, party, "it is not in the cohort")
        kind = kind_of(self.setup, party, data)
        require(kind in _ANSWERS, party, f"kind {kind} is not for the server")
        if kind < self.stage:
            return lambda: Receipt.LATE
        require(kind == self.stage, party, f"out of turn: '{self.stage.title}' is due")
        require(party in self._expected, party, "it dropped out of this round before")
        require(party not in self._answered, party, f"duplicate in '{self.stage.title}'")
        keep = _ANSWERS[kind](self, party, data)

        def take() -> Receipt:
            keep()
            self._answered.add(party)
            return Receipt.ACCEPTED

        return take

    def next_messages(self) -> dict[int, bytes]:
        """Close the stage; return what to send to each party for the next one."""
        if self.stage not in _CLOSING:
            raise RoundError(f"no stage follows: the round is at '{self.stage.title}'")
        return _CLOSING[self.stage](self)

    def result(self) -> Array:
        """Close the last stage; return the sum of the survivors' vectors."""
        if self.stage is not Stage.UNMASK:
            raise RoundError(f"there is no result: the round is at '{self.stage.title}'")
        self._require_holders(self._answered, self._survivors)
        sent = (self._keys, self._shares)
        recovery = Recovery(self.setup, *sent, self._sharing, self._survivors, self.about)
        try:
            recovery.remove_masks(self._total, self._revealed)
        except (SecAggError, BelowThresholdError):
            self.abort()
            raise
        finally:
            self.wrong = frozenset(recovery.wrong)
        total = self._total
        self._forget(Stage.DONE)
        return total

    def abort(self) -> None:
        """Abort the round and release everything it held."""
        self._forget(Stage.ABORTED)
        self._survivors = frozenset()

    def _add(self, party: int, vector: Array) -> None:
        """Add a vector once its batch is complete; incomplete batches are not summed."""
        mates = self.setup.mates(party)
        waiting = self._waiting.setdefault(mates[0], {})
        waiting[party] = vector
        if len(waiting) == len(mates):
            for mine in self._waiting.pop(mates[0]).values():
                self.setup.ring.add_into(self._total, mine)

    def _read_keys(self, party: int, data: bytes) -> _Keep:
        key = messages.Advertise.decode(self.setup, party, data)
        own = {key.channel, key.mask}
        require(all(map(keys.is_proper, own)), party, "its public key is not a proper point")
        is_new = len(own) == 2 and own.isdisjoint(self._public)
        require(is_new, party, "its public keys are not two new ones")
        if self.setup.active:
            public, text = self.setup.identity(party), key.channel + key.mask
            signed = keys.is_signed(public, key.signature, b"keys", self.setup.context, text)
            require(signed, party, "the signature under its keys is not valid")

        def keep() -> None:
            self._keys[party] = key
            self._public |= own

        return keep

    def _read_shares(self, party: int, data: bytes) -> _Keep:
        shares = messages.Shares.decode(self.setup, party, data)
        wanted = self._expected.intersection(self.setup.peers(party))
        given = shares.boxes.keys()
        require(given == wanted, party, f"boxes must be for its {len(wanted)} neighbours")
        return partial(self._shares.__setitem__, party, shares)

    def _read_vector(self, party: int, data: bytes) -> _Keep:
        masked = messages.Masked.decode(self.setup, party, data)
        if self.setup.active:
            public, text = self.setup.identity(party), masked.signed(self.about)
            signed = keys.is_signed(public, masked.signature, b"vector", self.setup.context, text)
            require(signed, party, "the signature under its vector is not valid")
        return partial(self._add, party, masked.vector)

    def _read_signature(self, party: int, data: bytes) -> _Keep:
        signature = messages.Confirmed.decode(self.setup, party, data).signature
        text = bit_map(self.setup.index).write(self._survivors) + self.about
        public = self.setup.identity(party)
        signed = keys.is_signed(public, signature, b"survivors", self.setup.context, text)
        require(signed, party, "the signature over the survivors is not valid")
        return partial(self._signatures.__setitem__, party, signature)

    def _read_revealed(self, party: int, data: bytes) -> _Keep:
        revealed = messages.Revealed.decode(self.setup, party, data)
        wanted = self._sharing.intersection(self._holders[party])
        right = revealed.shares.keys() <= wanted
        require(right, party, f"shares must be of its {len(wanted)} owners")

        def keep() -> None:
            self._revealed[party] = revealed
            for owner in wanted.difference(revealed.shares):
                self.complaints.setdefault(owner, set()).add(party)

        return keep

    def _close_advertise(self) -> dict[int, bytes]:
        alive = self._close(Stage.SHARE_KEYS)
        return {
            party: messages.Keys(
                {peer: self._keys[peer] for peer in self._holders[party] if peer in others}
            ).encode(self.setup, SERVER)
            for party in alive
            for others in [alive - {party}]
        }

    def _close_share_keys(self) -> dict[int, bytes]:
        alive = self._sharing = self._close(Stage.MASKED_INPUT)
        return {
            party: messages.Boxes(
                {
                    peer: self._shares[peer].boxes[party]
                    for peer in self._holders[party]
                    if peer in alive and peer != party
                }
            ).encode(self.setup, SERVER)
            for party in alive
        }

    def _close_masked_input(self) -> dict[int, bytes]:
        self._waiting = {}
        survivors = self.setup.whole(frozenset(self._answered))
        self._require_cohort(len(survivors))
        self._require_holders(survivors, survivors)
        self._survivors = survivors
        self._request = messages.Request(survivors, self._sharing - survivors)
        if not self.setup.active:
            self._advance(Stage.UNMASK, survivors)
            return dict.fromkeys(survivors, self._request.encode(self.setup, SERVER))
        self._advance(Stage.CONFIRM, survivors)
        return dict.fromkeys(survivors, messages.Survivors(survivors).encode(self.setup, SERVER))

    def _close_confirm(self) -> dict[int, bytes]:
        signers = frozenset(self._answered)
        self._require_holders(signers, self._survivors)
        self._advance(Stage.UNMASK, signers)
        return {party: self._signed_request(party).encode(self.setup, SERVER) for party in signers}

    def _signed_request(self, party: int) -> messages.Request:
        near = self.setup.around(party)
        signatures = {p: s for p, s in self._signatures.items() if p in near and p != party}
        return messages.Request(self._request.survivors, self._request.dropped, signatures)

    def _close(self, following: Stage) -> frozenset[int]:
        """Leave out whoever has too few holders left; abort if too few parties remain."""
        alive = core(self._holders, self._answered, self.setup.threshold)
        self._require_cohort(len(self._answered))
        self._require_cohort(len(alive), "parties with enough holders left")
        self._advance(following, alive)
        return alive

    def _require_cohort(self, count: int, whom: str = "parties") -> None:
        if count < self.setup.least:
            self._fail(count, self.setup.least, whom)

    def _require_holders(
        self, answered: set[int] | frozenset[int], survivors: frozenset[int]
    ) -> None:
        """Abort unless enough answered, in all and among the holders of each owner."""
        if len(answered) < self.setup.threshold:
            self._fail(len(answered), self.setup.threshold)
        for owner in self._sharing:
            holders = self._holders[owner]
            is_needed = not survivors.isdisjoint(holders)  # its masks are in the sum
            count = len(answered.intersection(holders))
            if is_needed and count < self.setup.threshold:
                self._fail(count, self.setup.threshold, f"holders of party {owner}", owner)

    def _fail(
        self, answered: int, needed: int, whom: str = "parties", owner: int | None = None
    ) -> None:
        title = self.stage.title
        self.abort()
        raise BelowThresholdError(title, answered, needed, whom, owner)

    def _advance(self, stage: Stage, expected: frozenset[int]) -> None:
        self.stage, self._expected, self._answered = stage, expected, set()

    def _forget(self, stage: Stage) -> None:
        self._advance(stage, frozenset())
        self._keys, self._shares, self._signatures, self._revealed = {}, {}, {}, {}
        self._public, self._waiting = set(), {}
        self._total = np.zeros(0, self.setup.ring.dtype)


_ANSWERS: dict[int, Callable[[RoundServer, int, bytes], _Keep]] = {
    Stage.ADVERTISE: RoundServer._read_keys,
    Stage.SHARE_KEYS: RoundServer._read_shares,
    Stage.MASKED_INPUT: RoundServer._read_vector,
    Stage.CONFIRM: RoundServer._read_signature,
    Stage.UNMASK: RoundServer._read_revealed,
}
_CLOSING: dict[Stage, Callable[[RoundServer], dict[int, bytes]]] = {
    Stage.ADVERTISE: RoundServer._close_advertise,
    Stage.SHARE_KEYS: RoundServer._close_share_keys,
    Stage.MASKED_INPUT: RoundServer._close_masked_input,
    Stage.CONFIRM: RoundServer._close_confirm,
}
