"""Who is who: key files, cards, and the list of those who may take part.

It needs the standard library and cryptography alone. A party signs with the key of its own file
and trusts the keys of a list that somebody else than the server keeps. docs/identity.md specifies
the files, and says against whom they protect.
"""

from fedmmf.identity.cards import Card, card_beside, enrol
from fedmmf.identity.documents import fingerprint
from fedmmf.identity.key_files import Identity
from fedmmf.identity.trust_lists import Membership, Revocation, TrustList, read_newest, take_part

__all__ = [
    "Card",
    "Identity",
    "Membership",
    "Revocation",
    "TrustList",
    "card_beside",
    "enrol",
    "fingerprint",
    "read_newest",
    "take_part",
]
