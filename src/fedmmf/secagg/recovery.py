"""Recovery on the server: combine shares into secrets and take the masks off the sum.

Bonawitz et al. 2017, unmasking: sum of x_u = sum of y_u - sum of PRG(b_u) over survivors
+- sum of PRG(s_uv) over dropped u and surviving v. A recovered mask key is checked against the
public key its owner advertised, a recovered b_u against the owner's commitment. Where a secret is
wrong, each share is compared with the print that its owner sent. That identifies holders who
sent another share than they were given, and the secret is recovered from the others. If even those
give a wrong secret, the owner has dealt wrong shares.
"""

from collections.abc import Callable, Iterator, Mapping

from fedmmf.arrays import Array
from fedmmf.secagg import keys, shamir
from fedmmf.secagg.errors import BelowThresholdError, SecAggError
from fedmmf.secagg.keys import End, KeyPair
from fedmmf.secagg.messages import Advertise, Revealed, Shares
from fedmmf.secagg.prg import apply_masks
from fedmmf.secagg.setup import Setup


class Recovery:
    """Removal of the masks of one round.

    Args:
        setup: what all sides agreed on.
        advertised: the public keys of the parties.
        shares: what they sent when sharing keys.
        sharing: the parties whose pairwise masks are in use.
        survivors: those of them whose vectors are in the sum.
        about: name of what is summed.
    """

    def __init__(
        self,
        setup: Setup,
        advertised: Mapping[int, Advertise],
        shares: Mapping[int, Shares],
        sharing: frozenset[int],
        survivors: frozenset[int],
        about: bytes,
    ) -> None:
        self._setup, self._survivors, self._about = setup, survivors, about
        self._advertised, self._shares = advertised, shares
        self._dropped = sharing - survivors
        self.wrong: set[int] = set()  # holders who revealed another share than they were given

    def remove_masks(self, total: Array, revealed: Mapping[int, Revealed]) -> None:
        """Turn the sum of masked vectors into the sum of the vectors, in place."""
        by_owner = transpose(revealed)
        added: list[bytes] = []
        subtracted = [self._self_seed(u, by_owner.get(u, {})) for u in sorted(self._survivors)]
        for owner in sorted(self._dropped):
            for peer, seed in self._pair_seeds(owner, by_owner.get(owner, {})):
                (subtracted if peer > owner else added).append(seed)  # what the peer did, undone
        apply_masks(total, self._setup.ring, added, subtracted)

    def _self_seed(self, owner: int, shares: Mapping[int, int]) -> bytes:
        context, wanted = self._setup.context, self._shares[owner].commitment

        def is_right(secret: bytes) -> bool:
            return keys.commitment(secret, context, owner) == wanted

        secret = self._recover(owner, shares, is_right, of_key=False)
        return keys.self_seed(secret, context, owner)

    def _pair_seeds(self, owner: int, shares: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
        peers = [peer for peer in self._setup.peers(owner) if peer in self._survivors]
        if not peers:
            return  # nobody's vector carries a mask of this owner

        def is_right(secret: bytes) -> bool:
            return KeyPair.from_secret(secret).public == self._advertised[owner].mask

        pair = KeyPair.from_secret(self._recover(owner, shares, is_right, of_key=True))
        for peer in peers:
            public = self._advertised[peer].mask
            secret = pair.agree(public) or b""  # a survivor would have refused a bad key
            ends = End(owner, pair.public), End(peer, public)
            yield peer, keys.pair_seed(secret, self._setup.context, *ends, self._about)

    def _recover(
        self,
        owner: int,
        shares: Mapping[int, int],
        is_right: Callable[[bytes], bool],
        *,
        of_key: bool,
    ) -> bytes:
        secret = self._combine(owner, shares)
        if secret is not None and is_right(secret):
            return secret
        kept = {h: share for h, share in shares.items() if self._is_given(owner, h, share, of_key)}
        self.wrong.update(shares.keys() - kept.keys() - {owner})
        if len(kept) < self._setup.threshold and owner in shares:
            kept[owner] = shares[owner]  # of its own share there is no print; it may be right
        secret = self._combine(owner, kept)
        if secret is None or not is_right(secret):
            raise SecAggError(owner, "its shares do not give the secret it committed to")
        return secret

    def _combine(self, owner: int, shares: Mapping[int, int]) -> bytes | None:
        threshold = self._setup.threshold
        if len(shares) < threshold:  # its holders' fault or its own: nobody is blamed here
            whom = f"holders with right shares of party {owner}"
            raise BelowThresholdError("unmask", len(shares), threshold, whom, owner)
        chosen = tuple(sorted(shares)[:threshold])
        return shamir.combine([shares[holder] for holder in chosen], self._setup.points(chosen))

    def _is_given(self, owner: int, holder: int, share: int, of_key: bool) -> bool:
        """Whether a share is what its owner dealt; of the owner's own there is no print."""
        if holder == owner:
            return False
        wanted = self._shares[owner].boxes[holder].prints[of_key]
        context, text = self._setup.context, shamir.to_bytes(share)
        return keys.share_print(context, owner, holder, text, of_key=of_key) == wanted


def transpose(revealed: Mapping[int, Revealed]) -> dict[int, dict[int, int]]:
    """Return the shares by owner, then by holder."""
    by_owner: dict[int, dict[int, int]] = {}
    for holder, message in revealed.items():
        for owner, share in message.shares.items():
            by_owner.setdefault(owner, {})[holder] = share
    return by_owner
