"""Algorithm 1: who is secure by the paper's J sends updates in the clear, the others are summed.

Obfuscation, not protection: a small J stops nobody who knows the mask's family and the item
features (errata 13, 24), and the clear group shrinks the crowd that the others hide in (errata 35).
Each party decides for itself, from a J that never leaves it (errata 37); the server learns which
group it is in.
"""

from collections.abc import Callable, Mapping

import numpy as np

from fedmmf import wire
from fedmmf.aggregation.plain import Plain
from fedmmf.aggregation.secure import Secure
from fedmmf.arrays import Array
from fedmmf.coordinator import HELD_OUT_TOTALS
from fedmmf.factorization import sgd
from fedmmf.factorization.contract import ItemSums, added


class Adaptive:
    """Both groups behind one contract: Eq. 24, with the secure sum decoded first (errata 39).

    Args:
        plain: asks everybody how they share, then sums those in the clear.
        make_secure: makes the secure sum over the others, by name.
        least: how many of them it takes to hide one.
        collect_masked: take the masked ratings of the clear group once, and train on them here.

    A group too small to hide in is left out of the rounds; it is handed the final factors.
    """

    def __init__(
        self,
        plain: Plain,
        make_secure: Callable[[list[str]], Secure],
        *,
        least: int,
        collect_masked: bool,
    ) -> None:
        everybody = plain.parties
        self.in_clear = plain.join()
        self.summed = sorted(set(everybody) - set(self.in_clear))
        self._all, self._clear = Plain(plain.transport, everybody), plain
        self._collect_masked = collect_masked
        self._central: Collected | None = None
        self.secure = make_secure(self.summed) if len(self.summed) >= least else None

    def survey(self, n_items: int) -> None:
        """Let the secure sum find the items that too few of its own parties rated."""
        if self.secure is not None:
            self.secure.survey(n_items, with_ratings=False)

    def sums(self, message: wire.Round) -> ItemSums:
        """Both groups' sums, added."""
        parts = [self._participants_in_clear(message).sums(message)]
        if self.secure is not None:
            parts.append(self.secure.sums(message))
        return added(parts)

    def finish(self, message: wire.Round) -> None:
        """Send the final factors to everybody."""
        self._all.finish(message)

    def _participants_in_clear(self, message: wire.Round) -> "Plain | Collected":
        if not self._collect_masked:
            return self._clear
        if self._central is None:
            self._central = Collected(self._clear.collect(len(message.public.item_rows)))
        return self._central


class Collected:
    """The clear group's masked ratings, collected once, and its rounds computed on the server.

    It saves those parties all traffic but one message and the final factors. They find their own
    p_u for the final factors. Nothing of theirs is held out: the server has no ratings to test on.
    """

    def __init__(self, masked_ratings: Mapping[str, wire.Collected]) -> None:
        self._parties = list(masked_ratings.values())
        self._solvers: list[sgd.Local] = []

    def sums(self, message: wire.Round) -> ItemSums:
        """MaskedUpdate of Algorithm 1 for every collected party."""
        public = message.public
        if message.round == 1:
            self._solvers = [sgd.Local(public.factors) for _ in self._parties]
        rows = np.zeros_like(public.item_rows)
        n_raters: Array = np.zeros(len(rows), np.int64)
        for party, solver in zip(self._parties, self._solvers, strict=True):
            mine = public.take(party.items)
            rows[party.items] += solver.update(party.masked_ratings, mine, message.round)[0]
            n_raters[party.items] += 1
        return ItemSums(rows, n_raters, np.zeros(HELD_OUT_TOTALS))
