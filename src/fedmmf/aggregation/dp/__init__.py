"""Differential privacy for a whole user: updates of bounded length, with Gaussian noise."""

from typing import TYPE_CHECKING, Any

from fedmmf.aggregation.contract import AggregationScheme
from fedmmf.aggregation.plain import PLAIN
from fedmmf.aggregation.secure import SECURE
from fedmmf.errors import WireError
from fedmmf.registry import lazy

if TYPE_CHECKING:
    from fedmmf.aggregation.party_side import PartyContext, PartySide


def disclosure(settings: Any) -> tuple[str, ...]:
    """Return sentences that say what epsilon covers."""
    return (
        "Each user's update is clipped and gets noise (differential privacy). dp_epsilon bounds "
        "what the server can learn about what a user rated, and how: 1 or less is a strong bound, "
        "8 a weak one. That the user took part is not hidden.",
        "With dp_noise local the server sees single updates with much noise; with distributed it "
        "sees sums alone, made by secure aggregation.",
    )


def _party(context: "PartyContext") -> "PartySide":
    """Make a plain side that adds all its noise, or a secure side that adds its part."""
    noise = context.policy.noise
    if noise is None:
        raise WireError("this party was given no guarantee, so it has no noise to add")
    scheme = PLAIN if noise.noise == "local" else SECURE
    return scheme.party(context)


DP = AggregationScheme(
    name="dp",
    hides=True,
    party=_party,
    server=lazy("fedmmf.aggregation.dp.server:dp_server"),
    simulate=lazy("fedmmf.aggregation.dp.simulated:groups"),
    cost=lazy("fedmmf.aggregation.dp.simulated:cost"),
    disclosure=disclosure,
    spent=lazy("fedmmf.aggregation.dp.guarantee:spent"),
    guarantee=lazy("fedmmf.aggregation.dp.guarantee:guarantee_of"),
    default_rounds=30,  # each costs privacy
    is_secagg=lambda settings: settings.dp_noise != "local",
)
