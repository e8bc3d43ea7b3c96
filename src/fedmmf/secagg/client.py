"""One party of one round: bytes in, bytes out (Bonawitz et al. 2017, client side).

    advertise() -> share_keys(data) -> masked_input(data, values) [-> confirm(data)] -> unmask(data)

Each may be called once, in this order. A message that is refused raises and changes nothing, so the
right one may still follow: a method sets attributes when nothing can fail any more, and never
changes what one of them holds, so that a shallow copy of a client is a client of its own.

What protects a party's vector is what it refuses to reveal: of every holder's two shares of a peer,
the share of the self mask goes out only for a survivor and the share of the mask key only for a
dropped one, once, and never both.

Active variant: a holder answers for an owner only if at least t of the owner's K holders signed the
same set of survivors. Honest holders sign once, so for both secrets of an owner to come out
2 t <= (K - c) + 2 c = K + c signatures would be needed with c corrupt holders; t > 2 K / 3 rules
that out for c < K / 3. In the complete graph this is the check of the paper.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import keys, messages, shamir
from fedmmf.secagg.errors import PolicyError, RoundError, SecAggError, require
from fedmmf.secagg.keys import End, KeyPair
from fedmmf.secagg.messages import Advertise, Box, Masked
from fedmmf.secagg.prg import apply_masks
from fedmmf.secagg.setup import SERVER, Setup
from fedmmf.secagg.shamir import SHARE_BYTES, Entropy
from fedmmf.wire.codec import bit_map


class _ClientStage(IntEnum):
    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    CONFIRM = 3
    UNMASK = 4
    DONE = 5


def require_member(setup: Setup, party: int, identity: bytes | None) -> None:
    """Raise unless the party is in the cohort and, when active, has the secret of its name."""
    if party not in setup.index:
        raise PolicyError(f"party {party} is not in the cohort")
    if setup.active and (
        identity is None or keys.public_identity(identity) != setup.identity(party)
    ):
        raise PolicyError("identity must be the Ed25519 secret behind this party's public key")


class RoundClient:
    """A party's state machine in one round.

    Args:
        setup: what all sides agreed on.
        party: its number.
        entropy: where secrets come from; anything but the operating system is for tests.
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
        require_member(setup, party, identity)
        self.setup, self.party = setup, party
        self._entropy, self._identity = entropy, identity or b""
        self._stage = _ClientStage.ADVERTISE
        self._channel = KeyPair.from_secret(entropy(keys.KEY_BYTES))
        self._mask = KeyPair.from_secret(entropy(keys.KEY_BYTES))
        self._self_secret = entropy(keys.KEY_BYTES)
        self._peers: dict[int, Advertise] = {}  # neighbours that advertised
        self._agreed: dict[int, bytes] = {}  # with each of them: the channel's secret
        self._sharing: frozenset[int] = frozenset()  # itself and neighbours that masked with it
        self._shares: dict[int, bytes] = {}  # both shares of each of those, where its box was right
        self._confirmed: frozenset[int] = frozenset()
        self._about = b""  # what is summed

    def advertise(self) -> bytes:
        """Return the public keys, signed when active."""
        self._require_stage(_ClientStage.ADVERTISE)
        key = Advertise(self._channel.public, self._mask.public)
        if self.setup.active:
            key = Advertise(key.channel, key.mask, self._sign(b"keys", key.packed()))
        reply = key.encode(self.setup, self.party)
        self._stage = _ClientStage.SHARE_KEYS
        return reply

    def share_keys(self, data: bytes) -> bytes:
        """Take the neighbours' keys; return shares of both secrets, sealed for each neighbour."""
        self._require_stage(_ClientStage.SHARE_KEYS)
        peers = dict(messages.Keys.decode(self.setup, SERVER, data).keys)
        self._require_known(peers, self.setup.peers(self.party))
        self._require_sound(peers)
        agreed = {p: self._agree(self._channel, p, key.channel) for p, key in peers.items()}
        shares = self._split((*peers, self.party))
        boxes = {peer: self._seal(peer, peers[peer], agreed[peer], shares[peer]) for peer in peers}
        commitment = keys.commitment(self._self_secret, self.setup.context, self.party)
        reply = messages.Shares(commitment, boxes).encode(self.setup, self.party)
        self._peers, self._agreed = peers, agreed
        self._shares = {self.party: shares[self.party]}
        self._stage = _ClientStage.MASKED_INPUT
        return reply

    def masked_input(self, data: bytes, values: Array, about: bytes = b"") -> bytes:
        """Take the neighbours' boxes; return x + PRG(b_u) + sum of +-PRG(s_uv).

        Args:
            data: what the server sent.
            values: this party's ring elements, (length,); left as they are.
            about: name of what is summed; the masks of parties with another name do not
                cancel.
        """
        self._require_stage(_ClientStage.MASKED_INPUT)
        vector = self.setup.ring.checked(values, self.setup.length).copy()
        boxes = messages.Boxes.decode(self.setup, SERVER, data).boxes
        self._require_known(boxes, self._peers)
        opened = {peer: self._open(peer, box) for peer, box in boxes.items()}
        seeds = {peer: self._pair_seed(peer, about) for peer in boxes}
        added = [seed for peer, seed in seeds.items() if peer < self.party]
        added.append(keys.self_seed(self._self_secret, self.setup.context, self.party))
        subtracted = [seed for peer, seed in seeds.items() if peer > self.party]
        apply_masks(vector, self.setup.ring, added, subtracted)
        reply = self._signed_vector(vector, about).encode(self.setup, self.party)
        shares = {peer: pair for peer, pair in opened.items() if pair is not None}
        self._sharing = frozenset((self.party, *boxes))
        self._shares, self._about = self._shares | shares, about
        self._stage = _ClientStage.CONFIRM if self.setup.active else _ClientStage.UNMASK
        return reply

    def confirm(self, data: bytes) -> bytes:
        """Take the set of survivors; return a signature over it (active variant)."""
        self._require_stage(_ClientStage.CONFIRM)
        survivors = messages.Survivors.decode(self.setup, SERVER, data).members
        self._require_enough(survivors)
        text = bit_map(self.setup.index).write(survivors) + self._about
        signature = self._sign(b"survivors", text)
        reply = messages.Confirmed(signature).encode(self.setup, self.party)
        self._confirmed, self._stage = survivors, _ClientStage.UNMASK
        return reply

    def unmask(self, data: bytes) -> bytes:
        """Take the request; return one share of each owner, and forget all secrets."""
        self._require_stage(_ClientStage.UNMASK)
        request = messages.Request.decode(self.setup, SERVER, data)
        self._require_single(request)
        self._require_enough(request.survivors)
        if self.setup.active:
            self._require_consistent(request)
        revealed = {
            owner: _both(pair)[owner not in request.survivors]
            for owner, pair in self._shares.items()
        }
        reply = messages.Revealed(revealed).encode(self.setup, self.party)
        self._forget()
        return reply

    def _require_stage(self, stage: _ClientStage) -> None:
        if self._stage is not stage:
            due = self._stage.name.lower()
            raise RoundError(
                f"party {self.party}: {stage.name.lower()} is out of turn; due: {due}. "
                "Each stage happens once, in order; a new round needs a new RoundClient."
            )

    def _require_known(self, given: Collection[int], known: Collection[int]) -> None:
        strangers = sorted(set(given).difference(known))
        require(not strangers, SERVER, f"it names strangers: {strangers[:5]}")
        needed = self.setup.threshold
        count = len(given) + 1
        require(count >= needed, SERVER, f"only {count} holders are left; {needed} are needed")

    def _require_sound(self, peers: dict[int, Advertise]) -> None:
        own = [self._channel.public, self._mask.public]
        every = own + [key for peer in peers.values() for key in (peer.channel, peer.mask)]
        require(len(set(every)) == len(every), SERVER, "two public keys are the same")
        if self.setup.active:
            for peer, key in peers.items():
                text = key.channel + key.mask
                signed = self._is_signed(peer, key.signature, b"keys", text)
                require(signed, peer, "the signature under its keys is not valid")

    def _require_enough(self, survivors: frozenset[int]) -> None:
        setup, near = self.setup, survivors.intersection(self._sharing)
        known = survivors.intersection(setup.holders(self.party))
        strangers = sorted(known.difference(self._sharing))
        require(not strangers, SERVER, f"it names strangers: {strangers[:5]}")
        require(self.party in survivors, SERVER, "it does not count this party's own vector")
        are_whole = setup.whole(survivors) == survivors
        require(are_whole, SERVER, "it counts some parties of a batch, and not the others")
        text = "only {} survivors {}; at least {} are needed"
        enough = len(survivors) >= setup.least
        require(enough, SERVER, text.format(len(survivors), "in all", setup.least))
        enough = len(near) >= setup.threshold
        require(enough, SERVER, text.format(len(near), "among the holders", setup.threshold))

    def _require_single(self, request: messages.Request) -> None:
        both = sorted(request.survivors & request.dropped)
        require(not both, SERVER, f"it asks for both shares of parties {both[:5]}")
        asked = (request.survivors | request.dropped).intersection(self.setup.holders(self.party))
        strangers = sorted(asked.difference(self._sharing))
        require(not strangers, SERVER, f"it names strangers: {strangers[:5]}")
        left_out = sorted(self._sharing.difference(asked))
        require(not left_out, SERVER, f"it leaves the state of parties {left_out[:5]} open")

    def _require_consistent(self, request: messages.Request) -> None:
        same = request.survivors == self._confirmed
        require(same, SERVER, "these are not the survivors this party signed")
        signatures = {p: s for p, s in request.signatures.items() if p != self.party}
        strangers = sorted(signatures.keys() - self.setup.around(self.party))
        require(not strangers, SERVER, f"it names strangers: {strangers[:5]}")
        holds = self._who_holds(list(signatures))  # (n_signers, n_owners)
        signed = holds.sum(axis=0) + 1  # itself; it holds a share of each of them
        for owner, count in zip(self._shares, signed.tolist(), strict=True):
            reason = f"{count} holders of party {owner} signed; {self.setup.threshold} are needed"
            require(count >= self.setup.threshold, SERVER, reason)
        spare = spared(holds, signed - self.setup.threshold)
        needed = [pair for pair, skip in zip(signatures.items(), spare, strict=True) if not skip]
        self._require_signed(request.survivors, dict(needed))  # most of a party's time goes here

    def _who_holds(self, signers: Sequence[int]) -> Array:
        """Whether each signer holds shares of each owner. (n_signers, n_owners) bool."""
        holders = self.setup.holder_rows(tuple(self._shares))  # (n_owners, K) positions
        holds = np.zeros((self.setup.n, len(holders)), bool)
        holds[holders, np.arange(len(holders))[:, np.newaxis]] = True
        return holds[[self.setup.index[party] for party in signers]]

    def _require_signed(self, survivors: frozenset[int], signatures: Mapping[int, bytes]) -> None:
        text = bit_map(self.setup.index).write(survivors) + self._about
        for party, signature in signatures.items():
            is_signed = self._is_signed(party, signature, b"survivors", text)
            reason = f"the signature of party {party} over the survivors is not valid"
            require(is_signed and party in survivors, SERVER, reason)

    def _split(self, holders: tuple[int, ...]) -> dict[int, bytes]:
        points = self.setup.points(holders)
        secrets = [self._self_secret, self._mask.secret]
        shares = shamir.share(secrets, self.setup.threshold, points, self._entropy)
        return dict(zip(holders, shares.values(), strict=True))

    def _agree(self, pair: KeyPair, peer: int, public: bytes) -> bytes:
        secret = pair.agree(public)
        if secret is None:
            raise SecAggError(peer, "its public key is not a proper point")
        return secret

    def _seal(self, peer: int, key: Advertise, secret: bytes, text: bytes) -> Box:
        context, own = self.setup.context, End(self.party, self._channel.public)
        sealing = keys.channel_key(secret, context, own, End(peer, key.channel))
        sealed = keys.seal(sealing, text, context, self.party, peer)
        return Box.of(sealed, self._prints(self.party, peer, text))

    def _open(self, peer: int, box: Box) -> bytes | None:
        """Return both shares; None if the peer did not send what it says: its shares are missing.

        Refusing the whole message would let one bad peer put this party out of the round.
        """
        context, own = self.setup.context, End(self.party, self._channel.public)
        sender = End(peer, self._peers[peer].channel)
        sealing = keys.channel_key(self._agreed[peer], context, sender, own)
        text = keys.unseal(sealing, box.sealed, context, peer, self.party)
        if text is None or any(share >= shamir.PRIME for share in _both(text)):
            return None
        return text if self._prints(peer, self.party, text) == box.prints else None

    def _prints(self, owner: int, holder: int, text: bytes) -> tuple[bytes, bytes]:
        of_self, of_key = text[:SHARE_BYTES], text[SHARE_BYTES:]
        context = self.setup.context
        return (
            keys.share_print(context, owner, holder, of_self, of_key=False),
            keys.share_print(context, owner, holder, of_key, of_key=True),
        )

    def _signed_vector(self, vector: Array, about: bytes) -> Masked:
        if not self.setup.active:
            return Masked(vector)
        return Masked(vector, signature=self._sign(b"vector", Masked(vector).signed(about)))

    def _pair_seed(self, peer: int, about: bytes) -> bytes:
        public = self._peers[peer].mask
        secret = self._agree(self._mask, peer, public)
        own = End(self.party, self._mask.public)
        return keys.pair_seed(secret, self.setup.context, own, End(peer, public), about)

    def _sign(self, purpose: bytes, text: bytes) -> bytes:
        return keys.sign(self._identity, purpose, self.setup.context, text)

    def _is_signed(self, party: int, signature: bytes, purpose: bytes, text: bytes) -> bool:
        public = self.setup.identity(party)
        return keys.is_signed(public, signature, purpose, self.setup.context, text)

    def _forget(self) -> None:
        self._stage = _ClientStage.DONE
        self._shares, self._agreed, self._peers = {}, {}, {}
        self._sharing = frozenset()
        self._self_secret = b""
        del self._channel, self._mask


def spared(holds: Array, surplus: Array) -> Array:
    """Whether every owner can do without a signer, all such signers together. (n_signers,) bool.

    Args:
        holds: which signer holds shares of which owner. (n_signers, n_owners) bool
        surplus: how many more than are needed signed, by owner. (n_owners,)
    """
    spare, left = np.zeros(len(holds), bool), surplus.copy()
    for i, row in enumerate(holds):
        if (left[row] > 0).all():
            left[row] -= 1
            spare[i] = True
    return spare


def _both(pair: bytes) -> tuple[int, int]:
    """Return the share of the self mask and the share of the mask key."""
    return shamir.from_bytes(pair[:SHARE_BYTES]), shamir.from_bytes(pair[SHARE_BYTES:])
