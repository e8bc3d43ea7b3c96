"""Homomorphic aggregation (Chai et al. 2020, "Secure Federated Matrix Factorization").

The server relays and adds ciphertexts, and has no key. One party, the keeper, decrypts the sum and
steps the item factors. In Chai et al. the server steps them under encryption, which the linear rule
`sum` alone allows, and every user decrypts them in every round. Here the same ciphertexts go up,
any solver and step rule will do, and nobody learns more: the users learn the item factors, as
there, and from two rounds of them the sums.

The keeper alone can decrypt. Parties hold the public key to encrypt and a shared secret under which
the rounds come down, so a party that colludes with the server reads nobody's update; in Chai et al.
it reads them all. The keeper must not collude, and the server must do what it is asked: one that
gives the keeper one party's ciphertexts as the sum shows it that party's update.
"""

from functools import partial
from typing import Any

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.secure import NOT_HIDDEN
from fedmmf.registry import import_extra, lazy

import_he = partial(import_extra, user="homomorphic aggregation", extra="he")


def disclosure(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what the server and the keeper see."""
    return (
        "Sharing is strict: every update goes into a sum, made under homomorphic encryption. The "
        "server adds ciphertexts and has no key. One party, the keeper, decrypts the sums. The "
        "keeper must not collude with the server, and the server must hand it the sum of all.",
        NOT_HIDDEN,
    )


def _scheme(name: str, scheme: str) -> AggregationScheme:
    return AggregationScheme(
        name=name,
        hides=True,
        party=lazy("fedmmf.aggregation.homomorphic.party:HomomorphicParty"),
        server=partial(lazy("fedmmf.aggregation.homomorphic.server:KeeperServer"), scheme=scheme),
        simulate=lazy("fedmmf.aggregation.secure.simulated:groups"),
        cost=partial(lazy("fedmmf.aggregation.homomorphic.simulated:cost"), scheme=scheme),
        disclosure=disclosure,
        across_machines=False,  # parties get the keeper's keys
    )


PAILLIER = _scheme("homomorphic-paillier", "paillier-packed")


CKKS = _scheme("homomorphic-ckks", "ckks")
