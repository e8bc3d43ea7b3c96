"""A party's side of differentially private sums."""

from fedmmf.aggregation.party_side import PartyContext, PartySide
from fedmmf.errors import WireError


def dp_party(context: PartyContext) -> PartySide:
    """In the clear with noise for itself, or in secure sums with its part of the noise."""
    noise = context.policy.noise
    if noise is None:
        raise WireError("this party was given no guarantee, so it has no noise to add")
    if noise.noise == "local":
        from fedmmf.aggregation.plain.party import PlainParty

        return PlainParty(context)
    from fedmmf.aggregation.secure.party import SecureParty

    return SecureParty(context)
