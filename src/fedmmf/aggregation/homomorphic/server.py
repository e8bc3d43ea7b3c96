"""The keeper's and the blind server's side of homomorphic aggregation."""

import os
from typing import Any

import numpy as np

from fedmmf.aggregation.contract import Work, asked_by, bounds_of
from fedmmf.aggregation.homomorphic.messages import Ciphertexts, HomomorphicKey, seal
from fedmmf.aggregation.homomorphic.schemes import SecretKey, generate, load_public
from fedmmf.aggregation.rare_items import HidingServer
from fedmmf.aggregation.server_side import ServerContext
from fedmmf.aggregation.vector import SumCodec, codec_of
from fedmmf.errors import WireError
from fedmmf.secagg import BelowThresholdError
from fedmmf.solvers.contract import ItemSums
from fedmmf.wire import Ask, Layout, Round, Survey, name_of

MIN_PARTIES = 3  # a sum over fewer would show the keeper too much of one update


class BlindSum:
    """The server's part of a round: it adds ciphertexts that it cannot read."""

    def __init__(self, key: HomomorphicKey, round_: int, codec: SumCodec) -> None:
        self.public = load_public(key.scheme, key.public)
        self._round, self._length, self._limit = round_, codec.length, codec.largest
        self._total: list[Any] | None = None
        self.added: list[str] = []

    def receive(self, party: str, message: Ciphertexts) -> None:
        """Add a party's answer; raise `WireError` if it is not the answer expected."""
        if message.round != self._round:
            raise WireError(f"ciphertexts of round {self._round} are due; got {message.round}")
        if party in self.added:
            raise WireError(f"{party} is in the sum already; once more would make it count twice")
        part = self.public.read(message.data, self._length, self._limit)
        self._total = part if self._total is None else self.public.add(self._total, part)
        self.added.append(party)

    def total(self) -> bytes:
        """Serialized ciphertexts of the sum, for the keeper."""
        if self._total is None or len(self.added) < MIN_PARTIES:
            raise BelowThresholdError("homomorphic sum", len(self.added), MIN_PARTIES)
        return self.public.write(self._total)


class KeeperServer(HidingServer):
    """The keeper's server side: it asks the parties, and a blind server adds their ciphertexts.

    Args:
        context: what the server lends.
        scheme: one of `schemes`.
        secret: the keeper's key, for this run alone; None: drawn now.
    """

    def __init__(
        self, context: ServerContext, scheme: str, secret: SecretKey | None = None
    ) -> None:
        super().__init__(context)
        self.secret = secret or generate(scheme)
        public, channel = self.secret.public, os.urandom(32)
        self.key = HomomorphicKey(self.secret.name, context.n_users, channel, public)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round; round the held-out count, on which CKKS leaves noise."""
        sums = super().sums(round_)
        sums.totals[0] = np.rint(sums.totals[0])
        return sums

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Ask all parties; leave out those that do not answer, or answer nonsense."""
        codec, frame = self._codec(work), self.broadcast(work)
        blind = BlindSum(self.key, _number(work), codec)
        questions = dict.fromkeys(self.context.roster.joined, Ask(name_of(frame)))
        replies = self.context.roster.ask(stage, questions, Ciphertexts, broadcast=frame)
        for name, reply in replies.items():
            try:
                blind.receive(name, reply)
            except WireError as error:
                self.context.roster.refuse(name, str(error))
        self.survivors = blind.added
        total = self.secret.decrypt(blind.total(), codec.length, codec.largest)
        most = self.secret.largest_error(self.key.n_users, codec.largest)
        has_raters = asked_by(work) in ("ratings", "updates")
        return codec.sums(total, self.known_raters() if has_raters else None, most)

    def handout(self) -> bytes:
        """Encoded key message that every party is given."""
        return self.key.encode()

    def broadcast(self, work: Work | Layout) -> bytes:
        """Encode a broadcast and seal it, so that the server cannot read it."""
        return seal(self.key, _number(work), work.encode()).encode()

    def _codec(self, work: Work) -> SumCodec:
        context = self.context
        bounds = bounds_of(context.catalogue, context.solver, isinstance(work, Survey))
        return codec_of(self.expected(work), bounds, self.key.n_users, context.solver.ring)


def _number(work: Work | Layout) -> int:
    return work.round if isinstance(work, Round) else 0
