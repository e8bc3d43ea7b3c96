"""A party's side of differentially private aggregation."""

from fedmmf.aggregation.party_side import PartyContext, PartySide
from fedmmf.errors import WireError


def dp_party(context: PartyContext) -> PartySide:
    """Make a plain side that adds all its noise, or a secure side that adds its part."""
    noise = context.policy.noise
    if noise is None:
        raise WireError("this party was given no guarantee, so it has no noise to add")
    if noise.noise == "local":
        from fedmmf.aggregation.plain.party import PlainParty

        return PlainParty(context)
    from fedmmf.aggregation.secure.party import SecureParty

    return SecureParty(context)
