"""What a round costs a party and the server: bytes, and CPU seconds of the protocol.

Of a real run the bytes are counted; for a simulated one they are worked out here from the same
messages.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from fedmmf import wire
from fedmmf.aggregation import costs, homomorphic_cost
from fedmmf.aggregation.layout import Layout, ring_of
from fedmmf.aggregation.schemes import SecretKey, generate
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import n_update_totals
from fedmmf.factorization.contract import Public
from fedmmf.secagg import least_cohort, parameters

CORRUPT, DROPOUT = 0.05, 0.05  # shares of the parties that secure sums withstand
SCHEMES = {"homomorphic-paillier": "paillier-packed", "homomorphic-ckks": "ckks"}


@dataclass(frozen=True)
class Traffic:
    """Of one round: bytes of a mean party, CPU seconds that sums take beyond plain addition."""

    up_bytes: float
    down_bytes: float
    party_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    how: str = "sums in the clear need no protocol"


@dataclass(frozen=True, eq=False)
class Shape:
    """What decides the traffic of a run."""

    settings: Settings
    public: Public
    n_users: int
    ratings_per_user: float
    span: float

    @property
    def layout(self) -> Layout:
        """Of a vector over the whole catalogue."""
        n_items, width = self.public.item_rows.shape
        return Layout(n_items, width, n_update_totals(self.settings.solver, self.public))

    def expected(self, n_clear: int) -> Traffic:
        """Traffic of a run in which so many users share in the clear."""
        settings = self.settings
        if settings.sharing == "plain":
            return self.plain(self.ratings_per_user)
        if settings.sharing == "adaptive":
            return self.adaptive(n_clear)
        if settings.aggregation in SCHEMES:
            return self.homomorphic()
        if settings.aggregation == "dp" and settings.dp_noise == "local":
            return self.plain(len(self.public.item_rows))
        return self.secure(self.n_users)

    def plain(self, n_rows: float) -> Traffic:
        """Updates with so many rows, in the clear."""
        layout = self.layout
        up = wire.Update.n_bytes(n_rows, layout.width, layout.n_totals)
        return Traffic(up, wire.Round.n_bytes(self.public))

    def secure(self, n_parties: int) -> Traffic:
        """The trips of a secure sum over so many parties."""
        signed, ring = self.settings.signed, ring_of(self.settings.solver)
        neighbours, _ = parameters(n_parties, CORRUPT, DROPOUT, active=signed)
        size = costs.Size(n_parties, neighbours, self.layout.length, ring, signed)
        cost = costs.secure_cost(size)
        framing = (2 + signed) * wire.SecureTrip.n_bytes()
        down = cost.down_bytes + wire.Round.n_bytes(self.public)
        up, seconds = cost.up_bytes + framing, (cost.party_s, cost.server_s)
        return Traffic(up, down + framing, *seconds, "by a model fitted to measured rounds")

    def adaptive(self, n_clear: int) -> Traffic:
        """The mean over both groups; masked ratings that are collected once count as nothing."""
        n_summed = self.n_users - n_clear
        clear = self.plain(self.ratings_per_user)
        if self.settings.collect_masked:
            clear = Traffic(0.0, 0.0)
        is_crowd = n_summed >= least_cohort(active=self.settings.signed)
        summed = self.secure(n_summed) if is_crowd else Traffic(0.0, 0.0)
        share = n_clear / self.n_users
        return Traffic(
            share * clear.up_bytes + (1 - share) * summed.up_bytes,
            share * clear.down_bytes + (1 - share) * summed.down_bytes,
            (1 - share) * summed.party_cpu_s,
            summed.server_cpu_s,
            summed.how,
        )

    def homomorphic(self) -> Traffic:
        """Ciphertexts, measured on a few."""
        secret = _measuring_key(SCHEMES[self.settings.aggregation])
        cost = homomorphic_cost.cost(
            secret, self.n_users, self.layout, self.settings.solver, self.span, n_measured=2
        )
        up, down = cost["up_bytes"], wire.Round.n_bytes(self.public)
        seconds = (cost["party_cpu_s"], cost["server_cpu_s"])
        return Traffic(up, down, *seconds, "extrapolated from two ciphertexts measured now")

    def tradeoff(self, j: Array, n: int = 41) -> list[dict[str, Any]]:
        """For n values of threshold_j: who would share in the clear, and a mean party's bytes."""
        found = []
        for threshold in np.linspace(0.0, float(np.nanmax(j)), n).round(6).tolist():
            n_clear = int(np.count_nonzero(j <= threshold + 1e-6))
            up = self.adaptive(n_clear).up_bytes
            found.append(
                {
                    "threshold_j": threshold,
                    "share_in_clear": n_clear / self.n_users,
                    "up_bytes_per_user_round": round(up, 1),
                }
            )
        return found


@cache
def _measuring_key(scheme: str) -> SecretKey:
    """A key that encrypts nothing but what is measured; drawing one takes a second."""
    return generate(scheme)
