"""Sums in the clear: the server sees every party's update."""

from fedmmf.registry import lazy
from fedmmf.sums.contract import Way
from fedmmf.sums.plain.words import words

PLAIN = Way(
    name="plain",
    hides=False,
    party=lazy("fedmmf.sums.plain.party:PlainParty"),
    server=lazy("fedmmf.sums.plain.server:PlainServer"),
    simulate=lazy("fedmmf.sums.plain.simulated:groups"),
    cost=lazy("fedmmf.sums.plain.simulated:cost"),
    words=words,
)
