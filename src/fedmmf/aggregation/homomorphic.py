"""Homomorphic sums (Chai et al. 2020, "Secure Federated Matrix Factorization").

The server relays and adds ciphertexts, and has no key. One party, the keeper, runs
`coordinator.Server`: it decrypts the sum and steps the item factors. In Chai et al. the server
steps them under encryption, which the linear rule `sum` alone allows, and every user decrypts them
in every round. Here the same ciphertexts go up, any solver and step rule will do, and nobody learns
more: the users learn the item factors, as there, and from two rounds of them the sums.

The keeper alone can decrypt. Parties hold the public key to encrypt and a shared secret under which
the rounds come down, so a party that colludes with the server reads nobody's update; in Chai et al.
it reads them all. The keeper must not collude, and the server must do what it is asked: one that
gives the keeper one party's ciphertexts as the sum shows it that party's update.
"""

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.homomorphic_party import largest_sum, seal, sum_codec
from fedmmf.aggregation.layout import Layout, rare_items
from fedmmf.aggregation.schemes import SecretKey, load_public
from fedmmf.aggregation.secure import MIN_RATERS
from fedmmf.arrays import Array
from fedmmf.coordinator import Transport, n_update_totals
from fedmmf.errors import DataError, WireError
from fedmmf.factorization.contract import ItemSums
from fedmmf.secagg import BelowThresholdError, FixedPoint

MIN_PARTIES = 3  # a sum over fewer would show the keeper too much of one update
PARTY_SECONDS = 3600.0  # 2048-bit Paillier, one ciphertext per number, takes a party many minutes


class KeyHolder(Protocol):
    """A party that can be given a key."""

    def hold_key(self, key: wire.HomomorphicKey) -> None:
        """Use this key from now on."""


def hand_out(parties: Mapping[str, KeyHolder], key: wire.HomomorphicKey) -> None:
    """Give the key to parties of this process; elsewhere it needs a channel of its own."""
    for party in parties.values():
        party.hold_key(key)


class BlindSum:
    """The server's part of a round: it adds ciphertexts that it cannot read.

    Args:
        scheme: one of `wire.SCHEMES`.
        public: the public key.
        round_: whose ciphertexts are added.
        length: entries of a vector.
        limit: largest absolute value of an entry of the sum.
    """

    def __init__(self, scheme: str, public: bytes, round_: int, length: int, limit: int) -> None:
        self._public = load_public(scheme, public)
        self._round, self._length, self._limit = round_, length, limit
        self._total: list[Any] | None = None
        self.added: list[str] = []
        self.refused: dict[str, str] = {}

    def receive(self, party: str, data: bytes) -> None:
        """Add a party's answer, or note why not."""
        try:
            part = self._read(wire.Ciphertexts.decode(data))
        except WireError as error:
            self.refused[party] = str(error)
            return
        self._total = part if self._total is None else self._public.add(self._total, part)
        self.added.append(party)

    def _read(self, message: wire.Ciphertexts) -> list[Any]:
        if message.round != self._round:
            raise WireError(f"ciphertexts of round {self._round} are due; got {message.round}")
        return self._public.read(message.data, self._length, self._limit)

    def total(self) -> bytes:
        """Ciphertexts of the sum, for the keeper."""
        if self._total is None or len(self.added) < MIN_PARTIES:
            raise BelowThresholdError("homomorphic sum", len(self.added), MIN_PARTIES)
        return self._public.write(self._total)


class Homomorphic:
    """Parties behind a transport, summed under encryption; this object is the keeper's.

    Give `key` to the parties before the first round, with `hand_out` or over a channel that the
    server cannot read.

    Args:
        transport: carries the bytes, past the server.
        parties: their names.
        span: of the rating scale, for the bounds of the fixed-point numbers.
        secret: the keeper's key, for this training alone; see `schemes.generate`.
        min_raters: after a survey, items with fewer raters are left out.
        timeout: seconds that a round stays open.
    """

    def __init__(
        self,
        transport: Transport,
        parties: list[str],
        span: float,
        secret: SecretKey,
        *,
        min_raters: int = MIN_RATERS,
        timeout: float = PARTY_SECONDS,
    ) -> None:
        self._transport, self._parties, self._timeout = transport, parties, timeout
        self._secret, self._min_raters = secret, min_raters
        self._suppressed: tuple[int, ...] = ()
        channel = os.urandom(32)
        self.key = wire.HomomorphicKey(secret.name, len(parties), span, channel, secret.public)
        self.survivors: list[str] = []  # whose updates are in the last sum
        self.refused: dict[str, str] = {}

    def survey(self, n_items: int, *, with_ratings: bool) -> ItemSums:
        """How many parties rated each item and, if asked for, the sums of their ratings.

        From then on, items with fewer than `min_raters` are left out of every round.
        """
        message = wire.Survey(with_ratings).encode()
        sums = self._sum(0, Layout(n_items, 1, 0), "sgd", message)
        self._suppressed = rare_items(sums, self._min_raters)
        return sums

    def sums(self, message: wire.Round) -> ItemSums:
        """Run one round; who does not answer, or answers nonsense, is left out."""
        n_items, width = message.public.item_rows.shape
        layout = Layout(n_items, width, n_update_totals(message.solver, message.public))
        sums = self._sum(message.round, layout, message.solver, message.encode())
        sums.totals[0] = np.rint(sums.totals[0])  # held-out ratings are counted; CKKS leaves noise
        return sums

    def finish(self, message: wire.Round) -> None:
        """Send the final factors to everybody."""
        n_items = len(message.public.item_rows)
        self._ask("finish", message.round, n_items, message.encode())

    def _sum(self, round_: int, layout: Layout, solver: str, message: bytes) -> ItemSums:
        codec = sum_codec(self.key, layout, solver)
        limit = largest_sum(codec)
        blind = BlindSum(self.key.scheme, self.key.public, round_, layout.length, limit)
        for party, data in self._ask("round", round_, layout.n_items, message).items():
            blind.receive(party, data)
        self.survivors = blind.added
        self.refused |= blind.refused
        total = self._secret.decrypt(blind.total(), layout.length, limit)
        error = self._secret.largest_error(len(self._parties), limit)
        return layout.unpack(decode(codec, total, error))

    def _ask(self, stage: str, round_: int, n_items: int, message: bytes) -> dict[str, bytes]:
        task = wire.Task(n_items, message, self._suppressed)
        sealed = seal(self.key, round_, task).encode()
        return self._transport.exchange(stage, dict.fromkeys(self._parties, sealed), self._timeout)


def decode(codec: FixedPoint, total: Array, error: float) -> Array:
    """The real numbers of a sum of integers that is known up to an error. (length,) float64."""
    reach = codec.n_parties * codec.bound
    if (np.abs(total) > reach + error).any():
        raise DataError(
            f"the sum exceeds what {codec.n_parties} honest parties can reach: "
            "some party did not clip its update"
        )
    return np.asarray(np.clip(total, -reach, reach) / codec.scale)
