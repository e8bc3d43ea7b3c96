"""Differential privacy for a whole user: updates of bounded length, with Gaussian noise."""

from fedmmf.registry import lazy
from fedmmf.sums.contract import Way
from fedmmf.sums.dp.words import words

DP = Way(
    name="dp",
    hides=True,
    party=lazy("fedmmf.sums.dp.party:dp_party"),
    server=lazy("fedmmf.sums.dp.server:dp_server"),
    simulate=lazy("fedmmf.sums.dp.simulated:groups"),
    cost=lazy("fedmmf.sums.dp.simulated:cost"),
    words=words,
    spent=lazy("fedmmf.sums.dp.spending:spent"),
)
