"""A party's side of differentially private sums."""

from fedmmf.errors import WireError
from fedmmf.sums.party_side import PartyDesk, PartySide


def dp_party(desk: PartyDesk) -> PartySide:
    """In the clear with noise for itself, or in secure sums with its part of the noise."""
    noise = desk.policy.noise
    if noise is None:
        raise WireError("this party was given no guarantee, so it has no noise to add")
    if noise.noise == "local":
        from fedmmf.sums.plain.party import PlainParty

        return PlainParty(desk)
    from fedmmf.sums.secure.party import SecureParty

    return SecureParty(desk)
