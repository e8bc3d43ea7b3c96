"""What the server does with the shares: recover secrets and take the masks off the sum.

Bonawitz et al. 2017, unmasking: sum of x_u = sum of y_u - sum of PRG(b_u) over survivors
+- sum of PRG(s_uv) over dropped u and surviving v. A recovered mask key is checked against the
public key its owner advertised, a recovered b_u against the owner's commitment; if some holder
sent a wrong share, other holders are tried.
"""

from collections.abc import Callable, Iterator, Mapping

from fedmmf.arrays import Array
from fedmmf.secagg import keys, shamir
from fedmmf.secagg.errors import SecAggError
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

        return keys.self_seed(self._recover(owner, shares, is_right), context, owner)

    def _pair_seeds(self, owner: int, shares: Mapping[int, int]) -> Iterator[tuple[int, bytes]]:
        peers = [peer for peer in self._setup.peers(owner) if peer in self._survivors]
        if not peers:
            return  # nobody's vector carries a mask of this owner

        def is_right(secret: bytes) -> bool:
            return KeyPair.from_secret(secret).public == self._advertised[owner].mask

        pair = KeyPair.from_secret(self._recover(owner, shares, is_right))
        for peer in peers:
            public = self._advertised[peer].mask
            secret = pair.agree(public) or b""  # a survivor would have refused a bad key
            ends = End(owner, pair.public), End(peer, public)
            yield peer, keys.pair_seed(secret, self._setup.context, *ends, self._about)

    def _recover(
        self, owner: int, shares: Mapping[int, int], is_right: Callable[[bytes], bool]
    ) -> bytes:
        holders, threshold = tuple(sorted(shares)), self._setup.threshold
        for first in range(len(holders)):
            chosen = tuple(sorted((holders + holders)[first : first + threshold]))
            points = self._setup.points(chosen)
            secret = shamir.combine([shares[holder] for holder in chosen], points)
            if secret is not None and is_right(secret):
                return secret
        raise SecAggError(f"party {owner}", "its shares do not give the secret it committed to")


def transpose(revealed: Mapping[int, Revealed]) -> dict[int, dict[int, int]]:
    """Return the shares by owner, then by holder."""
    by_owner: dict[int, dict[int, int]] = {}
    for holder, message in revealed.items():
        for owner, share in message.shares.items():
            by_owner.setdefault(owner, {})[holder] = share
    return by_owner
