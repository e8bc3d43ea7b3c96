"""The server's side of adaptive sums: Eq. 24, with the secure sum decoded first (errata 39)."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmmf.arrays import Array
from fedmmf.secagg import MINIMUM_COHORT
from fedmmf.solvers.contract import ItemSums, PartyHalf, added
from fedmmf.sums.adaptive.messages import Collect, Collected
from fedmmf.sums.plain.server import PlainServer
from fedmmf.sums.secure.server import SecureServer
from fedmmf.sums.server_side import ServerDesk, ServerSide
from fedmmf.wire import Round


class AdaptiveServer(ServerSide):
    """Both groups behind one contract.

    A group too small to hide in is left out of the rounds; it is handed the final factors.
    """

    def __init__(self, desk: ServerDesk) -> None:
        super().__init__(desk)
        joined = desk.roster.joined
        self.in_clear = sorted(name for name, said in joined.items() if said.in_clear)
        self.summed = sorted(set(joined).difference(self.in_clear))
        self._clear = PlainServer(desk, self.in_clear)
        self._central: CollectedRatings | None = None
        is_crowd = len(self.summed) >= MINIMUM_COHORT
        self._secure = SecureServer(desk, self.summed) if is_crowd else None

    @property
    def left_out(self) -> Array:
        """Items of which the secure group's part is missing. (n,) int32."""
        return super().left_out if self._secure is None else self._secure.left_out

    def state(self) -> dict[str, Array]:
        """Of the secure group."""
        return {} if self._secure is None else self._secure.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from there."""
        if self._secure is not None:
            self._secure.restore(state)

    def prepare(self) -> None:
        """Let the secure sum find the items that too few of its own users rated."""
        if self._secure is not None:
            self._secure.prepare()

    def sums(self, round_: Round) -> ItemSums:
        """Both groups' sums, added."""
        parts = [self._sums_in_clear(round_)]
        central = self._central
        survivors = [*(self._clear.survivors if central is None else central.names)]
        if self._secure is not None:
            parts.append(self._secure.sums(round_))
            survivors += self._secure.survivors
        self.survivors = sorted(survivors)
        return added(parts)

    def _bounded(self, replies: Mapping[str, Collected]) -> dict[str, Collected]:
        """Masked ratings that some mask could have made."""
        scale, kept = self.desk.catalogue.scale, {}
        most = max(abs(scale.min), abs(scale.max)) + scale.span
        for name, reply in replies.items():
            if (np.abs(reply.masked_ratings) <= most).all():
                kept[name] = reply
            else:
                self.desk.roster.refuse(name, "its masked ratings are far off the scale")
        return kept

    def _sums_in_clear(self, round_: Round) -> ItemSums:
        if not self.desk.settings.collect_masked:
            return self._clear.sums(round_)
        if self._central is None:
            questions = dict.fromkeys(self.in_clear, Collect())
            roster, catalogue = self.desk.roster, self.desk.catalogue
            replies = roster.ask("collect", questions, Collected, catalogue)
            self._central = CollectedRatings(self.desk, self._bounded(replies))
        return self._central.sums(round_)


class CollectedRatings:
    """The clear group's masked ratings, collected once, and its rounds computed on the server.

    It saves those parties all traffic but one message and the final factors. They find their own
    p_u for the final factors. Nothing of theirs is held out: the server has no ratings to test on.
    """

    def __init__(self, desk: ServerDesk, masked_ratings: Mapping[str, Collected]) -> None:
        self.names = sorted(masked_ratings)
        self._parties = [masked_ratings[name] for name in self.names]
        self._desk = desk
        self._halves: Sequence[PartyHalf] = [desk.solver.party(desk.rank) for _ in self._parties]

    def sums(self, round_: Round) -> ItemSums:
        """MaskedUpdate of Algorithm 1 for every collected party."""
        public, sizes = round_.public, self._desk.expected(round_)
        rows = np.zeros_like(public.item_rows)
        n_raters: Array = np.zeros(len(rows), np.int64)
        for party, half in zip(self._parties, self._halves, strict=True):
            mine = public.take(party.items)
            rows[party.items] += half.update(party.masked_ratings, mine, round_.round)[0]
            n_raters[party.items] += 1
        return ItemSums(rows, n_raters, np.zeros(sizes.n_totals))
