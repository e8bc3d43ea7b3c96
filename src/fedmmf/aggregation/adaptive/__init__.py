"""Algorithm 1: parties whose J is small send updates in the clear; the others sum securely.

Obfuscation, not protection: a small J stops nobody who knows the mask's family and the item
features (errata 13, 24), and the clear group shrinks the cohort of the others (errata 35).
Each party decides for itself, from a J that never leaves it (errata 37); the server learns which
group it is in.
"""

from fedmmf.aggregation.adaptive.disclosure import words
from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.registry import lazy

ADAPTIVE = AggregationScheme(
    name="adaptive",
    hides=True,
    party=lazy("fedmmf.aggregation.adaptive.party:AdaptiveParty"),
    server=lazy("fedmmf.aggregation.adaptive.server:AdaptiveServer"),
    simulate=lazy("fedmmf.aggregation.adaptive.simulated:groups"),
    cost=lazy("fedmmf.aggregation.adaptive.simulated:cost"),
    words=words,
)
