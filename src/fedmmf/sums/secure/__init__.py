"""Secure sums (`secagg`): the server learns the sum over the parties that stayed, and no more."""

from fedmmf.registry import lazy
from fedmmf.sums.contract import Way
from fedmmf.sums.secure.words import words

SECURE = Way(
    name="secure",
    hides=True,
    party=lazy("fedmmf.sums.secure.party:SecureParty"),
    server=lazy("fedmmf.sums.secure.server:SecureServer"),
    simulate=lazy("fedmmf.sums.secure.simulated:groups"),
    cost=lazy("fedmmf.sums.secure.cost:cost"),
    words=words,
)
