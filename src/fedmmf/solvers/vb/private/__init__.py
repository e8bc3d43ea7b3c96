"""`vb` under user-level differential privacy: few noisy sums, and a server that knows their noise.

Noise hurts by (numbers released) x (rounds) x (sensitivity). With the shared curvature of `vb` a
party releases k + 1 numbers per item and a few totals, and a Bayesian server knows the variance of
the noise: an item whose sum is mostly noise stays at its prior, which is a regression on public
features. Parties are told the posterior covariance of each item, and trust it less. Mask weights
stay in the party: what a mask knows needs no noise.

A run has three stages, each a number of rounds of equal cost (`plan.schedule`):

1. *counts*: 1 / sqrt(K_u) at each of the K_u rated items. The weights w_ui of later stages follow:
   proportional to n_i^-gamma, and of length 1 per user.
2. *means*: w_ui and w_ui e_ui, with e_ui the rating less the party's own shrunken mean.
3. *factors*: w_ui e_ui (1, p_u), with e_ui what q_i, p_u and the joint mask leave over, and totals:
   moments of p_u, Cov[p_u], Cov[p_u, mask weights] and the mean level of masks.

Every update is one vector, rows and totals together, of length `dp_clip` at most whatever was
broadcast (`engines.contract.Cohort`), so that the accounting of `aggregation.dp` holds for all of
them alike.
"""

from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.party import PrivateParty
from fedmmf.solvers.vb.private.reading import PrivateReading, check_broadcast, requested_release
from fedmmf.solvers.vb.private.server import PrivateServer
from fedmmf.solvers.vb.private.shapes import PrivateShape, is_private, write_variant

__all__ = [
    "PrivateParty",
    "PrivateReading",
    "PrivateServer",
    "PrivateShape",
    "check_broadcast",
    "is_private",
    "plan",
    "requested_release",
    "write_variant",
]
