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

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.homomorphic.disclosure import words
from fedmmf.registry import lazy


def _way(name: str, scheme: str) -> AggregationScheme:
    return AggregationScheme(
        name=name,
        hides=True,
        party=lazy("fedmmf.aggregation.homomorphic.party:HomomorphicParty"),
        server=partial(lazy("fedmmf.aggregation.homomorphic.keeper:KeeperServer"), scheme=scheme),
        simulate=lazy("fedmmf.aggregation.secure.simulated:groups"),
        cost=partial(lazy("fedmmf.aggregation.homomorphic.cost:cost"), scheme=scheme),
        words=words,
    )


PAILLIER = _way("homomorphic-paillier", "paillier-packed")
CKKS = _way("homomorphic-ckks", "ckks")
