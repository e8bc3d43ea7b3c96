"""The server's side of adaptive aggregation: Eq. 24, after decoding the secure sum (errata 39)."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedmmf.aggregation.adaptive.messages import Collect, Collected
from fedmmf.aggregation.contract import Census
from fedmmf.aggregation.plain.server import PlainServer
from fedmmf.aggregation.rare_items import are_rare, summed_items
from fedmmf.aggregation.secure.server import SecureServer
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.arrays import Array
from fedmmf.secagg import MINIMUM_COHORT
from fedmmf.solvers.contract import ItemSums, PartyHalf, UserData, added
from fedmmf.wire import Adopted, Round, Survey
from fedmmf.wire.messages import Expected


class AdaptiveServer(ServerSide):
    """The clear and the secure group as one server side; `adopt` finds out who is in which.

    A group too small to hide in is left out of the rounds; it is handed the final factors.
    """

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self.in_clear: list[str] = []
        self.summed: list[str] = sorted(context.roster.joined)
        self._clear: PlainServer = PlainServer(context, [])
        self._secure: SecureServer | None = None
        self._central: CollectedRatings | None = None
        self._counted: dict[str, int] = {}  # users of each party that the survey counted
        self._hidden: Array | None = None  # raters among the summed; 0: too few (n_items,)

    @property
    def left_out(self) -> Array:
        """Rows of the layout that lack the secure group's part. (n,) int32."""
        is_rare = np.zeros(0, bool) if self._hidden is None else self._hidden == 0
        return np.flatnonzero(is_rare).astype(np.int32)

    def state(self) -> dict[str, Array]:
        """Return the state, with hidden raters: a party in the clear lists its items only once."""
        known = super().state()
        return known if self._hidden is None else known | {"hidden": self._hidden}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore a state of `state`, with the numbers of hidden raters."""
        super().restore(state)
        self._hidden = state.get("hidden")

    def census(self) -> Census:
        """Survey everybody in one secure sum, since nobody has chosen a group yet."""
        secure, joined = SecureServer(self.context), self.context.roster.joined
        census = secure.census()
        self._counted = {name: joined[name].n_users for name in secure.counted}
        return census

    def summed_items(self, n_raters: Array) -> Array:
        """Codes of the items that enough users of both groups together have rated. (n,) int32."""
        return summed_items(n_raters, self.context.settings)

    def adopt(self) -> dict[str, Adopted]:
        """Let all parties choose a group; the clear ones then list their items, once."""
        said = super().adopt()
        self.in_clear = sorted(name for name, reply in said.items() if reply.in_clear)
        self.summed = sorted(set(said).difference(self.in_clear))
        self._clear = PlainServer(self.context, self.in_clear)
        self._secure = None
        if len(self.summed) >= MINIMUM_COHORT:
            self._secure = SecureServer(self.context, self.summed)
        self._clear.layout = self.layout
        if self._hidden is None:
            self._hidden = self._hidden_raters()
        if self._secure is not None:
            self._secure.layout, self._secure.left_out = self.layout, self.left_out
            self._secure.n_raters = np.zeros(self.context.catalogue.n_items, np.int64)
            self._secure.n_raters[self.require_layout().items] = self._hidden
        return said

    def _hidden_raters(self) -> Array:
        """Raters of each item who are not in the clear; 0 where these are too few. (n_items,).

        Who was counted and has not said since what it rated may have rated anything.
        """
        settings, known, said = self.context.settings, self.known_raters(), set(self.summed)
        if self.in_clear:
            rated = self._clear.sum("survey", Survey(with_ratings=False)).n_raters
            known = known - rated[self.require_layout().items]
            said |= set(self._clear.survivors)
        silent = sum(n_users for name, n_users in self._counted.items() if name not in said)
        hidden = known - silent
        return np.where(are_rare(hidden, settings.min_raters, settings.batch), 0, hidden)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round; return the sums of both groups together."""
        parts = [self._sums_in_clear(round_)]
        central = self._central
        survivors = [*(self._clear.survivors if central is None else central.names)]
        if self._secure is not None:
            parts.append(self._secure.sums(round_))
            survivors += self._secure.survivors
        self.survivors = sorted(survivors)
        return added(parts)

    def _bounded(self, replies: Mapping[str, Collected]) -> dict[str, Collected]:
        """Refuse replies whose masked ratings no mask could have made; return the others."""
        scale, kept = self.context.catalogue.scale, {}
        most = max(abs(scale.min), abs(scale.max)) + scale.span
        for name, reply in replies.items():
            if (np.abs(reply.masked_ratings) <= most).all():
                kept[name] = reply
            else:
                self.context.roster.refuse(name, "its masked ratings are far off the scale")
        return kept

    def _sums_in_clear(self, round_: Round) -> ItemSums:
        if not self.context.settings.collect_masked:
            return self._clear.sums(round_)
        if self._central is None:
            questions = dict.fromkeys(self.in_clear, Collect())
            sizes = self.expected(round_)
            replies = self.context.roster.ask("collect", questions, Collected, sizes)
            self._central = CollectedRatings(self.context, sizes, self._bounded(replies))
        return self._central.sums(round_)


class CollectedRatings:
    """Masked ratings of the clear group, collected once; the server computes that group's rounds.

    It saves those parties all traffic but one message and the final factors. They find their own
    p_u for the final factors. Nothing of theirs is held out: the server has no ratings to test on.
    """

    def __init__(
        self, context: ServerContext, sizes: Expected, masked_ratings: Mapping[str, Collected]
    ) -> None:
        self.names = sorted(masked_ratings)
        self._solver, self._sizes = context.solver, sizes
        none = np.zeros(0)
        self._own = [
            UserData(said.items, said.masked_ratings, none, none)
            for said in map(masked_ratings.__getitem__, self.names)
        ]
        self._halves: Sequence[PartyHalf] = [
            context.solver.party(sizes.update_shape) for _ in self._own
        ]

    def sums(self, round_: Round) -> ItemSums:
        """MaskedUpdate of Algorithm 1 for every collected party."""
        sizes = self._sizes
        nothing = np.zeros((sizes.n_items, 0))
        reading = self._solver.reading(sizes.update_shape, round_.broadcast, nothing)
        rows = np.zeros((sizes.n_items, sizes.update_shape.width), np.float32)
        n_raters: Array = np.zeros(len(rows), np.int64)
        for own, half in zip(self._own, self._halves, strict=True):
            try:
                update, _ = half.update(own, reading, round_.round)
            except OverflowError:  # only the party whose ratings overflow is left out
                continue
            rows[own.items] += update
            n_raters[own.items] += 1
        return ItemSums(rows, n_raters, np.zeros(sizes.n_totals))
