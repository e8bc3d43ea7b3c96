"""The server's side of differentially private sums; the noise is the parties' business."""

from collections.abc import Sequence

import numpy as np

from fedmmf.aggregation.contract import Census
from fedmmf.aggregation.dp.guarantee import guarantee_of, least_survivors
from fedmmf.aggregation.plain.server import PlainServer
from fedmmf.aggregation.secure.server import SecureOptions, SecureServer
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.arrays import Array


def dp_server(context: ServerContext) -> ServerSide:
    """Plain sums of noisy updates, or secure sums; neither has a survey, which would lack noise."""
    if context.settings.dp_noise == "local":
        return NoisyPlainServer(context)
    return NoisySecureServer(context)


class NoisySecureServer(SecureServer):
    """Secure sums over updates with noise."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._guarantee = guarantee_of(context.settings, context.corrupt)

    def options_among(self, n_parties: int) -> SecureOptions:
        """Parties work out the same from their number, which is smaller in a later session."""
        bounds = self._guarantee.bounds(n_parties)
        return SecureOptions(bounds, least_survivors(n_parties))

    def n_raters_among(self, survivors: Sequence[str]) -> Array:
        """Noise hides who rated what: everybody seems to have rated everything."""
        joined = self.context.roster.joined
        n_users = sum(joined[name].n_users for name in survivors if name in joined)
        return np.full(self.context.catalogue.n_items, n_users)

    def census(self) -> Census:
        """Nothing is surveyed: that would be a sum without noise."""
        return Census.unknown(self.context.catalogue)

    def summed_items(self, n_raters: Array) -> Array:
        """All: noise hides which items are rare."""
        return ServerSide.summed_items(self, n_raters)


class NoisyPlainServer(PlainServer):
    """Sums over updates with noise enough for each of them."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, bounds=guarantee_of(context.settings).bounds(1))

    def census(self) -> Census:
        """Nothing is surveyed: that would be a sum without noise."""
        return Census.unknown(self.context.catalogue)
