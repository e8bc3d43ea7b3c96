"""The server's side of differentially private sums; the noise is the parties' business."""

from collections.abc import Sequence

import numpy as np

from fedmmf.arrays import Array
from fedmmf.sums.contract import Census
from fedmmf.sums.dp.guarantee import guarantee_of, least_survivors
from fedmmf.sums.plain.server import PlainServer
from fedmmf.sums.secure.server import SecureOptions, SecureServer
from fedmmf.sums.server_side import ServerDesk, ServerSide


def dp_server(desk: ServerDesk) -> ServerSide:
    """Plain sums of noisy updates, or secure sums; neither has a survey, which would lack noise."""
    if desk.settings.dp_noise == "local":
        return NoisyPlainServer(desk)
    return NoisySecureServer(desk)


class NoisySecureServer(SecureServer):
    """Secure sums over updates with noise."""

    def __init__(self, desk: ServerDesk) -> None:
        super().__init__(desk)
        self._guarantee = guarantee_of(desk.settings, desk.corrupt)

    def options_among(self, n_parties: int) -> SecureOptions:
        """Parties work out the same from their number, which is smaller in a later session."""
        bounds = self._guarantee.bounds(n_parties)
        return SecureOptions(bounds, least_survivors(n_parties))

    def n_raters_among(self, survivors: Sequence[str]) -> Array:
        """Noise hides who rated what: everybody seems to have rated everything."""
        joined = self.desk.roster.joined
        n_users = sum(joined[name].n_users for name in survivors if name in joined)
        return np.full(self.desk.catalogue.n_items, n_users)

    def census(self) -> Census:
        """Nothing is surveyed: that would be a sum without noise."""
        return Census.unknown(self.desk.catalogue)

    def summed_items(self, n_raters: Array) -> Array:
        """All: noise hides which items are rare."""
        return ServerSide.summed_items(self, n_raters)


class NoisyPlainServer(PlainServer):
    """Sums over updates with noise enough for each of them."""

    def __init__(self, desk: ServerDesk) -> None:
        super().__init__(desk, bounds=guarantee_of(desk.settings).bounds(1))

    def census(self) -> Census:
        """Nothing is surveyed: that would be a sum without noise."""
        return Census.unknown(self.desk.catalogue)
