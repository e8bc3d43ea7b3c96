"""The server's side of schemes that hide single updates: first find what can be summed at all."""

from fedmmf.aggregation.rare_items import summed_items
from fedmmf.aggregation.server_side import ServerSide
from fedmmf.arrays import Array
from fedmmf.solvers.contract import ItemSums
from fedmmf.wire import Round


class HidingServer(ServerSide):
    """Counts raters once, in a survey; later rounds leave out items with too few of them.

    Counts of every round would reveal who took part in it, and what that party rated. Counts of
    rare items reveal that somebody rated them (errata 34); their ratings stay private.
    """

    def summed_items(self, n_raters: Array) -> Array:
        """Codes of the items that enough users have rated. (n,) int32."""
        return summed_items(n_raters, self.context.settings)

    def sums(self, round_: Round) -> ItemSums:
        """Run one round, after the survey if there was none yet."""
        if self.layout is None:
            self.prepare()
        return super().sums(round_)
