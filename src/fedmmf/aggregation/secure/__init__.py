"""Secure aggregation (`secagg`): the server learns the sum over the surviving parties alone."""

from typing import Any

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.registry import lazy

NOT_HIDDEN = (
    "Not hidden: that a user takes part, what the sums themselves say, and differences between "
    "sums of groups that change from round to round."
)


def _server(settings: Any) -> str:
    if settings.signed:
        return "A server, even one that lies to some of the users, who all sign,"
    return "A server that follows the protocol"


def disclosure(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what the server sees and what it does not see."""
    return (
        "Sharing is strict: every update goes into a sum, made by secure aggregation. "
        f"{_server(settings)} learns the sum over the users who stayed, and, once, how many rated "
        "each item. It sees no single update. What the sums themselves say of their users is more "
        "the fewer they are.",
        "Other users see even less. Users who collude with the server do not change this while "
        "they are fewer than the protocol's threshold.",
        NOT_HIDDEN,
    )


SECURE = AggregationScheme(
    name="secure",
    hides=True,
    party=lazy("fedmmf.aggregation.secure.party:SecureParty"),
    server=lazy("fedmmf.aggregation.secure.server:SecureServer"),
    simulate=lazy("fedmmf.aggregation.secure.simulated:groups"),
    cost=lazy("fedmmf.aggregation.secure.simulated:cost"),
    disclosure=disclosure,
    is_secagg=lambda settings: True,
)
