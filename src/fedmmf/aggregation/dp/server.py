"""The server's side of differentially private aggregation; the parties add the noise."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedmmf.aggregation.contract import Census, Work
from fedmmf.aggregation.dp.guarantee import guarantee_of, least_survivors
from fedmmf.aggregation.plain.server import PlainServer
from fedmmf.aggregation.secure.server import SecureOptions, SecureServer
from fedmmf.aggregation.server_side import ServerContext, ServerSide
from fedmmf.arrays import Array
from fedmmf.errors import WireError
from fedmmf.solvers.contract import ItemSums


def dp_server(context: ServerContext) -> ServerSide:
    """Make a plain or a secure server side; neither surveys, because a survey would lack noise."""
    if context.settings.dp_noise == "local":
        return NoisyPlainServer(context)
    return NoisySecureServer(context)


class NoisySecureServer(SecureServer):
    """Secure aggregation of updates with noise."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context)
        self._guarantee = guarantee_of(context.settings, context.corrupt)

    def options_among(self, n_parties: int) -> SecureOptions:
        """Return options that the parties compute too; later sessions have fewer parties."""
        bounds = self._guarantee.bounds(n_parties)
        return SecureOptions(bounds, least_survivors(n_parties))

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Sum as secure aggregation does, and say how much noise the survivors have added."""
        sums = super().sum(stage, work)
        noise_std = self._guarantee.noise_std(len(self.summed_with))
        return replace(sums, noise_std=noise_std * math.sqrt(len(self.survivors)))

    def n_raters_among(self, survivors: Sequence[str]) -> Array:
        """Count everybody as a rater of every item: noise hides who rated what. (n_items,)."""
        joined = self.context.roster.joined
        n_users = sum(joined[name].n_users for name in survivors if name in joined)
        return np.full(self.context.catalogue.n_items, n_users)

    def census(self) -> Census:
        """Return an empty census: a survey would be a sum without noise."""
        return Census.unknown(self.context.catalogue)

    def summed_items(self, n_raters: Array) -> Array:
        """Return all items, since noise hides which of them are rare."""
        return ServerSide.summed_items(self, n_raters)


class NoisyPlainServer(PlainServer):
    """Plain aggregation of updates, each with enough noise for itself."""

    def __init__(self, context: ServerContext) -> None:
        self._guarantee = guarantee_of(context.settings)
        super().__init__(context, bounds=self._guarantee.bounds(1))

    def sum(self, stage: str, work: Work) -> ItemSums:
        """Sum updates, and say how much noise they have together."""
        sums = super().sum(stage, work)
        if not self.survivors:
            raise WireError("a sum needs one answer or more; no party answered")
        noise_std = self._guarantee.noise_std(1) * math.sqrt(len(self.survivors))
        return replace(sums, noise_std=noise_std)

    def census(self) -> Census:
        """Return an empty census: a survey would be a sum without noise."""
        return Census.unknown(self.context.catalogue)
