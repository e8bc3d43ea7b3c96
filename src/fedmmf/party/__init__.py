"""One party of a federation: the ratings of one user, or of many, and what leaves of them.

It needs numpy and cryptography alone. A party answers bytes with bytes. What it says is in `wire`
and in the messages of its aggregation scheme. Ratings, masks and p_u stay here, and what may leave
in the clear is its own choice.
"""

from fedmmf.party.device import Party
from fedmmf.party.expectation import Expectation
from fedmmf.party.policy import Policy
from fedmmf.party.user_group import PartyData, UserGroup

__all__ = ["Expectation", "Party", "PartyData", "Policy", "UserGroup"]
