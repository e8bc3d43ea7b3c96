"""Parameters of secure aggregation that both sides compute from what was agreed on.

A server that could choose neighbours, threshold or graph would choose them for itself. So they
follow from the number of parties, and the graph's seed from everything that was agreed on, which
parties sign together with their keys. A server may still try many set-ups until a graph suits it:
where parties sign, the graph is safe but for 2^-(SECURITY_BITS + GRINDING_BITS), so that 2^40 tries
leave 2^-40, and a bad graph takes about 2^80, of one digest for every party each.
"""

from dataclasses import replace
from functools import lru_cache

from fedmmf.aggregation.contract import CORRUPT, lost_share
from fedmmf.aggregation.secure.messages import SecureSetup
from fedmmf.aggregation.vector import SumCodec
from fedmmf.secagg import Setup, parameters
from fedmmf.wire import Invitation, name_of

SECURITY_BITS, GRINDING_BITS = 40, 40
FAILURE_BITS = 10  # if no more than 5 % drop out, the graph fails a round in a thousand


@lru_cache(maxsize=16)
def graph_of(n: int, *, active: bool, batch: int = 1, corrupt: int = 0) -> tuple[int, int]:
    """Return the number of neighbours of each of n parties, and the threshold.

    Args:
        n: parties in the cohort.
        active: whether they sign.
        batch: so many are summed together or not at all.
        corrupt: parties that may be in league, where that is more than 5 %: those of corrupt sites.
    """
    bits = SECURITY_BITS + GRINDING_BITS * active
    return parameters(
        n, max(CORRUPT, corrupt / n), lost_share(batch), bits, FAILURE_BITS, active=active
    )


def agreed_setup(
    message: SecureSetup, codec: SumCodec, invitation: Invitation, corrupt: int = 0
) -> Setup:
    """Setup of the session; raises where a condition of the protocol fails.

    Keys, masks and graph depend on all that was agreed on, of the run and of these sums: bounds,
    layout, items left out, users. Parties that got different terms have no masks in common.
    """
    told = invitation.encode() + replace(message, party=0).encode()
    n, active = message.n_parties, bool(message.identities)
    degree, threshold = graph_of(n, active=active, batch=message.batch, corrupt=corrupt)
    return Setup(
        round_id=message.session,
        parties=tuple(range(n)),
        threshold=threshold,
        length=codec.length,
        ring=codec.ring,
        neighbours=None if degree == n - 1 else degree,
        graph_seed=name_of(b"graph" + told),
        active=active,
        identities=message.identities,
        minimum=message.minimum,
        batch=message.batch,
        binding=name_of(told),
    )
