"""Bytes that a session costs a party, by arithmetic: the size of what `Trip.encode` writes.

Of one round in the middle of a session in which nobody drops out. Every size is a number of
records times their size, so it is exact; a test holds it against the bytes of real sessions.
"""

from dataclasses import dataclass
from typing import NamedTuple

from fedmmf.secagg.errors import PolicyError
from fedmmf.secagg.framing import HEADER_BYTES
from fedmmf.secagg.keys import SIGNATURE_BYTES
from fedmmf.secagg.messages import BOX_BYTES, COMMITMENT_BYTES, key_bytes, signature_bytes
from fedmmf.secagg.ring import RING32, Ring
from fedmmf.secagg.session import TRIP_BYTES
from fedmmf.secagg.shamir import SHARE_BYTES
from fedmmf.wire.codec import map_bytes, table_bytes


class UpDown(NamedTuple):
    """Bytes that one party sends and receives."""

    up: int
    down: int


@dataclass(frozen=True)
class SessionSize:
    """Parameters that decide the sizes of a session's messages.

    Args:
        n: parties.
        degree: neighbours of each; n - 1 in the complete graph.
        length: entries of a vector.
        ring: where vectors are summed.
        active: whether signatures and the consistency check are on.
    """

    n: int
    degree: int
    length: int
    ring: Ring = RING32
    active: bool = False

    def __post_init__(self) -> None:
        conditions = [
            (2 <= self.degree < self.n, f"degree must be in [2, {self.n - 1}]; got {self.degree}"),
            (self.n * self.degree % 2 == 0, "degree must be even when parties are odd"),
            (self.length >= 1, f"length must be at least 1; got {self.length}"),
        ]
        for holds, rule in conditions:
            if not holds:
                raise PolicyError(rule)


def session_bytes(size: SessionSize) -> UpDown:
    """Return the bytes of one party in one round; they are the same for every party."""
    trips = [first_trip(size), second_trip(size)]
    if size.active:
        trips.append(check_trip(size))
    return UpDown(sum(trip.up for trip in trips), sum(trip.down for trip in trips))


def first_trip(size: SessionSize) -> UpDown:
    """Bytes of the first trip: `Masked` and the next `Advertise` up, `Boxes` down."""
    vector = size.length * size.ring.width
    masked = HEADER_BYTES + signature_bytes(size.active) + vector
    advertised = HEADER_BYTES + key_bytes(size.active)
    boxes = HEADER_BYTES + table_bytes(size.degree, BOX_BYTES)
    return UpDown(TRIP_BYTES + masked + advertised, TRIP_BYTES + boxes)


def check_trip(size: SessionSize) -> UpDown:
    """Bytes of the consistency check: `Confirmed` up, `Survivors` down."""
    around = TRIP_BYTES + HEADER_BYTES
    return UpDown(around + SIGNATURE_BYTES, around + map_bytes(size.n))


def second_trip(size: SessionSize) -> UpDown:
    """Bytes of the second trip: `Revealed` and next `Shares` up, `Request` and next `Keys` down."""
    revealed = HEADER_BYTES + table_bytes(size.degree + 1, SHARE_BYTES)  # of itself too
    shares = HEADER_BYTES + COMMITMENT_BYTES + table_bytes(size.degree, BOX_BYTES)
    signatures = table_bytes(signatures_down(size), SIGNATURE_BYTES)
    request = HEADER_BYTES + 2 * map_bytes(size.n) + signatures
    keys = HEADER_BYTES + table_bytes(size.degree, key_bytes(size.active))
    return UpDown(TRIP_BYTES + revealed + shares, TRIP_BYTES + request + keys)


def signatures_down(size: SessionSize) -> int:
    """Return how many signatures a party is sent: of all others at most two edges away.

    The graph looks the same from everywhere on its ring, so that every party has as many and the
    mean is that number. With h = degree // 2, one edge leads at most h places along the ring, or,
    if the degree is odd, to the place opposite. So two edges lead

    - to all 4 h + 1 places at a distance of at most 2 h, the party's own among them;
    - if the degree is odd, also to the 2 h + 1 places at most h away from the one opposite.

    The ring is even where the degree is odd, and so the two arcs either share no place, at
    6 h + 2 <= n, or leave none out: the places reached are their sum, or all n.
    """
    if not size.active:
        return 0
    half, odd = divmod(size.degree, 2)
    reached = 4 * half + 1 + odd * (2 * half + 1)
    return min(reached, size.n) - 1
