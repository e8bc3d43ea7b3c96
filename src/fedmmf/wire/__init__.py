"""Every message that crosses the boundary between a party and the server: typed, checked once.

A party's ratings, its mask, its held-out ratings and p_u appear in no message. spec/ specifies
them all, byte by byte. Messages of one aggregation scheme are in its own package, in
`aggregation`.
"""

from fedmmf.wire.catalogue import Catalogue
from fedmmf.wire.frames import Message, name_of, named_parcel, parcel, read, split_parcel
from fedmmf.wire.kinds import Kind
from fedmmf.wire.messages import (
    BROADCASTS,
    Adopt,
    Adopted,
    Ask,
    Finish,
    Finished,
    Invitation,
    Joined,
    Layout,
    Newcomers,
    Refused,
    Round,
    Survey,
    Update,
    Wanted,
)

__all__ = [
    "BROADCASTS",
    "Adopt",
    "Adopted",
    "Ask",
    "Catalogue",
    "Finish",
    "Finished",
    "Invitation",
    "Joined",
    "Kind",
    "Layout",
    "Message",
    "Newcomers",
    "Refused",
    "Round",
    "Survey",
    "Update",
    "Wanted",
    "name_of",
    "named_parcel",
    "parcel",
    "read",
    "split_parcel",
]
